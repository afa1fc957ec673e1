"""Synthesis: networks, collectives, schedules, programs, and the proofs that they are right.

In: a `Network` (by name, measured by a profile, or nominal from a topology) and a collective. Out: a proven
`Schedule` with its lower bounds, a `Selection` of schedules by size, or a proven `Program` for executors.

Read `network`, `collective`, `schedule` and `program`, the nouns; `stages`, the four functions over them;
then `portfolio` (which tries `methods`), `check` (which believes none of them), `bounds`, `simulation` and
`compiler`. The methods stand on `tree_packing`, `routing`, `scheduling`, `adapcc`, `tacos_ilp`, `milp` and
`kernels`; `lang` is the chunk language of GC3, `msccl` its exchange format. `published` are methods of other
systems to compare with.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from synth.collective import Collective
    from synth.errors import NotApplicableError, NotProvenError
    from synth.network import Network
    from synth.networks import family, from_profile, from_topology
    from synth.portfolio import (
        METHODS,
        CollectiveRequest,
        RaceRunner,
        RaceWinner,
        Request,
        Synthesis,
        makes_attempts,
    )
    from synth.program import Program
    from synth.schedules import Schedule, Selection
    from synth.simulation import Costs
    from synth.stages import compile, simulate, synthesize, verify  # noqa: A004

__all__ = [
    "METHODS",
    "Collective",
    "CollectiveRequest",
    "Costs",
    "Network",
    "NotApplicableError",
    "NotProvenError",
    "Program",
    "RaceRunner",
    "RaceWinner",
    "Request",
    "Schedule",
    "Selection",
    "Synthesis",
    "compile",
    "family",
    "from_profile",
    "from_topology",
    "makes_attempts",
    "simulate",
    "synthesize",
    "verify",
]

# What is heavy is imported by whoever asks for it (PEP 562).
_HOME = {
    "Collective": "synth.collective",
    "Costs": "synth.simulation.program",
    "METHODS": "synth.portfolio.attempts",
    "Network": "synth.network",
    "NotApplicableError": "synth.errors",
    "NotProvenError": "synth.errors",
    "Program": "synth.program",
    "RaceRunner": "synth.portfolio.synthesis",
    "RaceWinner": "synth.portfolio.synthesis",
    "Request": "synth.portfolio.request",
    "Schedule": "synth.schedules.schedule",
    "Selection": "synth.schedules.selection",
    "Synthesis": "synth.portfolio.synthesis",
    "CollectiveRequest": "synth.portfolio.collective_request",
    "compile": "synth.stages",
    "family": "synth.networks.families",
    "from_profile": "synth.networks.measured",
    "from_topology": "synth.networks.nominal",
    "makes_attempts": "synth.portfolio.planning",
    "simulate": "synth.stages",
    "synthesize": "synth.stages",
    "verify": "synth.stages",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
