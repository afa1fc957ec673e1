"""Synthesizes symmetric schedules: the chunks of one rank of each orbit are scheduled, for all ranks.

This serves more ranks than a table of all sends could list. An all_gather is made by `spread`, an all_to_all
by `all_to_all_sends`. A reduce_scatter is an all_gather backwards in time; an all_reduce is a reduce_scatter
and then an all_gather.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from probes.columns import Indices, bytes_of, ints, spans
from probes.errors import UsageError
from probes.progress import SILENT, Progress
from synth.bounds.symmetric import symmetric_bounds
from synth.check.symmetric import check_symmetric
from synth.collective import MOST_CHUNKS, Collective, Kind, collective
from synth.errors import NotApplicableError
from synth.networks.symmetric import SymmetricNetwork
from synth.portfolio.attempts import SMALLEST_CHUNK_BYTES
from synth.portfolio.incumbent import Attempt
from synth.portfolio.memory_limits import peak_bytes
from synth.schedule import COPY, REDUCE, Bound, Outcome
from synth.scheduling.symmetric_paths import all_to_all_sends
from synth.scheduling.symmetric_spreading import spread
from synth.simulation.schedule import replay
from synth.symmetric_schedule import SYMMETRIC, SymmetricSchedule

__all__ = ["SymmetricRequest", "SymmetricSynthesis", "is_large", "synthesize_symmetric"]

# Plain schedules of more deliveries take longer than a minute, or more memory than there is.
_MOST_DELIVERIES = 1 << 20
_MOST_LOOKS = 200_000_000
_NEAR = 0.995
_NOTICEABLE = 0.002
# After so many cuts in a row that gain nothing no finer one is tried.
_PATIENCE = 2


@dataclass(frozen=True)
class SymmetricRequest:
    """What to synthesize: either ``size_bytes``, or ``chunk_bytes`` and ``chunks``, as of a `Request`."""

    network: SymmetricNetwork
    kind: Kind
    size_bytes: int | None = None
    chunk_bytes: int | None = None
    chunks: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class SymmetricSynthesis:
    """A symmetric schedule, proven and bounded, with what was tried and why it was kept."""

    schedule: SymmetricSchedule
    attempts: tuple[Attempt, ...]
    synthesis_s: float
    proof_s: float
    why: str
    peak_bytes: int
    workers_bytes: int = 0


def is_large(network: SymmetricNetwork, kind: Kind) -> bool:
    """Whether symmetric schedules serve the collective, and plain ones would be too large."""
    return kind in SYMMETRIC and network.ranks**2 > _MOST_DELIVERIES


def synthesize_symmetric(request: SymmetricRequest, progress: Progress = SILENT) -> SymmetricSynthesis:
    """The fastest symmetric schedule found, proven, with its bounds.

    For a size, chunks are halved until that gains hardly anything. Raises NotApplicableError for collectives
    that are not SYMMETRIC and if links do not join all ranks, UsageError if ranks cannot own equally many
    chunks, RuntimeError if the checker refuses the schedule, which would be a bug.
    """
    if request.kind not in SYMMETRIC:
        raise NotApplicableError(f"symmetric schedules are made for {', '.join(SYMMETRIC)}")
    begun_s = time.perf_counter()
    best: SymmetricSchedule | None = None
    best_s = bound_s = float("inf")
    attempts: list[Attempt] = []
    patience = _PATIENCE
    for number, (shape, chunk_bytes) in enumerate(_cuts(request)):
        progress.update(number, number + 1, f"{shape.chunks} chunks")
        proven = _bounds(request, shape, chunk_bytes)
        bound_s = min(bound_s, proven[0].time_s)
        before_s = best_s
        for made in _made(request, shape, chunk_bytes):
            time_s = replay(made.quotient).time_s
            attempts.append(Attempt(made.method, shape.chunks, time_s, "", made.sends))
            if time_s < best_s:
                best, best_s = made, time_s
        patience = _PATIENCE if best_s < before_s * (1 - _NOTICEABLE) else patience - 1
        if not patience or bound_s > _NEAR * best_s:
            break
    assert best is not None
    found_s = time.perf_counter()
    proven = _bounds(request, best.collective, best.chunk_bytes)
    schedule = proven_symmetric(best, proven)
    row = len(best.chunk)
    why = f"{row} sends are listed, each for {best.network.translations} that start with it"
    return SymmetricSynthesis(
        schedule, tuple(attempts), found_s - begun_s, time.perf_counter() - found_s, why, peak_bytes()
    )


def proven_symmetric(made: SymmetricSchedule, proven: tuple[Bound, ...]) -> SymmetricSchedule:
    """``made``, judged and timed, with these bounds; RuntimeError if the judge refuses it: a bug."""
    timing = replay(made.quotient)
    if findings := check_symmetric(made, timing):
        raise RuntimeError(f"symmetric made a wrong schedule: {findings[0]}")
    outcome = Outcome(timing.time_s, proven)
    status = "optimal" if outcome.percent_of_optimal > 100 * (1 - 1e-9) else "feasible"
    return replace(made, outcome=replace(outcome, status=status))


def _bounds(request: SymmetricRequest, shape: Collective, chunk_bytes: int) -> tuple[Bound, ...]:
    size_bytes = request.size_bytes or shape.total_bytes(chunk_bytes)
    return tuple(symmetric_bounds(request.network, request.kind, size_bytes))


def _cuts(request: SymmetricRequest) -> Iterator[tuple[Collective, int]]:
    """(collective, bytes of a chunk), from coarse to fine."""
    ranks, kind = request.network.ranks, request.kind
    if request.chunk_bytes is not None:
        shape = collective(kind, ranks, request.chunks or 1)
        if shape.chunks % ranks:
            raise UsageError(
                f": an all_reduce by symmetry gives each of {ranks} ranks as many, found {shape.chunks}",
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
        many = _looks(request, shape) > _MOST_LOOKS
        if share > 1 and (chunk_bytes < SMALLEST_CHUNK_BYTES or many):
            return
        yield shape, chunk_bytes


def _looks(request: SymmetricRequest, shape: Collective) -> int:
    """How often the search compares a link with a chunk: each listed link with all copies of all chunks."""
    return shape.chunks // request.network.ranks * request.network.ranks * len(request.network.src)


def _made(request: SymmetricRequest, shape: Collective, chunk_bytes: int) -> Iterator[SymmetricSchedule]:
    network = request.network
    if shape.kind == "all_to_all":
        chunk, link, shift = all_to_all_sends(network, chunk_bytes, shape.share)
        op = bytes_of(np.full(len(chunk), COPY))
        columns = ints(chunk), ints(link), ints(shift), op
        yield SymmetricSchedule(network, shape, chunk_bytes, "symmetric", request.seed, *columns)
        return
    # If all links cost the same, strict or not makes no difference.
    once = len(np.unique(network.beta_s_per_byte)) == 1 or _looks(request, shape) > _MOST_LOOKS
    for strict in (True,) if once else (True, False):
        whole = SymmetricSchedule(
            network, shape, chunk_bytes, "symmetric", request.seed, *(ints([]),) * 3, bytes_of([])
        )
        opposite = _opposite(network)
        summed = spreading = _spreading(whole, network, strict)
        if opposite is None and shape.kind != "all_gather":
            summed = _spreading(whole, network.transposed(), strict)
        if shape.kind == "all_gather":
            yield spreading
        elif shape.kind == "reduce_scatter":
            yield _backwards(summed, whole, opposite)
        else:
            yield _one_after_the_other(_backwards(summed, whole, opposite), spreading)


def _spreading(whole: SymmetricSchedule, network: SymmetricNetwork, strict: bool) -> SymmetricSchedule:
    """An all_gather on ``network`` of the chunks of ``whole``."""
    shape = collective("all_gather", network.ranks, whole.share)
    chunk, link, shift = spread(network, whole.chunk_bytes, whole.share, strict=strict)
    if len(chunk) < len(network.cells) * whole.share * (network.ranks - 1):
        raise NotApplicableError(f"{network.name}: links do not lead from each rank to all others")
    return replace(
        whole,
        network=network,
        collective=shape,
        chunk=ints(chunk),
        link=ints(link),
        shift=ints(shift),
        op=bytes_of(np.full(len(chunk), COPY)),
    )


def _backwards(
    made: SymmetricSchedule, whole: SymmetricSchedule, opposite: Indices | None
) -> SymmetricSchedule:
    """The all_gather ``made`` backwards in time, over the ``opposite`` links.

    If ``opposite`` is None, ``made`` is one on the transposed network.
    """
    order = np.argsort(-replay(made.quotient).arrival_s, kind="stable")
    link, network = made.link[order], whole.network
    if opposite is None:
        shift = network.moved(made.shift[order], network.back(network.shift_of(network.dst))[link])
    else:
        shift = network.turned(link, made.shift[order])
        link = ints(opposite[link])
    return replace(
        whole,
        chunk=made.chunk[order],
        link=link,
        shift=ints(shift),
        op=bytes_of(np.full(len(order), REDUCE)),
    )


def _one_after_the_other(first: SymmetricSchedule, second: SymmetricSchedule) -> SymmetricSchedule:
    """The sends of both; each resource carries those of ``first`` before those of ``second``."""
    return replace(
        first,
        chunk=np.concatenate([first.chunk, second.chunk]),
        link=np.concatenate([first.link, second.link]),
        shift=np.concatenate([first.shift, second.shift]),
        op=np.concatenate([first.op, second.op]),
    )


def _opposite(network: SymmetricNetwork) -> Indices | None:
    """For each orbit of links the orbit of the reversed links; None if some have none of the same cost.

    A link and its reversed link must have equally many ports, which pair up one to one in reverse order.
    """
    turned = network.transposed()
    here, there = (
        np.lexsort((one.beta_s_per_byte, one.alpha_s, one.dst, one.src)) for one in (network, turned)
    )
    for name in ("src", "dst", "alpha_s", "beta_s_per_byte"):
        if not np.array_equal(getattr(network, name)[here], getattr(turned, name)[there]):
            return None
    found = np.empty(len(here), np.int64)
    found[there] = here
    counts = np.diff(network.link_port_start)
    if not np.array_equal(counts, counts[found]):
        return None
    first = network.link_port.astype(np.int64)
    rising = spans(np.zeros_like(counts), counts)
    second = network.link_port[np.repeat(network.link_port_start[1:][found] - 1, counts) - rising]
    pairs = len(np.unique(first * max(1, len(network.ports)) + second))
    return found if pairs == len(np.unique(first)) == len(np.unique(second)) else None
