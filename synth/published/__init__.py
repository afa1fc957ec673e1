"""Methods of other systems, exactly as in their papers; they serve only for comparison.

In: a network and a collective, as `synth.methods` takes them. Out: a `Schedule`. Only the portfolio imports
this package; it gets the methods by name from `synthesizer`.

Read `adapcc_milp` first (AdapCC's integer program, equations 1 to 6). Then read `adapcc_schedule`, which
makes its strategies into a schedule, and `adapcc_algorithm`, which makes them into an algorithm in the chunk
language. The others are independent: `tacos_greedy` (TACOS's search as published), `tacos_ilp` (its integer
programs), and `taccl` (TACCL's sketch, routing and order).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from synth.schedules import Schedule

__all__ = ["synthesizer"]

_HOMES = {
    "adapcc_published": "synth.published.adapcc_schedule",
    "taccl": "synth.published.taccl",
    "tacos_ilp_published": "synth.published.tacos_ilp",
    "tacos_published": "synth.published.tacos_greedy",
}


def synthesizer(name: str) -> Callable[..., Schedule]:
    """Return the method ``name``; its module is imported at the first call."""

    def synthesize(*arguments: Any, **options: Any) -> Schedule:
        made: Schedule = import_module(_HOMES[name]).synthesize(*arguments, **options)
        return made

    return synthesize
