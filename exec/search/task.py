"""The task that all ranks of a search run: rank 0 searches, and hands its attempts to the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from exec.search.rank_pool import pools_of
from probes.base import Safekeeping
from synth.portfolio import Request, sweep, synthesize_either, warm

if TYPE_CHECKING:
    from synth.portfolio import PeriodicSynthesis, Swept, Synthesis

__all__ = ["SearchTask", "search_task"]


@dataclass(frozen=True)
class SearchTask:
    """The search for the best schedule of ``request``, or with ``sizes`` for a selection for them."""

    request: Request
    sizes: tuple[int, ...] = ()


def search_task(
    comm: Any, search: SearchTask, progress: Safekeeping
) -> Synthesis | PeriodicSynthesis | Swept | None:
    """The result on rank 0; None on the others, which make its attempts."""
    with pools_of(comm, progress) as pools:
        if pools is None:
            return None
        request = replace(search.request, jobs=max(1, comm.Get_size() - 1))
        warm(request.network.ranks)
        if search.sizes:
            return sweep(request, search.sizes, progress, pools)
        return synthesize_either(request, progress, pools=pools)
