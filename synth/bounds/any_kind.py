"""Lower bounds on the time of a schedule's collective, for every kind of schedule."""

from __future__ import annotations

from dataclasses import replace

from synth.bounds.lower_bounds import bounds
from synth.bounds.symmetric import symmetric_bounds
from synth.networks import SymmetricNetwork
from synth.schedules import AnySchedule, Bound

__all__ = ["schedule_bounds"]


def schedule_bounds(made: AnySchedule) -> list[Bound]:
    """Return every proven lower bound on the time of a schedule's collective, the largest first.

    Bounds for a table of all sends use its chunk size. Bounds for other kinds hold for any chunk size.
    """
    if isinstance(made.network, SymmetricNetwork):
        size_bytes = made.whole.total_bytes(made.chunk_bytes)
        return symmetric_bounds(made.network, made.whole.kind, size_bytes)
    if made.is_listed:
        return bounds(made.network, made.whole, made.chunk_bytes)
    once = replace(made.collective, chunks=made.collective.chunks // made.collective.share)
    chunk_bytes = made.chunk_bytes * (made.whole.chunks // once.chunks)
    return bounds(made.network, once, chunk_bytes, fluid=True)
