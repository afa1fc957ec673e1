"""A pool whose workers are the other ranks of an MPI world; mpi4py.futures sends them their tasks.

The ranks are already running, and MPI spawns none. Each rank runs a task in a separate process. When rank 0
ends the pool, the rank kills this process and its solvers at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from exec.records import share_functions_of
from probes.base import SILENT, Progress, UnavailableError
from synth.portfolio import ProcessPool, WorkerPool, WorkerPools

__all__ = ["RankPool", "pools_of"]

# Rank 0's messages name functions of these two modules. A function of this module runs a task; functions of
# the other module are the work of tasks.
share_functions_of(__name__)
share_functions_of("synth.portfolio.size_sweep")

Task = TypeVar("Task")
Result = TypeVar("Result")

# Interval at which a rank checks whether its task is still needed.
_CHECK_S = 0.05


@contextmanager
def pools_of(comm: Any, progress: Progress = SILENT) -> Iterator[WorkerPools | None]:
    """Yield on rank 0 a function that makes pools of the other ranks; yield None on the other ranks.

    All ranks of ``comm`` call it. The other ranks run tasks until rank 0 leaves its block. If there is one
    rank, the workers are processes on its machine. Raises UnavailableError if MPI does not let two threads of
    a rank communicate.
    """
    if comm.Get_size() == 1:
        yield ProcessPool
        return
    from mpi4py import MPI
    from mpi4py.futures import MPICommExecutor

    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise UnavailableError("this MPI lets only one thread of a rank communicate, and synth needs two")
    # Messages about ended pools must not mix with mpi4py's messages.
    ends = comm.Dup()
    if comm.Get_rank() == 0:
        # The type stub of mpi4py allows None, which rank 0 never gets.
        executor: Any
        with MPICommExecutor(comm, root=0) as executor:
            try:
                yield _RankPools(executor, ends)
            finally:
                _tell(ends, _LAST)
    else:
        worker = _Worker(ends, progress)
        _workers.append(worker)
        with MPICommExecutor(comm, root=0):
            pass  # entering it runs tasks until rank 0 has no more
        _workers.remove(worker)
        worker.close()
        yield None
    ends.Free()


# Sent instead of a pool's number when no more pools follow.
_LAST = -1


def _tell(ends: Any, number: int) -> None:
    """Send all other ranks the message that pool ``number`` has ended."""
    for rank in range(1, ends.Get_size()):
        ends.send(number, rank)


@dataclass(frozen=True)
class _Done(Generic[Result]):
    """The result of a task on ``rank``, and its process's peak memory; not ``whole`` if it was cut off."""

    rank: int
    held_bytes: int
    whole: bool = False
    result: Result | None = None


class _Worker:
    """Runner of rank 0's tasks on another rank, with a separate process for each pool."""

    def __init__(self, ends: Any, progress: Progress) -> None:
        self._ends, self._progress = ends, progress
        self._rank = ends.Get_rank()
        self._ended = self._number = -1
        self._pool: ProcessPool[Any, Any] | None = None

    def do(self, number: int, work: Callable[[Any], Any], task: Any) -> _Done[Any]:
        """Return the result of ``work(task)``, unless pool ``number`` ends before."""
        if self._has_ended(number):
            return _Done(self._rank, 0)
        if number != self._number or self._pool is None:
            self._leave()
            self._number, self._pool = number, ProcessPool(1, work)
        self._progress.update(0.0, 1.0, "an attempt")
        try:
            return self._done(self._pool, task)
        except Exception:
            # The process of the pool may have died.
            self._leave()
            raise
        finally:
            self._progress.update(0.0, 1.0, "waiting for an attempt")

    def _done(self, pool: ProcessPool[Any, Any], task: Any) -> _Done[Any]:
        ticket = pool.submit(task)
        while ticket not in pool.finished:
            pool.wait(time.perf_counter() + _CHECK_S)
            if ticket not in pool.finished and self._has_ended(self._number):
                held_bytes = pool.held_bytes()
                self._leave()
                return _Done(self._rank, held_bytes)
        return _Done(self._rank, pool.held_bytes(), True, pool.finished.pop(ticket))

    def close(self) -> None:
        """End the process, and receive all remaining messages of rank 0."""
        self._leave()
        while self._ends.recv(None, 0) != _LAST:
            pass  # a pool ended while this rank had no task of it

    def _has_ended(self, number: int) -> bool:
        """Return whether pool ``number`` has ended; pools end in the order of their numbers."""
        while self._ends.Iprobe(0):
            self._ended = self._ends.recv(None, 0)
        return number <= self._ended

    def _leave(self) -> None:
        """End the process, if there is one, and the solvers below it."""
        if self._pool is not None:
            self._pool.__exit__(None, None, None)
        self._pool = None


# The worker of this rank, for the function that mpi4py calls.
_workers: list[_Worker] = []


def _do(number: int, work: Callable[[Any], Any], task: Any) -> _Done[Any]:
    return _workers[-1].do(number, work, task)


class _RankPools:
    """Maker of the pools of a world, one after another."""

    def __init__(self, executor: Executor, ends: Any) -> None:
        self._executor, self._ends = executor, ends
        self._numbers = count()

    def __call__(self, jobs: int, work: Callable[[Task], Result]) -> WorkerPool[Task, Result]:
        """Return a pool of all other ranks; ``jobs`` is their number."""
        return RankPool(self._executor, self._ends, next(self._numbers), work)


class RankPool(Generic[Task, Result]):
    """The pool ``number`` of a world: its tasks go to any free rank."""

    def __init__(self, executor: Executor, ends: Any, number: int, work: Callable[[Task], Result]) -> None:
        self._executor, self._ends, self._number, self._work = executor, ends, number, work
        self._futures: dict[int, Future[_Done[Result]]] = {}
        self._count = 0
        self._held_bytes: dict[int, int] = {}
        self.finished: dict[int, Result] = {}
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        begun = [future for future in self._futures.values() if not future.cancel()]
        _tell(self._ends, self._number)
        for future in wait(begun).done:
            if future.exception() is None:
                self._account(future.result())
        self._futures.clear()
        self.peak_bytes = sum(self._held_bytes.values())

    def submit(self, task: Task) -> int:
        self._futures[self._count] = self._executor.submit(_do, self._number, self._work, task)
        self._count += 1
        return self._count - 1

    def withdraw(self, number: int) -> None:
        if number in self._futures and self._futures[number].cancel():
            del self._futures[number]

    def wait(self, until_s: float = float("inf")) -> None:
        left_s = None if until_s == float("inf") else max(0.0, until_s - time.perf_counter())
        wait(self._futures.values(), left_s, FIRST_COMPLETED)
        for number in [number for number, future in self._futures.items() if future.done()]:
            done = self._futures.pop(number).result()
            self._account(done)
            if done.whole:
                self.finished[number] = done.result  # type: ignore[assignment]  # whole: it has one

    def _account(self, done: _Done[Result]) -> None:
        held_bytes = max(done.held_bytes, self._held_bytes.get(done.rank, 0))
        self._held_bytes[done.rank] = held_bytes
