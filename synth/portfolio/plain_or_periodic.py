"""Plain or periodic: a periodic schedule if no plain one can be cut finely enough to fill its pipelines.

A plain schedule lists every send, so a limit of sends limits its chunks. A periodic schedule is tried first
if even the smallest chunk within that limit takes a notable part of the time to cross the network, or if more
chunks are requested. Plain ones then follow only if they could still be faster.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

import numpy as np

from probes.base import SILENT, Floats, Progress
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import distances_s
from synth.portfolio.attempts import METHODS, SMALLEST_CHUNK_BYTES, deliveries, plans
from synth.portfolio.incumbent import Attempt
from synth.portfolio.memory_limits import peak_bytes
from synth.portfolio.periodic import fastest_periodic, periodic_bounds, unserved
from synth.portfolio.plain import fastest_plain
from synth.portfolio.proof import proven_with
from synth.portfolio.request import Request
from synth.portfolio.synthesis import Synthesis
from synth.portfolio.worker_pool import ProcessPool, WorkerPools
from synth.schedules import Bound

__all__ = ["plain_or_periodic"]

# If filling a plain schedule's pipeline takes at least this share of the bound, a periodic one is tried.
_FILLS_SOON = 0.03


def plain_or_periodic(
    request: Request, progress: Progress = SILENT, pools: WorkerPools = ProcessPool
) -> Synthesis:
    """Return the best schedule: plain or periodic for the method "auto", periodic only for "periodic".

    Other methods give plain ones only, and so does "auto" if all sends must be listed or a prediction
    decides between schedules. Raises as `fastest_plain` and `fastest_periodic` do.
    """
    if request.method == "periodic":
        progress.update(0, 1, "periodic")
        return _asked_for(request)
    listed = request.listed or request.trees or request.decided_by_prediction
    if request.method != "auto" or listed or unserved(request) or not _is_capped(request):
        return fastest_plain(request, progress, pools=pools)
    begun_s = time.perf_counter()
    proven = periodic_bounds(request)
    least_s = max(bound.time_s for bound in proven)
    network, chunk_bytes = request.network, request.chunk_bytes or _finest_bytes(request)
    # Smaller chunks fill the pipeline sooner, but the alphas of the crossing remain.
    filling_s = _crossing_s(network, network.beta_s_per_byte * chunk_bytes)
    plain_s = least_s + _crossing_s(network, network.travel_s(chunk_bytes))
    bounded_s = time.perf_counter() - begun_s
    found = None
    if request.chunks is not None or filling_s >= _FILLS_SOON * least_s:
        progress.update(0, 1, "periodic")
        share = f"{100 * filling_s / least_s:.2g} %"
        why = f"{share} of the bound goes by until plain pipelines, cut as finely as can be, are full"
        if request.chunks is not None:
            why = f"a table of its sends would have at least {deliveries(request.shape()):.2g} rows"
        with suppress(NotApplicableError):
            found = _periodic(request, proven, why)
    if found is not None and _time_s(found) <= max(plain_s, (1 + _FILLS_SOON) * least_s):
        return replace(found, proof_s=found.proof_s + bounded_s)
    left_s = request.time_limit_s
    if left_s is not None:
        left_s = max(0.0, left_s - (time.perf_counter() - begun_s))
    plain = fastest_plain(replace(request, time_limit_s=left_s), progress, proven=proven, pools=pools)
    plain = replace(plain, proof_s=plain.proof_s + bounded_s)
    return plain if found is None else _faster(found, plain)


def _asked_for(request: Request) -> Synthesis:
    if reason := unserved(request):
        raise NotApplicableError(reason)
    begun_s = time.perf_counter()
    proven = periodic_bounds(request)
    bounded_s = time.perf_counter() - begun_s
    found = _periodic(request, proven, "asked for by name")
    return replace(found, proof_s=found.proof_s + bounded_s)


def _faster(periodic: Synthesis, plain: Synthesis) -> Synthesis:
    """Return the result whose schedule takes less time, with the attempts and times of both."""
    attempts = (*periodic.attempts, *plain.attempts)
    synthesis_s, proof_s = periodic.synthesis_s + plain.synthesis_s, periodic.proof_s + plain.proof_s
    if _time_s(plain) <= _time_s(periodic):
        return replace(plain, attempts=attempts, synthesis_s=synthesis_s, proof_s=proof_s)
    gained = _time_s(plain) / _time_s(periodic) - 1
    return replace(
        periodic,
        attempts=attempts,
        synthesis_s=synthesis_s,
        proof_s=proof_s,
        why=f"{100 * gained:.2g} % faster than {plain.listed.method}, the best plain one",
        peak_bytes=plain.peak_bytes,
        workers_bytes=plain.workers_bytes,
    )


def _time_s(found: Synthesis) -> float:
    outcome = found.schedule.outcome
    assert outcome is not None
    return outcome.time_s


def _periodic(request: Request, proven: tuple[Bound, ...], why: str) -> Synthesis:
    begun_s = time.perf_counter()
    found = fastest_periodic(request)
    found_s = time.perf_counter()
    made = proven_with(found, proven)
    proof_s = time.perf_counter() - found_s
    assert made.outcome is not None
    attempt = Attempt("periodic", made.chunks, made.outcome.time_s, "", made.sends)
    return Synthesis(made, (attempt,), found_s - begun_s, proof_s, why, peak_bytes())


def _is_capped(request: Request) -> bool:
    """Return whether the limit of sends keeps plain schedules from smaller chunks."""
    if request.chunk_bytes is not None:
        most = max(method.most_sends for method in METHODS.values())
        return deliveries(request.shape()) > most
    return _finest_bytes(request) >= 2 * SMALLEST_CHUNK_BYTES


def _finest_bytes(request: Request) -> int:
    """Return the bytes of the smallest chunk that plain methods are tried with."""
    return min(plan.chunk_bytes for plan in plans(request))


def _crossing_s(network: Network, cost_s: Floats) -> float:
    """Return the path cost between two ranks that are far apart, at most the network's diameter.

    ``cost_s`` has one value a link. The ranks are the farthest from rank 0 and the farthest from that one.
    """
    far = int(np.argmax(distances_s(network, cost_s, np.array([0]))[0]))
    return float(distances_s(network, cost_s, np.array([far]))[0].max())
