"""Methods of other systems, each as its paper has it, which exist only to be compared with.

In: a network and a collective, as `synth.methods` takes them. Out: a `Schedule`. The portfolio knows them by
the names of the registry here; the product imports nothing else of this package.

Read `adapcc_milp` (AdapCC's integer program, equations 1 to 6), then what carries out its strategies: as a
schedule `adapcc_schedule`, as a program in the chunk language `adapcc_algorithm`. `taccl` stands by itself:
TACCL's sketch, routing and order.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from synth.schedules import Schedule

__all__ = ["synthesizer"]

_HOMES = {"adapcc_published": "synth.published.adapcc_schedule", "taccl": "synth.published.taccl"}


def synthesizer(name: str) -> Callable[..., Schedule]:
    """Return the method of that name; its module is loaded when it is called first."""

    def synthesize(*asked: Any, **options: Any) -> Schedule:
        made: Schedule = import_module(_HOMES[name]).synthesize(*asked, **options)
        return made

    return synthesize
