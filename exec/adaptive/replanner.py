"""Search for new schedules beside the job, in a separate process that the job does not wait for."""

from __future__ import annotations

import contextlib
import math
import multiprocessing.connection
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from exec.adaptive.compiled_parts import CompiledPart, PartKey, late_parts, packed, whole_parts
from exec.adaptive.messages import CollectiveCall
from exec.replan import replanned
from exec.stragglers import PIECES
from probes.base import UsageError
from synth import Request as SynthesisRequest, synthesize
from synth.network import Network
from synth.portfolio import CollectiveRequest, uneven_request
from synth.schedules import Schedule
from synth.simulation import moved_to

__all__ = ["Replanned", "Replanner", "first_schedules", "good_schedules"]

# The least speed-up for which schedules are replaced: a smaller one may be noise of the measurement.
_LEAST_GAIN = 1.03
# Attempts at a search whose process dies.
_TRIES = 2
# Methods are started only in this share of the budget. The rest is for the last method to finish, and for
# predicting the times of the schedules found.
_SEARCHING = 0.6
# A search that takes this many times its budget is killed with its process.
_PATIENCE = 5
# Schedules remembered per request.
_KNOWN = 4
_COMMAND = """
import sys
sys.path[:] = sys.argv[3:]
from exec.adaptive.replanner import serve
serve(*map(int, sys.argv[1:3]))
"""
# Bytes of the largest element.
_ELEMENT_BYTES = 8


@dataclass(frozen=True, eq=False)
class Replanned:
    """The result of a search: schedules faster than those in use, and the factor for each.

    ``parts`` are the compiled and packed parts of all ranks. ``before_s`` is the time of the schedules in use
    on the network of the search.
    """

    schedules: Mapping[CollectiveCall, Schedule] = field(default_factory=dict)
    parts: bytes = b""
    gains: Mapping[CollectiveCall, float] = field(default_factory=dict)
    before_s: Mapping[CollectiveCall, float] = field(default_factory=dict)

    @property
    def gain(self) -> float:
        """The largest of ``gains``; 1.0 if nothing is faster."""
        return max(self.gains.values(), default=1.0)


def first_schedules(
    network: Network, requests: Sequence[CollectiveCall], members: Sequence[int]
) -> dict[CollectiveCall, Schedule]:
    """Return a quick schedule for each request: a ring (Patarasuk 2009), or greedy if there is no ring.

    An all_to_all is sent directly, or along paths where two ranks have no link. ``members[r]`` is the number
    that requests use for rank r of the network. A job uses these schedules until a synthesis finds better
    ones.
    """
    return {request: _first(network, request, members) for request in requests}


def _first(network: Network, request: CollectiveCall, members: Sequence[int]) -> Schedule:
    quick, otherwise = ("direct", "paths") if request.kind == "all_to_all" else ("ring", "greedy")
    try:
        return _synthesized(network, request, members, method=quick)
    except UsageError:
        return _synthesized(network, request, members, method=otherwise)


def good_schedules(
    network: Network, requests: Sequence[CollectiveCall], members: Sequence[int], budget_s: float
) -> dict[CollectiveCall, Schedule]:
    """Return the best schedule found for each request, in ``budget_s`` seconds for all together."""
    return {
        request: _synthesized(network, request, members, budget_s / len(requests)) for request in requests
    }


