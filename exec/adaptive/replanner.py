"""Schedules beside the job: planned in a process of their own, which the job does not wait for."""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exec.adaptive.messages import Request
from exec.relays.late_bases import PIECES
from exec.replan import replanned
from probes.errors import UsageError
from synth.network import Network
from synth.portfolio.collective_request import CollectiveRequest
from synth.schedule import Schedule
from synth.stages import synthesize

__all__ = ["Replanned", "Replanner", "first_schedules", "good_schedules"]

# What is less faster is not worth new contexts, and measurements have noise.
_LEAST_GAIN = 1.03
# Bytes of the largest element.
_ELEMENT_BYTES = 8


@dataclass(frozen=True, eq=False)
class Replanned:
    """What a search found: schedules that are faster than those in use, ``gain`` times; none if empty."""

    schedules: Mapping[Request, Schedule]
    gain: float


def first_schedules(
    network: Network, requests: Sequence[Request], members: Sequence[int]
) -> dict[Request, Schedule]:
    """A schedule for each request at once: a ring (Patarasuk 2009), or greedy where links lack for one.

    An all_to_all is sent directly, or by paths where links lack. ``members`` are the numbers of the
    network's ranks in requests. These are what a job goes on with at a moment's notice, until a synthesis
    finds better ones.
    """
    return {request: _first(network, request, members) for request in requests}


def _first(network: Network, request: Request, members: Sequence[int]) -> Schedule:
    quick, otherwise = ("direct", "paths") if request.kind == "all_to_all" else ("ring", "greedy")
    try:
        return _synthesized(network, request, members, method=quick)
    except UsageError:
        return _synthesized(network, request, members, method=otherwise)


def good_schedules(
    network: Network, requests: Sequence[Request], members: Sequence[int], budget_s: float
) -> dict[Request, Schedule]:
    """The best schedule for each request that ``budget_s`` seconds find."""
    return {
        request: _synthesized(network, request, members, budget_s / len(requests)) for request in requests
    }


class Replanner:
    """One process at a time that looks for better schedules; ``found`` is called with them on a thread."""

    def __init__(self, found: Callable[[Replanned], None], budget_s: float) -> None:
        self._found, self._budget_s = found, budget_s
        self._thread: threading.Thread | None = None
        self._context = multiprocessing.get_context("spawn")
        self._process: Any = None

    @property
    def busy(self) -> bool:
        """Whether a search is under way."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, network: Network, now: Mapping[Request, Schedule]) -> None:
        """Look for schedules that are faster on ``network`` than those in use."""
        self._thread = threading.Thread(
            target=self._run, args=(network, dict(now)), name="replanner", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None and self._process.is_alive():
            self._process.kill()
            self._process.join(2)

    def _run(self, network: Network, now: dict[Request, Schedule]) -> None:
        near, far = self._context.Pipe(duplex=False)
        self._process = self._context.Process(
            target=_replan, args=(far, network, now, self._budget_s), daemon=True
        )
        self._process.start()
        far.close()
        try:
            found = near.recv()
        except EOFError:
            found = Replanned({}, 1.0)
        self._process.join(5)
        self._found(found)


def _replan(pipe: Any, network: Network, now: dict[Request, Schedule], budget_s: float) -> None:
    """In the process: every request anew, in the time that is left for it."""
    os.nice(10)
    better, gain = {}, 1.0
    for request, schedule in now.items():
        plan = replanned(
            schedule,
            network,
            least_gain=_LEAST_GAIN,
            size_bytes=_planned_bytes(network, request),
            time_limit_s=budget_s / len(now),
        )
        if plan.schedule is not None:
            better[request], gain = plan.schedule, max(gain, plan.gain)
    pipe.send(Replanned(better, gain))
    pipe.close()


def _planned_bytes(network: Network, request: Request) -> int:
    """The size that is planned for: a little more, so that it divides into what phases are cut into."""
    unit = math.lcm(network.ranks, 64) * PIECES * _ELEMENT_BYTES
    size_bytes = request.size_bytes(network.ranks)
    whole = -(-size_bytes // unit) * unit
    return whole if whole <= 2 * size_bytes else size_bytes


def _synthesized(
    network: Network,
    request: Request,
    members: Sequence[int],
    budget_s: float | None = None,
    method: str = "auto",
) -> Schedule:
    asked = CollectiveRequest(request.kind, members.index(request.root) if request.rooted else 0)
    size_bytes = _planned_bytes(network, request)
    return synthesize(network, asked, size_bytes, method=method, time_limit_s=budget_s).schedule
