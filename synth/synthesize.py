"""The registry of methods, and the portfolio that keeps the best schedule by simulated time.

Every schedule is judged by ``synth.check`` before it leaves here, and comes with its bounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from probes.errors import UsageError
from probes.progress import SILENT, Progress
from synth.bounds import bounds
from synth.check import check
from synth.collective import Collective, Kind, collective
from synth.errors import NotApplicableError
from synth.methods import forest, greedy, ring, tree
from synth.network import Network
from synth.schedule import Bound, Outcome, Schedule
from synth.simulate import replay

__all__ = ["KINDS", "METHODS", "Attempt", "Request", "Synthesis", "synthesize", "warm"]

KINDS: tuple[Kind, ...] = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce")
_SMALLEST_CHUNK_BYTES = 4096
# Every send costs its ranks some time that no alpha holds, so more of them must be worth it.
_FINER_MUST_GAIN = 0.005


@dataclass(frozen=True)
class Method:
    """One way to make a schedule, and how finely it is worth cutting the buffer for it.

    Chunks grow by ``step`` from one an owner while a chunk is at least 4 KiB and there are at most
    ``most_sends`` deliveries.
    """

    synthesize: Callable[..., Schedule]
    most_sends: int = 50_000
    step: int = 2


METHODS: dict[str, Method] = {
    "ring": Method(ring.synthesize),
    "tree": Method(tree.synthesize),
    "greedy": Method(greedy.synthesize),
    "forest": Method(forest.synthesize, most_sends=1_100_000, step=4),
}


@dataclass(frozen=True)
class Request:
    """What to synthesize: either ``size_bytes`` (chunks are chosen), or ``chunk_bytes`` and ``chunks``.

    ``size_bytes`` is nccl-tests' size; ``chunks`` is how many chunks each rank starts with. After
    ``time_limit_s`` the best so far is taken; the attempt that runs is finished first.
    """

    network: Network
    kind: Kind
    size_bytes: int | None = None
    chunk_bytes: int | None = None
    chunks: int | None = None
    root: int = 0
    method: str = "auto"
    seed: int = 0
    time_limit_s: float | None = None


@dataclass(frozen=True)
class Attempt:
    """One schedule that was tried, or why it could not be."""

    method: str
    chunks: int
    time_s: float | None
    reason: str = ""


@dataclass(frozen=True)
class Synthesis:
    """The best schedule, proven and bounded, and everything that was tried.

    ``synthesis_s`` is what the search took, ``proof_s`` what the bounds and the judge took.
    """

    schedule: Schedule
    attempts: tuple[Attempt, ...]
    synthesis_s: float
    proof_s: float


def synthesize(request: Request, progress: Progress = SILENT) -> Synthesis:
    """The best schedule that the requested method, or every method, finds.

    Raises UsageError where nothing applies, and RuntimeError if the judge refuses the winner, which
    would be a bug.
    """
    begun_s = time.perf_counter()
    proven = _bounds(request)
    bounded_s = time.perf_counter()
    target_s = max(bound.time_s for bound in proven)
    plans = list(_plans(request))
    best: Schedule | None = None
    best_s = float("inf")
    attempts: list[Attempt] = []
    for done, plan in enumerate(plans):
        progress.update(done, len(plans), plan.name)
        late = request.time_limit_s is not None and time.perf_counter() - begun_s > request.time_limit_s
        if best_s <= target_s * (1 + 1e-9) or (late and best is not None):
            break
        try:
            schedule = plan.run(request.network, request.seed + done)
        except NotApplicableError as error:
            attempts.append(Attempt(plan.name, plan.shape.chunks, None, error.message))
            continue
        time_s = replay(schedule).time_s
        attempts.append(Attempt(plan.name, plan.shape.chunks, time_s))
        finer = best is not None and schedule.sends > best.sends
        if time_s < best_s * (1 - (_FINER_MUST_GAIN if finer else 1e-12)):
            best, best_s = replace(schedule, seed=request.seed), time_s
    progress.update(len(plans), len(plans))
    if best is None:
        raise UsageError("\n".join(dict.fromkeys(attempt.reason for attempt in attempts)))
    found_s = time.perf_counter()
    schedule = _proven(best, proven)
    proof_s = bounded_s - begun_s + time.perf_counter() - found_s
    return Synthesis(schedule, tuple(attempts), found_s - bounded_s, proof_s)


def warm() -> None:
    """Compile the hot loops, or load them from the cache, on the smallest problem there is."""
    from synth.families import family

    pair = family("ring:2", [1e-6], [1e9])
    for kind in ("all_gather", "all_reduce"):
        check(greedy.synthesize(pair, collective(kind, 2), 1))
        check(forest.synthesize(pair, collective(kind, 2), 1))


def _proven(schedule: Schedule, proven: tuple[Bound, ...]) -> Schedule:
    timing = replay(schedule)
    findings = check(schedule, timing)
    if findings:
        raise RuntimeError(f"{schedule.method} made a wrong schedule: {findings[0]}")
    outcome = Outcome(timing.time_s, proven)
    status = "optimal" if outcome.percent_of_optimal > 100 * (1 - 1e-9) else "feasible"
    return replace(schedule, outcome=replace(outcome, status=status))


def _bounds(request: Request) -> tuple[Bound, ...]:
    if request.chunk_bytes is not None:
        shape = collective(request.kind, request.network.ranks, _chunks(request), request.root)
        return tuple(bounds(request.network, shape, request.chunk_bytes))
    shape, chunk_bytes = _shape(request, 1)
    return tuple(bounds(request.network, shape, chunk_bytes, fluid=True))


def _chunks(request: Request) -> int:
    """Chunks that each rank starts with, unless they are given: one for every owner."""
    if request.chunks is not None:
        return request.chunks
    return request.network.ranks if request.kind in ("all_reduce", "reduce_scatter") else 1


def _shape(request: Request, split: int) -> tuple[Collective, int]:
    """The collective with ``split`` chunks an owner, and the bytes of a chunk."""
    ranks = request.network.ranks
    per_rank = split * ranks if request.kind in ("reduce_scatter", "all_reduce") else split
    shape = collective(request.kind, ranks, per_rank, request.root)
    if request.size_bytes is None:
        raise UsageError("expected --size, or --chunk")
    return shape, max(1, -(-request.size_bytes // shape.chunks))


@dataclass(frozen=True)
class _Plan:
    """One attempt: a method with its options, on a collective cut into chunks of so many bytes."""

    name: str
    method: Method
    shape: Collective
    chunk_bytes: int
    options: dict[str, object]

    def run(self, network: Network, seed: int) -> Schedule:
        return self.method.synthesize(network, self.shape, self.chunk_bytes, seed=seed, **self.options)


def _plans(request: Request) -> Iterator[_Plan]:
    """Everything worth trying, cheap ones first."""
    names = list(METHODS) if request.method == "auto" else [request.method]
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        known = ", ".join(["auto", *METHODS])
        raise UsageError(f"--method {unknown[0]}: unknown method", hint=f"known: {known}")
    for name in names:
        method = METHODS[name]
        for shape, chunk_bytes in _shapes(request, method):
            variants: list[dict[str, object]] = [{}]
            if name == "greedy":
                tried = greedy.policies(request.network)[: _runs(shape)]
                variants = [{"policy": policy} for policy in tried]
            yield from (_Plan(name, method, shape, chunk_bytes, options) for options in variants)


def _runs(shape: Collective) -> int:
    """How many policies to try: all on small problems, one from 512 ranks on."""
    return max(1, min(len(greedy.POLICIES), 400_000 // (shape.chunks * shape.ranks)))


def _shapes(request: Request, method: Method) -> Iterator[tuple[Collective, int]]:
    if request.chunk_bytes is not None:
        shape = collective(request.kind, request.network.ranks, _chunks(request), request.root)
        yield shape, request.chunk_bytes
        return
    most = 1024 if request.kind in ("broadcast", "reduce") else 64
    split = 1
    while split <= most:
        shape, chunk_bytes = _shape(request, split)
        small = chunk_bytes < _SMALLEST_CHUNK_BYTES or shape.chunks * shape.ranks > method.most_sends
        if split > 1 and small:
            return
        yield shape, chunk_bytes
        split *= method.step
