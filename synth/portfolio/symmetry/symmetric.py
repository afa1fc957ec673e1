"""Synthesis of symmetric schedules: only the chunks of one rank of each orbit are scheduled.

This serves networks whose table of all sends would be too large. `synth.scheduling.symmetric_search` makes
the schedules; `synth.schedules.symmetric` explains orbits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from probes.base import SILENT, Progress, UsageError
from synth.bounds import symmetric_bounds
from synth.collective import MOST_CHUNKS, Collective, Kind, collective
from synth.errors import NotApplicableError
from synth.networks import SymmetricNetwork
from synth.portfolio import SMALLEST_CHUNK_BYTES, Attempt, Request, Synthesis, peak_bytes, proven_with
from synth.schedules import SYMMETRIC, SymmetricSchedule
from synth.scheduling import MOST_COMPARISONS, comparisons, symmetric_schedules
from synth.simulation import replay

__all__ = ["fastest_symmetric", "is_large"]

# Plain schedules of more deliveries take longer than a minute, or too much memory.
_MOST_DELIVERIES = 1 << 20
# The search ends if the bound is more than this share of the best time.
_NEAR = 0.995
# The search ends after _PATIENCE cuts in a row that gain less than the share _NOTICEABLE.
_NOTICEABLE, _PATIENCE = 0.002, 2


def is_large(network: SymmetricNetwork, kind: Kind) -> bool:
    """Return whether symmetric schedules serve the collective, and plain ones would be too large."""
    return kind in SYMMETRIC and network.ranks**2 > _MOST_DELIVERIES


def fastest_symmetric(request: Request, network: SymmetricNetwork, progress: Progress = SILENT) -> Synthesis:
    """Return the fastest symmetric schedule found, checked and with lower bounds.

    ``network`` is the request's network. If the request gives a size, chunks are halved until this gains
    hardly anything. Raises NotApplicableError for collectives that are not SYMMETRIC and if links do not join
    all ranks, UsageError if ranks cannot own equally many chunks, RuntimeError if the checker refuses the
    schedule, which would be a bug.
    """
    kind = request.asked[0].kind
    if kind not in SYMMETRIC:
        raise NotApplicableError(f"symmetric schedules are made for {', '.join(SYMMETRIC)}")
    begun_s = time.perf_counter()
    best: SymmetricSchedule | None = None
    best_s = bound_s = float("inf")
    attempts: list[Attempt] = []
    patience = _PATIENCE
    for number, (shape, chunk_bytes) in enumerate(_cuts(request, network, kind)):
        progress.update(number, number + 1, f"{shape.chunks} chunks")
        if number == 0 or request.size_bytes is None:
            size_bytes = request.size_bytes or shape.total_bytes(chunk_bytes)
            proven = tuple(symmetric_bounds(network, kind, size_bytes))
        bound_s = min(bound_s, proven[0].time_s)
        before_s = best_s
        for made in symmetric_schedules(network, shape, chunk_bytes, request.seed):
            time_s = replay(made.quotient).time_s
            attempts.append(Attempt(made.method, shape.chunks, time_s, "", made.sends))
            if time_s < best_s:
                best, best_s = made, time_s
        patience = _PATIENCE if best_s < before_s * (1 - _NOTICEABLE) else patience - 1
        if not patience or bound_s > _NEAR * best_s:
            break
    assert best is not None
    found_s = time.perf_counter()
    schedule = proven_with(best, proven)
    row = len(best.chunk)
    why = f"{row} sends are listed, each for {best.network.translations} that start together"
    return Synthesis(
        schedule, tuple(attempts), found_s - begun_s, time.perf_counter() - found_s, why, peak_bytes()
    )


def _cuts(request: Request, network: SymmetricNetwork, kind: Kind) -> Iterator[tuple[Collective, int]]:
    """Yield (collective, bytes of a chunk), from coarse to fine."""
    ranks = network.ranks
    if request.chunk_bytes is not None:
        shape = collective(kind, ranks, request.chunks or 1)
        if shape.chunks % ranks:
            raise UsageError(
                f": expected a multiple of {ranks}, as ranks own equally many chunks, found {shape.chunks}",
                argument="chunks",
            )
        yield shape, request.chunk_bytes
        return
    assert request.size_bytes is not None
    owners = ranks**2 if kind == "all_to_all" else ranks
    for share in (1 << power for power in range(MOST_CHUNKS.bit_length())):
        if share > 1 and share * owners > MOST_CHUNKS:
            return
        shape = collective(kind, ranks, share if kind == "all_gather" else share * ranks)
        chunk_bytes = max(1, -(-request.size_bytes // shape.total_bytes(1)))
        many = comparisons(network, shape) > MOST_COMPARISONS
        if share > 1 and (chunk_bytes < SMALLEST_CHUNK_BYTES or many):
            return
        yield shape, chunk_bytes
