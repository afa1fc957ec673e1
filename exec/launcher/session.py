"""Starts a world of ranks with mpirun and makes sure that it ends: processes, files, shared memory."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from exec.launcher import mpirun, protocol
from exec.launcher.nodeset import HostSlots
from exec.launcher.ports import bind_to_loopback, refuse_connections
from exec.launcher.signals import deferred
from exec.launcher.watchdog import Limits, Watchdog
from exec.sockets.listeners import listen
from probes.files import temporary_folders
from probes.progress import Progress

if TYPE_CHECKING:
    import psutil

__all__ = ["StartedRanks"]

_log = logging.getLogger(__name__)

# Of what mpirun and the ranks have printed, the end is shown, of so many bytes at most.
_LAST_LINES, _LAST_BYTES = 12, 1 << 16
# Where MPI keeps its shared memory too; in an ordinary folder each message would reach a disk.
_MEMORY = Path("/dev/shm")
_SCRATCH_PREFIX = "ccctl-ranks-"
# Processes that were killed and are still there after so long wait for a device.
_ENDING_S = 10.0


class StartedRanks:
    """A world of ranks that runs one task: started on entry, wholly gone on exit."""

    def __init__(self, where: Sequence[HostSlots], job: protocol.JobForRanks) -> None:
        self._job = job
        self._where = tuple(where)
        self._watchdog: Watchdog | None = None
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> StartedRanks:
        with contextlib.ExitStack() as stack:
            launcher = mpirun.find()
            # Raised anywhere else than while the watchdog waits, a signal could leave something behind.
            deliver = stack.enter_context(deferred())
            folder = stack.enter_context(temporary_folders.folder(protocol.SESSION_PREFIX))
            shared = _MEMORY if _MEMORY.is_dir() else folder
            temporary_folders.sweep(_SCRATCH_PREFIX, shared)
            scratch = shared / f"{_SCRATCH_PREFIX}{secrets.token_hex(8)}"
            stack.callback(shutil.rmtree, scratch, ignore_errors=True)
            key = secrets.token_bytes(32)
            listeners = [
                stack.enter_context(one) for one in listen(folder, [entry.host for entry in self._where])
            ]
            ranks_here = max((entry.slots for entry in self._where), default=self._job.ranks)
            environment = mpirun.variables(ranks_here, str(folder), str(scratch), alone=not self._where)
            environment |= protocol.environment(self._addresses(listeners), key, str(scratch))
            self._output, self._scratch = folder / "output", str(scratch)
            self._process = self._start(launcher, environment)
            stack.callback(self._end)
            self._watchdog = Watchdog(
                listeners, key, self._job, self._process, self._output, self._stopped, self._shut, deliver
            )
            self._cleanup = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def result(self, progress: Progress, limits: Limits, keep: Callable[[Any], None]) -> Any:
        """The value of rank 0, once every rank has finished; ``keep`` is given the pieces before.

        What is raised has the last lines that mpirun printed as its notes.
        """
        assert self._watchdog is not None, "only inside the with block"
        try:
            value = self._watchdog.result(progress, limits, keep)
        except Exception as error:
            for line in self._last_output():
                error.add_note(line)
            raise
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        for line in self._last_output():
            _log.info(line)
        return value

    def _addresses(self, listeners: Sequence[socket.socket]) -> list[str]:
        """Where the ranks reach the listeners: the addresses of the loopback come last."""
        every: list[str] = []
        for listener in listeners:
            bound = listener.getsockname()
            if isinstance(bound, str):
                return [bound]
            host, port = bound
            every += [f"{address}:{port}" for address in (_own_addresses() if host == "0.0.0.0" else [host])]
        return every

    def _start(self, launcher: mpirun.Launcher, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-P", "-m", "exec.launcher.worker"]
        command = mpirun.command(launcher, self._job.ranks, self._where, program, self._output.parent)
        _log.info(f"starting: {' '.join(command)}")
        with self._output.open("wb") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def _shut(self, all_up: bool) -> None:
        """Let strangers reach nothing of a run on one host: nobody else connects to its launcher."""
        if self._where:
            return
        pid = self._process.pid
        if not all_up and not bind_to_loopback(pid):
            _log.info("mpirun listens on all interfaces, and the kernel does not let that be changed")
        if all_up and not refuse_connections(pid):
            _log.info("other users of this host can connect to mpirun: the kernel takes no filter")

    def _last_output(self) -> list[str]:
        """The last lines that mpirun, and the ranks through it, have printed."""
        with self._output.open("rb") as output:
            output.seek(max(0, output.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = output.read().decode(errors="replace").strip().splitlines()
        return [f"mpirun: {line}" for line in lines[-_LAST_LINES:]]

    def _end(self) -> None:
        """End what still runs: ranks live in sessions of their own, so mpirun's group is not enough."""
        complete = self._watchdog is not None and self._watchdog.complete
        if not complete:
            for process in self._processes():
                if process.pid != self._process.pid:
                    _kill(process)
            self._process.terminate()
        if self._watchdog is not None:
            self._watchdog.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        if not complete or self._process.poll() is None:
            self._kill_all()
        for segment in self._watchdog.segments_here() if self._watchdog is not None else ():
            Path(segment).unlink(missing_ok=True)

    def _kill_all(self) -> None:
        """Kill until nothing is left: what is killed may just have started another."""
        deadline_s = time.monotonic() + _ENDING_S
        while left := list(self._processes()):
            for process in left:
                _kill(process)
            if time.monotonic() > deadline_s:
                _log.warning(f"{len(left)} processes of the run were killed and do not end")
                return
            time.sleep(0.1)
            self._process.poll()

    def _stopped(self) -> str:
        import psutil

        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                if process.status() == psutil.STATUS_STOPPED:
                    variables = process.environ()
                    ranks = [variables[name] for name in protocol.RANK_VARIABLES if name in variables]
                    what = f"rank {ranks[0]}" if ranks else process.name()
                    return f"{what} (host {socket.gethostname()}, pid {process.pid})"
        return ""

    def _processes(self) -> Iterator[psutil.Process]:
        """Every process of this run on this host, known by the run's mark in its environment."""
        import psutil

        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(protocol.SCRATCH) == self._scratch:
                    yield process


def _own_addresses() -> list[str]:
    import psutil

    every = [entry for entries in psutil.net_if_addrs().values() for entry in entries]
    found = [entry.address for entry in every if entry.family == socket.AF_INET]
    return sorted(found, key=lambda address: address.startswith("127."))


def _kill(process: psutil.Process) -> None:
    import psutil

    with contextlib.suppress(psutil.Error):
        process.kill()
