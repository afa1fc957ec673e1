"""Collectives under way: the works for which callers wait, and the thread that runs them in order."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import DistBackendError, Work

from exec.training.backend.planned_collectives import BrokenGroupError

__all__ = ["QueuedWork", "WorkQueue"]


class QueuedWork(Work):  # type: ignore[misc]  # torch is not there for mypy
    """A requested collective.

    ``run`` performs it and returns None, or starts it in another group and returns that group's work. Waiting
    raises DistBackendError on failure; ``explain`` turns the reason into its message.
    """

    def __init__(
        self, run: Callable[[], Any], result: list[Any], explain: Callable[[str], str] = str
    ) -> None:
        super().__init__()
        self.run, self._result, self._explain = run, result, explain
        self.began_s: float | None = None
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._raw = torch.futures.Future()
        # If an exception were set on the future, C++ code would take it for the future's value. C++ code does
        # see the failure of a future whose callback raised.
        self._future = self._raw.then(self._checked)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the collective is done; raises DistBackendError on failure or after ``timeout``."""
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
        """Wait, and return the tensors that hold the result."""
        self.wait()
        return self._result

    def get_future(self) -> Any:
        """Return a future whose value is ``result``."""
        return self._future

    getFuture = get_future  # noqa: N815 - what PyTorch's C++ calls it

    def finish(self, error: BaseException | None = None) -> None:
        """Complete the work and release all waiting calls."""
        del self.run
        self._error = None if error is None else _as_torch_error(error, self._explain)
        del self._explain
        self._done.set()
        self._raw.set_result(self._result)

    def follow(self, end: Callable[[], Any]) -> None:
        """Call ``end`` and finish with its outcome."""
        try:
            end()
        except Exception as error:  # Any error: it is raised to the callers that wait for this work.
            self.finish(error)
        else:
            self.finish()

    def attend(self) -> None:
        """Wait until the collective is done, and ignore its error."""
        self._done.wait()

    def _checked(self, future: Any) -> list[Any]:
        if self._error is not None:
            raise self._error
        return self._result


class WorkQueue:
    """Works in their order of arrival, run on a separate thread.

    After a BrokenGroupError every work fails. Any other error, such as an argument that gloo refuses, affects
    its own work only.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: queue.SimpleQueue[QueuedWork | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._elsewhere: list[QueuedWork] = []
        self.error: BaseException | None = None

    def put(self, work: QueuedWork) -> QueuedWork:
        """Queue ``work`` behind all earlier ones."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread.start()
        self._waiting.put(work)
        return work

    def settle(self) -> None:
        """Wait for the works that other groups run; to be called on the queue's thread."""
        for work in tuple(self._elsewhere):
            work.attend()
        self._elsewhere.clear()

    def close(self, limit_s: float) -> None:
        """Let the thread finish the queued works and end; wait at most ``limit_s`` for it."""
        self._waiting.put(None)
        if self._thread is not None:
            self._thread.join(limit_s)

    def _serve(self) -> None:
        work: QueuedWork | None
        while (work := self._waiting.get()) is not None:
            if self.error is None:
                work.began_s = time.monotonic()
                self._carry_out(work)
            else:
                work.finish(self.error)
            self._elsewhere = [each for each in self._elsewhere if not each.is_completed()]
            # A reference held until the next work would keep the process group alive.
            work = None
        self.settle()

    def _carry_out(self, work: QueuedWork) -> None:
        try:
            inner = work.run()
        except Exception as error:  # The thread must go on: works behind this one must end as well.
            if isinstance(error, BrokenGroupError):
                self.error = error
            work.finish(error)
            return
        if inner is None:
            work.finish()
            return
        try:
            future = inner.get_future()
        except RuntimeError:
            # Gloo's reduce_scatter has no future.
            work.follow(inner.wait)
            return
        self._elsewhere.append(work)
        future.then(lambda done: work.follow(done.value))


def _as_torch_error(error: BaseException, explain: Callable[[str], str]) -> BaseException:
    """Return the error as PyTorch's DistBackendError, which scripts expect of a failed backend."""
    found: BaseException = DistBackendError(f"ccctl: {explain(str(error))}")
    found.__cause__ = error
    return found
