"""A pool of processes that work in parallel, and end with the ``with`` block that started them.

Forkserver or spawn starts the workers, so they copy neither threads nor compiled loops of this process. A
worker ignores Ctrl-C, which is meant for the parent process. A worker, and the solvers that it started, end
when its parent ends, for whatever reason.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from probes.base import UnavailableError
from synth.portfolio.memory_limits import peak_of

__all__ = ["ProcessPool", "WorkerPool", "WorkerPools", "cores"]

# The longest path, in bytes, of a folder for temporary files that the forkserver can use. Its socket lies
# there, and a socket's path has 107 bytes at most.
_LONGEST_FOLDER = 70

Task = TypeVar("Task")
Result = TypeVar("Result")
Asked = TypeVar("Asked", contravariant=True)


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))


class WorkerPool(Protocol[Asked, Result]):
    """Workers that do tasks in the order of submission until the ``with`` block ends.

    ``finished`` holds results by number. After the block, ``peak_bytes`` is the sum of the workers' peak
    memory.
    """

    finished: dict[int, Result]
    peak_bytes: int

    def submit(self, task: Asked) -> int:
        """Queue ``task``; return the number of its result in ``finished``."""

    def withdraw(self, number: int) -> None:
        """Cancel task ``number`` unless a worker has started it."""

    def wait(self, until_s: float = float("inf")) -> None:
        """Wait until another task finishes, no task is left, or ``time.perf_counter`` reaches ``until_s``.

        Raises what a task raised, and UnavailableError if a worker has died.
        """

    def __enter__(self) -> Self:
        """Return the pool itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the workers."""


class WorkerPools(Protocol):
    """A factory of pools, as `ProcessPool` is; another one may put the workers on other hosts."""

    def __call__(self, jobs: int, work: Callable[[Task], Result]) -> WorkerPool[Task, Result]:
        """Return a pool of ``jobs`` workers that do ``work(task)``; work, tasks and results must pickle."""


class ProcessPool(Generic[Task, Result]):
    """A pool of at most ``jobs`` processes of this machine."""

    def __init__(self, jobs: int, work: Callable[[Task], Result]) -> None:
        self._jobs, self._work = jobs, work
        self._context = _context()
        self._workers: dict[Connection, Any] = {}
        self._idle: list[Connection] = []
        self._queue: list[tuple[int, Task]] = []
        self._count = 0
        self.finished: dict[int, Result] = {}
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.peak_bytes += self.held_bytes()
        for pipe, process in self._workers.items():
            _end(process)
            pipe.close()
        self._workers.clear()

    def held_bytes(self) -> int:
        """Return the sum of the peak memory of all live workers."""
        return sum(peak_of(process.pid) for process in self._workers.values())

    def submit(self, task: Task) -> int:
        self._queue.append((self._count, task))
        self._count += 1
        self._hand_out()
        return self._count - 1

    def withdraw(self, number: int) -> None:
        self._queue = [(one, task) for one, task in self._queue if one != number]

    def wait(self, until_s: float = float("inf")) -> None:
        busy = [pipe for pipe in self._workers if pipe not in self._idle]
        left_s = None if until_s == float("inf") else max(0.0, until_s - time.perf_counter())
        for pipe in wait(busy, left_s) if busy else ():
            assert isinstance(pipe, Connection)
            self._take(pipe)
        self._hand_out()

    def _take(self, pipe: Connection) -> None:
        with _worker_at_work():
            number, result, error = pipe.recv()
        if error is not None:
            raise error
        self.finished[number] = result
        self._idle.append(pipe)

    def _hand_out(self) -> None:
        while self._queue and (self._idle or len(self._workers) < self._jobs):
            pipe = self._idle.pop() if self._idle else self._start()
            with _worker_at_work():
                pipe.send(self._queue.pop(0))

    def _start(self) -> Connection:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._work), daemon=False)
        if isinstance(self._context, ForkServerContext):
            _start_server()
        process.start()
        theirs.close()
        self._workers[ours] = process
        return ours


@contextmanager
def _worker_at_work() -> Iterator[None]:
    """Raise UnavailableError if the block finds a worker's pipe closed: its process has ended."""
    try:
        yield
    except (EOFError, OSError) as lost:
        raise UnavailableError(
            f"a worker of synth on {socket.gethostname()} ended before its work was done",
            hint="Out of memory? Fewer workers take less.",
        ) from lost


def _context() -> ForkServerContext | SpawnContext:
    if len(os.fsencode(tempfile.gettempdir())) > _LONGEST_FOLDER:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["synth.portfolio.plain"])
    return context


def _start_server() -> None:
    """Start the forkserver, if there is none yet, with Ctrl-C blocked.

    The server ignores Ctrl-C only after it has loaded its modules; until then it would print a traceback. It
    inherits the signals blocked here. This process receives a Ctrl-C once they are unblocked again.
    """
    # Start the tracker first: its start unblocks signals at the end.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, work: Callable[[Any], Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow, daemon=True).start()
    while True:
        try:
            number, task = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer: tuple[int, Any, Exception | None] = (number, work(task), None)
        except Exception as error:
            answer = (number, None, error)
        try:
            pipe.send(answer)
        except OSError:
            return


def _follow() -> None:
    """End this process and its children as soon as its parent has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    _end_below(os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)


def _end(process: Any) -> None:
    _end_below(process.pid)
    process.kill()
    process.join()


def _end_below(pid: int) -> None:
    import psutil

    with suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
