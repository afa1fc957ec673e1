"""The task of all ranks in a search: rank 0 searches, and gives its attempts to the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from exec.search.rank_pool import pools_of
from probes.base import Safekeeping
from synth import Request, Synthesis, synthesize
from synth.portfolio import warm

__all__ = ["search_task"]


def search_task(comm: Any, request: Request, progress: Safekeeping) -> Synthesis | None:
    """Return the best schedule for a request on rank 0; on the others make attempts and return None."""
    with pools_of(comm, progress) as pools:
        if pools is None:
            return None
        warm(request.network.ranks)
        asked = replace(request, jobs=max(1, comm.Get_size() - 1))
        return synthesize(asked, progress=progress, pools=pools)
