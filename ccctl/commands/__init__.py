"""The commands in the order in which data passes through them; each is a module with a function of its name.

A module is imported when its command is run, or asked for by its own help; the list of commands needs none.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["CLAIMS", "COMMANDS", "function_of"]

# The first sentence of each command's docstring, as `ccctl --help` lists it.
CLAIMS = {
    "detect": "Find out what is connected to what inside machines.",
    "profile": "Measure alpha and beta of every directed link between ranks.",
    "synth": "Synthesize a schedule: who sends which chunk to whom when.",
    "compile": "Compile a schedule, or the chunk language, to a program.",
    "verify": "Prove a schedule or program, or list what is wrong with it.",
    "simulate": "Time a schedule or program on any network by simulation.",
    "run": "Run one collective on real data, or many with --adaptive.",
    "bench": "Time collectives beside the libraries, and check the results.",
    "explain": "Judge measured bandwidths: what is possible, what binds.",
    "order": "Find the order of hosts and ranks that suits a library.",
    "tune": "Find a library's fastest algorithm for each range of sizes.",
    "groups": "Plan which ranks average parameters together, as in DS-Sync.",
    "fusion": "Predict training times by ways to overlap communication.",
    "train": "Train a small model by each --mode in turn, and compare.",
    "relay": "Judge relays: going ahead with the ranks that are ready.",
    "watch": "Measure the links again, and say what became worse.",
    "show": "Draw an artifact as text, SVG or PNG.",
    "report": "Put artifacts on one page of HTML, what is wrong first.",
    "lab": "Emulate a cluster on this machine: hosts, switches, wires.",
    "doctor": "Say what this machine has and lacks for each stage.",
    "schema": "Print the JSON Schema of a kind of artifact, or list kinds.",
    "examples": "List the examples, or copy one.",
    "help": "Print the help of a command, or of all of ccctl.",
    "manual": "Show the manual page of a command.",
    "completion": "Print the completion for a shell.",
}
COMMANDS: tuple[Callable[..., None], ...]


def function_of(name: str) -> Callable[..., None]:
    """The function of a command."""
    found: Callable[..., None] = getattr(import_module(f"ccctl.commands.{name}"), name)
    return found


def __getattr__(name: str) -> Any:
    if name == "COMMANDS":
        return tuple(map(function_of, CLAIMS))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
