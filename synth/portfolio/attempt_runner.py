"""Runs attempts one after another, or in parallel processes if that saves time.

Results are taken in the order of the plans, so the number of processes changes no decision.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import TracebackType
from typing import Self

from probes.base import UnavailableError
from synth.errors import NotApplicableError
from synth.portfolio.attempts import Plan, deliveries, plans
from synth.portfolio.request import Request
from synth.portfolio.worker_pool import ProcessPool, WorkerPool, WorkerPools
from synth.schedules import Schedule
from synth.simulation import replay

__all__ = ["Trial", "Trials"]

# Less work than this stays in this process, because a new process takes more than a second to start.
_WORTH_PROCESSES_S = 4.0
# Estimates are rough: once plans have taken this much processor time here, the others go to processes,
# whatever the estimate. Time that a busy machine spends on other work says nothing of the plans.
_SLOW_S = 2.0
# Under a time limit, plans that together take longer than this may run in processes, which can be killed.
_UNSTOPPABLE_S = 0.3
# A rough estimate of the work of a plan, for each arrival of a chunk at a rank.
_SECONDS_A_DELIVERY = 5e-6


@dataclass(frozen=True)
class Trial:
    """The result of a plan: a schedule and its time, or the reason why there is none."""

    schedule: Schedule | None
    time_s: float = float("inf")
    reason: str = ""


class Trials:
    """The results of the plans ``tried`` for ``request``, whose time limit counts from ``begun_s``.

    ``pools`` makes the workers. Leaving the ``with`` block ends the workers and sets ``peak_bytes``, the most
    memory that they held.
    """

    def __init__(
        self, request: Request, tried: Sequence[Plan], begun_s: float, pools: WorkerPools = ProcessPool
    ) -> None:
        self._request, self._tried, self._begun_s = request, tried, begun_s
        self._pools = pools
        self._worked_before_s = time.thread_time()
        self._pool: WorkerPool[tuple[int, float], Trial] | None = None
        self._tickets: dict[int, int] = {}
        self._found = False
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.__exit__(kind, error, trace)
            self.peak_bytes = self._pool.peak_bytes

    def skip(self, number: int) -> None:
        """Withdraw plan ``number``, whose result is not needed."""
        if self._pool is not None and number in self._tickets:
            self._pool.withdraw(self._tickets[number])

    def result(self, number: int) -> Trial | None:
        """Return the result of plan ``number``; None if time is up and another plan gave a schedule."""
        if self._pool is None and self._is_worth_processes(number):
            self._pool = self._pools(max(1, self._request.jobs), _PlanRunner(self._request))
            for later in range(number, len(self._tried)):
                if not self._tried[later].method.solves:
                    self._submit(later)
        trial = self._from_worker(number) if self._pool is not None else self._run_here(number)
        self._found = self._found or (trial is not None and trial.schedule is not None)
        if trial is not None and trial.schedule is not None:
            schedule = replace(trial.schedule, network=self._request.network)
            return replace(trial, schedule=schedule) if self._pool is not None else trial
        return trial

    def _is_worth_processes(self, number: int) -> bool:
        """Return whether to run this plan and those after it in processes."""
        request = self._request
        if number == 0 and request.chunk_bytes is not None and request.time_limit_s is None:
            # With fixed chunks the first plan often ends the search, and sending a large table between
            # processes takes long.
            return False
        if not request.jobs:
            return False
        rest = [one for one in range(number, len(self._tried)) if not self._tried[one].method.solves]
        rest_s = sum(self._estimates_s[one] for one in rest)
        if request.time_limit_s is not None and rest_s > _UNSTOPPABLE_S:
            return self._found or self._estimates_s[number] > request.time_limit_s
        slow = time.thread_time() - self._worked_before_s > _SLOW_S
        return request.jobs > 1 and len(rest) > 1 and (slow or rest_s > _WORTH_PROCESSES_S)

    @cached_property
    def _estimates_s(self) -> list[float]:
        return [deliveries(plan.shape) * _SECONDS_A_DELIVERY for plan in self._tried]

    @property
    def in_time(self) -> bool:
        """Whether the request still has time left."""
        return time.perf_counter() < self._deadline_s()

    def _deadline_s(self) -> float:
        limit_s = self._request.time_limit_s
        return float("inf") if limit_s is None else self._begun_s + limit_s

    def _submit(self, number: int) -> int:
        assert self._pool is not None
        self._tickets[number] = self._pool.submit((number, time.perf_counter() - self._begun_s))
        return self._tickets[number]

    def _run_here(self, number: int) -> Trial | None:
        if self._found and time.perf_counter() >= self._deadline_s():
            return None
        return _run(self._request, self._tried, number, time.perf_counter() - self._begun_s)

    def _from_worker(self, number: int) -> Trial | None:
        pool = self._pool
        assert pool is not None
        finished = pool.finished
        late = time.perf_counter() >= self._deadline_s()
        ticket = self._tickets.get(number)
        if ticket is None:
            if late and self._found:
                return None
            ticket = self._submit(number)
        while ticket not in finished:
            found = self._found or any(trial.schedule is not None for trial in finished.values())
            until_s = self._deadline_s() if found else float("inf")
            if time.perf_counter() >= until_s:
                return None
            pool.wait(until_s)
        return finished.pop(ticket)


@dataclass
class _PlanRunner:
    """The work of a process: it makes the request's plans once, then runs one plan a call."""

    request: Request
    tried: list[Plan] = field(default_factory=list)

    def __call__(self, task: tuple[int, float]) -> Trial:
        self.tried = self.tried or list(plans(self.request))
        return _run(self.request, self.tried, *task)


def _run(request: Request, tried: Sequence[Plan], number: int, taken_s: float) -> Trial:
    try:
        schedule = tried[number].run(request, taken_s, len(tried) - number)
    except (NotApplicableError, UnavailableError) as error:
        return Trial(None, reason=error.message)
    return Trial(schedule, replay(schedule).time_s)
