"""MSCCL's names of collectives, and their numbers of chunks."""

from __future__ import annotations

from synth.collective import Collective, Kind

__all__ = ["COLL", "KIND", "chunks_per_loop", "collective_of"]

KIND: dict[str, Kind] = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltonext": "all_to_next",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
COLL: dict[str, str] = {kind: name for name, kind in KIND.items() if name != "reduce_scatter"}


def collective_of(kind: Kind, ranks: int, per_loop: int, root: int) -> Collective:
    """Return the collective whose larger buffer has ``per_loop`` chunks; it may have ``problems``."""
    factor = {"all_to_all": ranks, "all_to_next": ranks - 1}.get(kind, 1)
    return Collective(kind, ranks, per_loop * factor, root)


def chunks_per_loop(collective: Collective) -> int:
    """Return the number of chunks of the larger buffer."""
    return collective.total_bytes(1)