class Replanner:
    """One process that searches for better schedules, kept for search after search.

    ``found`` is called on a thread with the result of a search. A search returns its best result ``budget_s``
    seconds after the process has loaded its compiled loops. A process that dies is replaced. The process ends
    with its parent, even if the parent is killed.
    """

    def __init__(self, found: Callable[[Replanned], None], budget_s: float) -> None:
        self._found, self._budget_s = found, budget_s
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Any = None
        self._parts_pipe: Any = None
        self._asking, self._answered = threading.Lock(), threading.Lock()
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether a search is under way."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def pid(self) -> int | None:
        """The process that searches; None if there is none."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def warm(self, network: Network, now: Mapping[CollectiveCall, Schedule]) -> None:
        """Start the process if there is none, and warm it up by a search that is dropped; return at once."""
        with self._lock:
            if self._closed or self.pid is not None:
                return
            parent_end, child_end = multiprocessing.Pipe()
            parts_parent_end, parts_child_end = multiprocessing.Pipe()
            self._process = _started(child_end, parts_child_end)
            child_end.close()
            parts_child_end.close()
            self._pipe, self._parts_pipe = parent_end, parts_parent_end
            parent_end.send(_Search(network, dict(now), self._budget_s, wanted=False))

    def start(self, network: Network, now: Mapping[CollectiveCall, Schedule]) -> None:
        """Start a search for schedules that are faster on ``network`` than those in use."""
        search = _Search(network, dict(now), self._budget_s)
        self._thread = threading.Thread(target=self._run, args=(search,), name="replanner", daemon=True)
        self._thread.start()

    def compile_late(
        self, schedules: Mapping[CollectiveCall, Schedule], made: Callable[[bytes], None]
    ) -> None:
        """Compile the `late_parts` of ``schedules`` in the process; pass them packed to ``made`` on a thread.

        ``made`` gets b"" if there is no process, if it ends first, or if other parts are requested.
        """
        work = threading.Thread(target=self._compile_late, args=(schedules, made), daemon=True)
        work.start()

    def stop_compiling(self) -> None:
        """Make the process give up on late parts."""
        self.compile_late({}, lambda parts: None)

    def _compile_late(
        self, schedules: Mapping[CollectiveCall, Schedule], made: Callable[[bytes], None]
    ) -> None:
        pipe, parts = self._parts_pipe, b""
        with contextlib.suppress(OSError, EOFError):
            if pipe is not None:
                with self._asking:
                    pipe.send(dict(schedules))
                    # Answers come in the order of requests.
                    self._answered.acquire()
                try:
                    parts = pipe.recv_bytes()
                finally:
                    self._answered.release()
        made(parts)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._end()

    def _run(self, search: _Search) -> None:
        found = None
        for _ in range(_TRIES):
            try:
                self.warm(search.network, search.now)
                found = self._asked(search)
            except (OSError, EOFError):
                # A process closes its pipe a moment before it counts as dead.
                with self._lock:
                    self._end()
            if found is not None or self._closed:
                break
        self._found(found or Replanned())

    def _asked(self, search: _Search) -> Replanned:
        """Return the process's answer within the budget; raises EOFError or OSError if it dies."""
        best: Replanned = Replanned()
        pipe = self._pipe
        pipe.send(search)
        pipe.recv()  # the process has begun the search
        until_s = time.monotonic() + _PATIENCE * self._budget_s
        while pipe.poll(max(0.0, until_s - time.monotonic())):
            best, over = pipe.recv()
            if over:
                return best
        # A search inside compiled loops reads no messages, so the process is killed.
        with self._lock:
            self._end()
        return best

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2)


@dataclass(frozen=True, eq=False)
class _Search:
    """A search order for all requests in ``budget_s``; results are sent back if ``wanted``."""

    network: Network
    now: Mapping[CollectiveCall, Schedule]
    budget_s: float
    wanted: bool = True


def _started(*pipes: Any) -> subprocess.Popen[bytes]:
    """Start a process that serves ``pipes``; multiprocessing would run the caller's script again there."""
    ends = [pipe.fileno() for pipe in pipes]
    command = [sys.executable, "-P", "-c", _COMMAND, *map(str, ends), *sys.path]
    return subprocess.Popen(command, pass_fds=ends, stdin=subprocess.DEVNULL)


def serve(*ends: int) -> None:
    """Search until the other ends of two pipes are gone, and compile beside that; runs in the process.

    ``ends`` are the file descriptors of the pipes for searches and for late parts.
    """
    pipes: list[Any] = [multiprocessing.connection.Connection(end) for end in ends]
    pipe, parts_pipe = pipes
    os.nice(5)
    working = threading.Lock()
    threading.Thread(target=_compile, args=(parts_pipe, working), daemon=True).start()
    orders: queue.SimpleQueue[_Search] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, orders), daemon=True).start()
    known: dict[CollectiveCall, list[Schedule]] = {}
    while True:
        search = orders.get()
        if search.wanted:
            pipe.send(None)
        with working:
            for found, over in _replanned(search, known):
                if search.wanted:
                    pipe.send((found, over))


def _listen(pipe: Any, orders: queue.SimpleQueue[_Search]) -> None:
    """Queue search orders, and kill this process once the other end is gone; runs on its own thread."""
    with contextlib.suppress(OSError, EOFError):
        while True:
            orders.put(pipe.recv())
    os.kill(os.getpid(), signal.SIGKILL)


