"""Collectives under way: what a caller waits for, and the thread that carries them out in order."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import DistBackendError, Work

__all__ = ["QueuedWork", "WorkQueue"]

_LOOK_S = 0.5


class QueuedWork(Work):  # type: ignore[misc]  # torch is not there for mypy
    """A collective that was asked for; ``run`` carries it out, or gives the work of another group that does.

    Who waits raises DistBackendError where it cannot be done.
    """

    def __init__(self, run: Callable[[], Any], result: list[Any], limit_s: float) -> None:
        super().__init__()
        self.run, self.limit_s, self._result = run, limit_s, result
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._raw = torch.futures.Future()
        # A future that is told an exception has it as its value for those who read it in C++; one whose
        # callback raises has failed for them, too.
        self._future = self._raw.then(self._checked)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return once it is done; raises DistBackendError where it failed or after ``timeout``."""
        limit_s = timeout.total_seconds() if timeout is not None and timeout > timedelta(0) else None
        if not self._done.wait(limit_s):
            raise DistBackendError(f"ccctl: a collective is not done after {limit_s} s")
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._done.is_set()

    def is_success(self) -> bool:
        return self._done.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> list[Any]:
        """The tensors that hold the result, waited for."""
        self.wait()
        return self._result

    def get_future(self) -> Any:
        """A future whose value is ``result``."""
        return self._future

    getFuture = get_future  # noqa: N815 - what PyTorch's C++ calls it

    def finish(self, error: BaseException | None = None) -> None:
        """Let all who wait go on."""
        del self.run
        self._error = error
        self._done.set()
        self._raw.set_result(self._result)

    def follow(self, end: Callable[[], Any]) -> None:
        """Finish as ``end`` does."""
        try:
            end()
        except Exception as error:  # Whatever it is, whoever waits for this work raises it.
            self.finish(error)
        else:
            self.finish()

    def attend(self) -> None:
        """Wait until it is done, however it ends."""
        self._done.wait()

    def _checked(self, future: Any) -> list[Any]:
        if self._error is not None:
            raise self._error
        return self._result


class WorkQueue:
    """Works in the order in which they were put in, carried out on a thread of their own.

    ``stop(why)`` is called where the work that is at it takes longer than its limit. After a failure every
    work fails.
    """

    def __init__(self, name: str, stop: Callable[[str], None]) -> None:
        self._name, self._stop = name, stop
        self._waiting: queue.SimpleQueue[QueuedWork | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._elsewhere: list[QueuedWork] = []
        self._at_work: tuple[QueuedWork, float] | None = None
        self._closed = threading.Event()
        self.error: BaseException | None = None

    def put(self, work: QueuedWork) -> QueuedWork:
        """Have ``work`` carried out after all before it."""
        if not self._threads:
            with self._lock:
                self._begin()
        self._waiting.put(work)
        return work

    def settle(self) -> None:
        """Wait for what other groups were given to do; on the queue's thread."""
        for work in tuple(self._elsewhere):
            work.attend()
        self._elsewhere.clear()

    def close(self, limit_s: float) -> None:
        """Carry out what was put in, for ``limit_s`` at most, and end."""
        self._waiting.put(None)
        if self._threads:
            self._threads[0].join(limit_s)
        self._closed.set()

    def _begin(self) -> None:
        if self._threads:
            return
        self._threads = [
            threading.Thread(target=run, name=f"{self._name} {run.__name__}", daemon=True)
            for run in (self._serve, self._watch)
        ]
        for thread in self._threads:
            thread.start()

    def _serve(self) -> None:
        work: QueuedWork | None
        while (work := self._waiting.get()) is not None:
            if self.error is None:
                self._at_work = (work, time.monotonic())
                self._carry_out(work)
                self._at_work = None
            else:
                work.finish(self.error)
            self._elsewhere = [one for one in self._elsewhere if not one.is_completed()]
            # Until the next one it would keep the process group alive.
            work = None
        self.settle()

    def _carry_out(self, work: QueuedWork) -> None:
        try:
            inner = work.run()
        except Exception as error:  # The thread must go on: works behind this one must end as well.
            self.error = _as_torch_error(error)
            work.finish(self.error)
            return
        if inner is None:
            work.finish()
            return
        try:
            future = inner.get_future()
        except RuntimeError:
            # Gloo's reduce_scatter has none.
            work.follow(inner.wait)
            return
        self._elsewhere.append(work)
        future.then(lambda done: work.follow(done.value))

    def _watch(self) -> None:
        """Break off what takes too long."""
        while not self._closed.wait(_LOOK_S):
            at_work = self._at_work
            if at_work is not None and time.monotonic() - at_work[1] > at_work[0].limit_s:
                self._stop(f"a collective is not done after {at_work[0].limit_s:g} s")


def _as_torch_error(error: Exception) -> Exception:
    """What PyTorch's users expect of a backend that fails."""
    found: Exception = DistBackendError(f"ccctl: {error}")
    found.__cause__ = error
    return found
