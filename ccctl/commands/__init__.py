"""The commands, in the order in which data passes through them, each a function of the same name.

A command's module is imported only when the command runs or shows its own help; the list of commands imports
none.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["CLAIMS", "COMMANDS", "SECTIONS", "function_of"]

# The first sentence of each command's docstring, as `ccctl --help` lists it, by section.
SECTIONS = {
    "Commands": {
        "detect": "Find the GPUs, NICs, NVLinks and PCI tree of machines.",
        "profile": "Measure latency and bandwidth of each link between ranks.",
        "synth": "Synthesize a schedule: which rank sends what to which, and when.",
        "compile": "Compile a schedule, or an algorithm in Python, to a program.",
        "verify": "Prove a schedule or program, or list what is wrong with it.",
        "simulate": "Time a schedule or program on any network by simulation.",
        "run": "Run one collective on real data, or many with --adaptive.",
        "bench": "Time collectives beside the libraries, and check the results.",
        "accept": "Test a cluster, and name the culprits with what each costs.",
        "explain": "Judge measured bandwidths: what is possible, what limits them.",
        "order": "Find the order of hosts and ranks that suits a library.",
        "tune": "Find a library's fastest algorithm for each range of sizes.",
        "training": "Plan, predict and compare communication of training jobs.",
        "watch": "Measure the links again, and report what became worse.",
        "show": "Draw any file of ccctl as text, SVG or PNG.",
        "report": "Put artifacts on one page of HTML, findings first.",
        "lab": "Emulate a cluster on this machine: hosts, switches, wires.",
    },
    "Set-up and reference": {
        "doctor": "List what this machine has and lacks for each stage.",
        "help": "Show the manual page of a command, or list the commands.",
        "examples": "List the examples, or copy one.",
        "schema": "Print the JSON Schema of a kind of artifact, or list kinds.",
        "completion": "Print the completion script of a shell.",
    },
}
CLAIMS = {name: claim for section in SECTIONS.values() for name, claim in section.items()}
COMMANDS: tuple[Callable[..., None], ...]


def function_of(name: str) -> Callable[..., None]:
    """Return the function of a command."""
    found: Callable[..., None] = getattr(import_module(f"ccctl.commands.{name}"), name)
    return found


def __getattr__(name: str) -> Any:
    if name == "COMMANDS":
        return tuple(map(function_of, CLAIMS))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