def _compile(pipe: Any, working: threading.Lock) -> None:
    """Compile late parts until other parts are requested; runs on its own thread.

    A search waits for one part at most, and no part takes the core from a search.
    """
    with contextlib.suppress(OSError, EOFError):
        while True:
            left, found = late_parts(pipe.recv()), dict[PartKey, CompiledPart]()
            while not pipe.poll():
                with working:
                    one = next(left, None)
                if one is None:
                    break
                found[one[0]] = one[1]
                # Let a waiting search go first.
                time.sleep(0.001)
            pipe.send_bytes(b"" if pipe.poll() else packed(found))


def _replanned(
    search: _Search, known: dict[CollectiveCall, list[Schedule]]
) -> Iterator[tuple[Replanned, bool]]:
    """Yield the better schedules so far after each request, and whether that was the last request.

    ``known`` are schedules of earlier searches: links that recover need their old schedules again.
    """
    better, gains, before_s = (
        dict[CollectiveCall, Schedule](),
        dict[CollectiveCall, float](),
        dict[CollectiveCall, float](),
    )
    for left, (request, schedule) in zip(range(len(search.now), 0, -1), search.now.items(), strict=True):
        others = _remember(known.setdefault(request, []), schedule)
        plan = replanned(
            schedule,
            search.network,
            least_gain=_LEAST_GAIN,
            size_bytes=_planned_bytes(search.network, request),
            others=[one for one in others if _fits(one, schedule)],
            time_limit_s=search.budget_s * _SEARCHING / len(search.now),
            jobs=0,
            quick=True,
        )
        before_s[request] = plan.before_s
        if plan.schedule is not None:
            chosen = moved_to(plan.schedule, search.network, plan.schedule.chunk_bytes)
            _remember(known[request], chosen)
            better[request], gains[request] = chosen, plan.gain
        yield Replanned(better, packed(whole_parts(better)), gains, before_s), left == 1


def _remember(known: list[Schedule], schedule: Schedule) -> list[Schedule]:
    """Put ``schedule`` among the last few known ones; return those that differ from it."""
    others = [one for one in known if not _alike(one, schedule)]
    known[:] = [*others, schedule][-_KNOWN:]
    return others


def _fits(one: Schedule, other: Schedule) -> bool:
    """Return whether both schedules have equal ranks and root, which change when members come and go."""
    return one.network.ranks == other.network.ranks and one.collective.root == other.collective.root


def _alike(one: Schedule, other: Schedule) -> bool:
    """Return whether both schedules send the same chunks over the same links, in one order."""
    return (
        one.network.ranks == other.network.ranks
        and one.chunk_bytes == other.chunk_bytes
        and np.array_equal(one.chunk, other.chunk)
        and np.array_equal(one.link, other.link)
    )


def _planned_bytes(network: Network, request: CollectiveCall) -> int:
    """Return the size to plan for: rounded up so that it divides into the pieces of phases."""
    unit = math.lcm(network.ranks, 64) * PIECES * _ELEMENT_BYTES
    size_bytes = request.size_bytes(network.ranks)
    whole = -(-size_bytes // unit) * unit
    return whole if whole <= 2 * size_bytes else size_bytes


def _synthesized(
    network: Network,
    request: CollectiveCall,
    members: Sequence[int],
    budget_s: float | None = None,
    method: str = "auto",
) -> Schedule:
    """Return the schedule whose program is predicted to be the fastest, with the ports that ranks share."""
    if request.blocks:
        return _uneven_synthesized(network, request, budget_s)
    collective = CollectiveRequest(request.kind, members.index(request.root) if request.rooted else 0)
    search = SynthesisRequest(
        network=network,
        kind=request.kind,
        collectives=(collective,),
        size_bytes=_planned_bytes(network, request),
        method=method,
        time_limit_s=budget_s,
        jobs=0,
        trees=True,
        predicted=True,
    )
    return synthesize(search).listed


def _uneven_synthesized(network: Network, request: CollectiveCall, budget_s: float | None) -> Schedule:
    sizes = [elements * request.item_bytes for elements in request.blocks]
    collective, size_bytes = uneven_request(request.kind, network.ranks, sizes)
    search = SynthesisRequest(
        network=network,
        kind="custom",
        collectives=(collective,),
        size_bytes=size_bytes,
        time_limit_s=budget_s,
        jobs=0,
        listed=True,
    )
    return synthesize(search).listed
