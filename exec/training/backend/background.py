"""Work beside a training job, in a separate process: searches for schedules, and compilation.

In the job's own process the work would hold Python's global lock, which the script needs. The separate
process has a lower priority than the job, and ends with it. After an order the process waits for the next
order of any group, because starting another process costs more than a second of CPU time, which the ranks
would lack.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from exec.adaptive import CollectiveCall
from exec.records import decode, encode
from probes.base import CcctlError, UnavailableError
from synth.network import Network
from synth.schedules import Schedule

__all__ = ["Background", "serve"]

_COMMAND = """
import sys
sys.path[:] = sys.argv[3:]
from exec.training.backend.background import serve
serve(*map(int, sys.argv[1:3]))
"""
# Niceness of the process; the job's is 0, which is a higher priority.
_NICE = 10
# Interval of the check that the job's process still exists.
_LOOK_S = 1.0
# An idle process waits this long for the next order. It holds some 200 MB, and the first orders of a job
# follow each other within seconds.
_IDLE_S = 30.0
# A process that takes longer to end once its connection is closed is killed.
_END_S = 5.0
# The element types for which any group of this process has already had the code compiled.
_COMPILED: set[str] = set()


@dataclass(frozen=True)
class _Search:
    """The order to return the best schedule found in ``budget_s`` seconds."""

    network: Network
    request: CollectiveCall
    budget_s: float


@dataclass(frozen=True)
class _Compile:
    """The order to compile the code that runs programs on elements of a type."""

    dtype: str


class _EndedError(UnavailableError):
    """A background process ended before it answered."""


class _Worker:
    """The background process, and the connection to it."""

    def __init__(self) -> None:
        self._connection, child_end = Pipe()
        with child_end:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND, str(os.getpid()), str(child_end.fileno()), *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[child_end.fileno()],
            )

    def ask(self, order: _Search | _Compile) -> object:
        """Return the answer to ``order``; raises EOFError or OSError if the process ends first."""
        self._connection.send_bytes(encode(order))
        return decode(self._connection.recv_bytes())

    def end(self) -> int:
        """Close the connection, which makes an idle process end, and return its exit status."""
        self._connection.close()
        try:
            return self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


# The process that waits for the next order of any group.
_IDLE: queue.Queue[_Worker] = queue.Queue(maxsize=1)


class Background:
    """Runner of one group's background work."""

    def __init__(self, budget_s: float) -> None:
        self._budget_s = budget_s
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        self._closed = False

    def search(self, network: Network, request: CollectiveCall) -> Schedule:
        """Return the best schedule found within the budget; raises the error of the search."""
        found = self._ask(_Search(network, request, self._budget_s))
        if isinstance(found, CcctlError):
            raise found
        assert isinstance(found, Schedule)
        return found

    def compile_for(self, dtype: str) -> None:
        """Compile the code for elements of a type, for this and later processes."""
        if dtype not in _COMPILED:
            self._ask(_Compile(dtype))
            _COMPILED.add(dtype)

    def close(self) -> None:
        """End the work under way, and accept no more."""
        with self._lock:
            self._closed = True
            if self._worker is not None:
                self._worker.process.kill()

    def _ask(self, order: _Search | _Compile) -> object:
        """Return a process's answer; raises UnavailableError if a new process ends first."""
        try:
            return self._ask_worker(_IDLE.get_nowait(), order)
        except (queue.Empty, _EndedError):
            # There is no idle process, or it has ended.
            return self._ask_worker(_Worker(), order)

    def _ask_worker(self, worker: _Worker, order: _Search | _Compile) -> object:
        with self._lock:
            if self._closed:
                worker.end()
                raise UnavailableError("the process group is closed")
            self._worker = worker
        try:
            answer = worker.ask(order)
        except (EOFError, OSError) as error:
            status = worker.end()
            raise _EndedError(f"the process that works beside the job ended with {status}") from error
        finally:
            with self._lock:
                self._worker = None
        try:
            _IDLE.put_nowait(worker)
        except queue.Full:
            worker.end()
        return answer


def serve(parent: int, fd: int) -> None:
    """Answer orders in the background process until none comes for a while."""
    os.nice(_NICE)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    # A job that ends normally closes the connection, which raises EOFError here.
    with Connection(fd) as connection, contextlib.suppress(EOFError):
        while connection.poll(_IDLE_S):
            connection.send_bytes(encode(_answer(decode(connection.recv_bytes()))))


def _answer(order: _Search | _Compile) -> object:
    if isinstance(order, _Compile):
        from exec.mpi import compile_for

        compile_for([order.dtype])
        return None
    from exec.adaptive import good_schedules

    network, request = order.network, order.request
    try:
        return good_schedules(network, [request], range(network.ranks), order.budget_s)[request]
    except CcctlError as error:
        return error


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGKILL)
