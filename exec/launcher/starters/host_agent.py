"""The process that starts the ranks of one host, reports how each ended, and kills ranks on order.

Start it as ``python -P -m exec.launcher.starters.host_agent``. Its stdin is a line of JSON, then lines ``kill
RANK`` or ``look RANK``, then ``done``. Its stdout has lines ``ended RANK STATUS``, and ``runs RANK`` in
answer to ``look`` if the rank is not stopped. If its stdin ends before ``done``, the command is gone: the
agent kills its ranks and removes the run's leftovers on this host.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

from exec.launcher import run_folders
from probes.files import temporary_folders

__all__ = ["HostAgent", "main"]

# POSIX's numbers; os.read and os.write bypass Python's buffers.
_STDIN, _STDOUT = 0, 1
# Longest time for ranks to end after the run is done.
_ENDING_S = 5.0


class HostAgent:
    """The ranks of one host."""

    def __init__(self, ask: dict[str, Any], received: bytes = b"") -> None:
        """Start the ranks that ``ask`` describes; ``received`` is the input that was read after ``ask``."""
        self._lock, self._patience_s = threading.Lock(), ask["patience_s"]
        self._running: dict[int, tuple[int, subprocess.Popen[bytes]]] = {}
        self._ended, self._told = threading.Event(), threading.Event()
        self._done, self._input = False, received
        for rank in range(ask["first"], ask["stop"]):
            process = subprocess.Popen(
                ask["program"],
                stdin=subprocess.DEVNULL,
                # Ranks print to this process's stderr, because its stdout is for reports.
                stdout=2,
                env={**os.environ, run_folders.RANK: str(rank)},
                start_new_session=True,
            )
            self._running[process.pid] = (rank, process)

    def serve(self) -> None:
        """Return when all ranks have ended and the command is done, gone or out of reach."""
        threading.Thread(target=self._obey, name="orders", daemon=True).start()
        while self._running:
            self._await_one()
        self._ended.set()
        self._told.wait(self._patience_s)

    @property
    def left_alone(self) -> bool:
        """Whether the command has gone without sending ``done``."""
        return self._told.is_set() and not self._done

    def _await_one(self) -> None:
        """Wait for the end of a rank; its process id is not reused while the rank may still be killed."""
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        if found is None:
            return
        with self._lock:
            rank, process = self._running.pop(found.si_pid)
            status = process.wait()
        _say(b"ended %d %d" % (rank, status))

    def _obey(self) -> None:
        while not self._done:
            *lines, self._input = self._input.split(b"\n")
            for line in lines:
                match line.split():
                    case [b"kill", rank]:
                        self._kill(int(rank))
                    case [b"look", rank]:
                        self._look(int(rank))
                    case [b"done"]:
                        self._done = True
            piece = b"" if self._done else os.read(_STDIN, 1 << 12)
            if not piece:
                break
            self._input += piece
        self._told.set()
        if not self._done or not self._ended.wait(_ENDING_S):
            self._kill()

    def _look(self, wanted: int) -> None:
        with self._lock:
            pids = [pid for pid, (rank, _) in self._running.items() if rank == wanted]
            # proc(5): the state follows the name, which is in parentheses and may hold any characters.
            states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids]
        if states and states[0] in "RSD":
            _say(b"runs %d" % wanted)

    def _kill(self, only: int | None = None) -> None:
        with self._lock:
            for pid, (rank, _) in self._running.items():
                if only in (None, rank):
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)


def _say(line: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(_STDOUT, line + b"\n")


def main() -> None:
    """Serve one command."""
    received = b""
    while b"\n" not in received:
        piece = os.read(_STDIN, 1 << 16)
        if not piece:
            return
        received += piece
    first, _, rest = received.partition(b"\n")
    ask = json.loads(first)
    os.environ.update(ask["environment"], **{run_folders.AGENT: str(os.getpid())})
    with contextlib.suppress(OSError):
        os.chdir(ask["folder"])
    # The folder is held until this process ends, so that nobody removes it as a leftover.
    scratch = Path(run_folders.scratch_directory())
    held = temporary_folders.hold(scratch)
    agent = HostAgent(ask, rest)
    agent.serve()
    if agent.left_alone:
        run_folders.remove(run_folders.run_directories())
    os.close(held)
    temporary_folders.sweep(run_folders.SCRATCH_PREFIX, scratch.parent)


if __name__ == "__main__":
    main()
