"""Work beside a training job, in a separate process: searches for schedules, and compilation.

In the job's own process the work would hold Python's global lock, which the script needs. The separate
process has a lower priority than the job, and ends with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from exec.adaptive import CollectiveCall
from exec.records import decode, encode
from probes.base import CcctlError, UnavailableError
from synth.network import Network
from synth.schedules import Schedule

__all__ = ["Background", "serve"]

_COMMAND = """
import sys
sys.path[:] = sys.argv[2:]
from exec.training.backend.background import serve
serve(int(sys.argv[1]))
"""
# Below the priority of the job, which is at 0.
_NICE = 10
# Interval of the check that the job's process still exists.
_LOOK_S = 1.0
# The types already compiled for by this process, for any group.
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


class Background:
    """Runner of one group's background work."""

    def __init__(self, budget_s: float) -> None:
        self._budget_s = budget_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def search(self, network: Network, request: CollectiveCall) -> Schedule:
        """Return the best schedule found within the budget; raises the error of the search."""
        found = self._asked(_Search(network, request, self._budget_s))
        if isinstance(found, CcctlError):
            raise found
        assert isinstance(found, Schedule)
        return found

    def compile_for(self, dtype: str) -> None:
        """Compile the code for elements of a type, for this and later processes."""
        if dtype not in _COMPILED:
            self._asked(_Compile(dtype))
            _COMPILED.add(dtype)

    def close(self) -> None:
        """End the work under way, and accept no more."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()

    def _asked(self, question: _Search | _Compile) -> object:
        """Return the answer of a new process; raises UnavailableError if it ends without one."""
        with self._lock:
            if self._closed:
                raise UnavailableError("the process group is closed")
            process = self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND, str(os.getpid()), *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        content, _ = process.communicate(encode(question))
        with self._lock:
            self._process = None
        if process.returncode:
            raise UnavailableError(f"the process that works beside the job ended with {process.returncode}")
        return decode(content)


def serve(parent: int) -> None:
    """Answer one order, in the background process."""
    os.nice(_NICE)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    answer = _answer(decode(sys.stdin.buffer.read()))
    sys.stdout.buffer.write(encode(answer))
    sys.stdout.buffer.flush()


def _answer(question: _Search | _Compile) -> object:
    if isinstance(question, _Compile):
        from exec.mpi import compile_for

        compile_for([question.dtype])
        return None
    from exec.adaptive import good_schedules

    network, request = question.network, question.request
    try:
        return good_schedules(network, [request], range(network.ranks), question.budget_s)[request]
    except CcctlError as error:
        return error


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGKILL)
