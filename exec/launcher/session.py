"""A world of ranks: its start, and the removal of its processes, files and shared memory."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from exec.launcher import protocol, run_folders
from exec.launcher.nodeset import HostSlots
from exec.launcher.ports import bind_to_loopback, refuse_connections
from exec.launcher.signals import deferred
from exec.launcher.starters import Agents, Starter, mpirun, starter, variables
from exec.launcher.watchdog import Heard, Watchdog
from exec.sockets import Whereabouts, listen, published
from probes.files import temporary_folders

if TYPE_CHECKING:
    import psutil

__all__ = ["StartedRanks", "spares_of"]

_log = logging.getLogger(__name__)

# Lines of output shown on failure: the first have the error of a remote shell, the last the end of a rank's
# traceback.
_FIRST_LINES, _LAST_LINES = 3, 12
# Longer output is read from here before its end, and only the last lines are shown: 64 KiB hold 12 lines of
# 5000 bytes.
_LAST_BYTES = 1 << 16
# MPI keeps its shared memory here too; in an ordinary folder each message would reach a disk.
_MEMORY = Path("/dev/shm")
# Longest time for mpirun or the agents to end by themselves once the task is done. An agent gives its ranks
# as long (`exec.launcher.starters.host_agent`).
_LEAVING_S = 5.0
# Longest time for the same end after a request: mpirun kills its ranks after a second, agents at once. It
# also holds after a rank was lost, because an agent whose host is cut off does not learn that the run is
# done.
_ASKED_S = 2.0
# Longest time for killed processes to end. They end within milliseconds, unless the kernel holds them, for
# instance while they wait for a device.
_ENDING_S = 10.0
# The pause before looking again for processes that a killed process had just started.
_LOOK_S = 0.1


class StartedRanks:
    """A world of ranks that runs one task: started on entry, completely removed on exit."""

    def __init__(
        self,
        where: Sequence[HostSlots],
        job: protocol.JobForRanks,
        spares: Mapping[int, HostSlots] | None = None,
    ) -> None:
        """Prepare the world; ``spares`` are the hosts of ranks that start once the others are at work."""
        self._job = job
        self._where, self._spares = tuple(where), spares or {}
        self._watchdog: Watchdog | None = None
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> StartedRanks:
        with contextlib.ExitStack() as stack:
            launcher = mpirun.find() if self._job.wires == "mpi" else None
            # A signal such as Ctrl-C raises its exception only while the watchdog waits. Raised in the middle
            # of a start or a removal, it could leave processes or files behind.
            deliver = stack.enter_context(deferred())
            folder = stack.enter_context(temporary_folders.folder(run_folders.SESSION_PREFIX))
            shared = _MEMORY if _MEMORY.is_dir() else folder
            temporary_folders.sweep(run_folders.SCRATCH_PREFIX, shared)
            scratch = shared / f"{run_folders.SCRATCH_PREFIX}{secrets.token_hex(8)}"
            stack.callback(shutil.rmtree, scratch, ignore_errors=True)
            key = secrets.token_bytes(32)
            elsewhere = [entry for entry in self._spares.values() if not entry.is_here]
            hosts = [entry.host for entry in (*self._where, *elsewhere)]
            listeners = [stack.enter_context(listener) for listener in listen(folder, hosts)]
            self._output, self._scratch = folder / "output", str(scratch)
            marks = protocol.environment(published(listeners), key, str(scratch)) | self._job.task.variables()
            self._starter = self._start(launcher, marks)
            stack.callback(self._end)
            self._watchdog = Watchdog(
                listeners, key, self._job, self._starter, self._stopped, self._shut, deliver
            )
            self._cleanup = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    @property
    def connected(self) -> bool:
        """Whether all ranks were connected; only then can a run go on after the loss of one."""
        return self._watchdog is not None and self._watchdog.connected

    def result(self, heard: Heard, timeout_s: float | None, stall_s: float | None) -> Any:
        """Return the value of the task once every remaining rank has finished; ``heard`` gets the reports.

        The notes of an error hold the last lines that mpirun or the ranks printed.
        """
        assert self._watchdog is not None, "only inside the with block"
        try:
            value = self._watchdog.result(heard, timeout_s, stall_s)
        except Exception as error:
            for line in self._last_output():
                error.add_note(line)
            raise
        self._starter.wait(_ASKED_S if self._watchdog.losses else _LEAVING_S)
        for line in self._last_output():
            _log.info(line)
        return value

    def _start(self, launcher: mpirun.Launcher | None, marks: dict[str, str]) -> Starter:
        """Start the ranks by mpirun or by agents; ``marks`` are variables that identify the run."""
        folder = self._output.parent
        if launcher is None:
            env = {**variables(str(folder)), **marks}
            return Agents(self._job.at_start, self._where, env, self._output, self._spares)
        ranks_here = max((entry.slots for entry in self._where), default=self._job.ranks)
        env = mpirun.variables(ranks_here, str(folder), self._scratch, alone=not self._where)
        command = mpirun.command(launcher, self._job.ranks, self._where, starter.rank_program(), folder)
        _log.info(f"starting: {' '.join(command)}")
        return mpirun.start(command, {**env, **marks}, self._output)

    def _shut(self, all_up: bool) -> None:
        """Close mpirun's ports to strangers if all ranks are on this host.

        Once the first rank runs, only this host can connect to the ports; once all ranks are up, nobody can.
        """
        if self._where or self._job.wires != "mpi":
            return
        for pid in self._starter.pids:
            if not all_up and not bind_to_loopback(pid):
                _log.info("mpirun listens on all interfaces, and the kernel does not let that be changed")
            if all_up and not refuse_connections(pid):
                _log.info("other users of this host can connect to mpirun: the kernel takes no filter")

    def _last_output(self) -> list[str]:
        """Return the first and last lines printed by mpirun or the agents, and by the ranks through them."""
        with self._output.open("rb") as output:
            whole = output.seek(0, os.SEEK_END) <= _LAST_BYTES
            output.seek(0 if whole else -_LAST_BYTES, os.SEEK_SET if whole else os.SEEK_END)
            lines = output.read().decode(errors="replace").strip().splitlines()
        if whole and len(lines) > _FIRST_LINES + _LAST_LINES:
            lines = [*lines[:_FIRST_LINES], "…", *lines[-_LAST_LINES:]]
        elif not whole:
            lines = lines[-_LAST_LINES:]
        return [f"{self._starter.label}: {line}" for line in lines]

    def _end(self) -> None:
        """End all remaining processes; ranks have their own sessions, so a process group is not enough."""
        complete = self._watchdog is not None and self._watchdog.complete
        if not complete:
            for process in self._processes():
                if process.pid not in self._starter.pids:
                    _kill(process)
            self._starter.terminate()
        if self._watchdog is not None:
            self._watchdog.close()
        if not self._starter.wait(0 if complete else _ASKED_S) or not complete:
            self._kill_all()
        self._starter.close()
        for segment in self._watchdog.segments_here() if self._watchdog is not None else ():
            Path(segment).unlink(missing_ok=True)

    def _kill_all(self) -> None:
        """Kill until nothing is left, because a killed process may have just started another."""
        deadline_s = time.monotonic() + _ENDING_S
        while left := list(self._processes()):
            for process in left:
                _kill(process)
            if time.monotonic() > deadline_s:
                _log.warning(f"{len(left)} processes of the run were killed and do not end")
                return
            time.sleep(_LOOK_S)
            self._starter.wait(0)

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
        """Yield every process of this run on this host, by the run's mark in its environment."""
        import psutil

        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(run_folders.SCRATCH) == self._scratch:
                    yield process


def spares_of(
    ranks: int, where: Sequence[HostSlots], spare: Sequence[HostSlots]
) -> tuple[tuple[Whereabouts, ...], Mapping[int, HostSlots]]:
    """Return (expected locations of the ranks on the slots of ``spare``, the host of each).

    They are numbered after the ``ranks`` on ``where``, which are present at the start.
    """
    later = [entry for entry in spare for _ in range(entry.slots)]
    entries = where or (HostSlots(socket.gethostname(), ranks),)
    first = [entry for entry in entries for _ in range(entry.slots)][:ranks]
    hosts = dict(enumerate([*first, *later]))
    names = {rank: socket.gethostname() if entry.is_here else entry.host for rank, entry in hosts.items()}
    expected = []
    for rank in range(ranks, len(hosts)):
        lowest = min(other for other, name in names.items() if name == names[rank])
        expected.append(Whereabouts(rank, 0, lowest, names[rank], "", 0, ()))
    return tuple(expected), {place.rank: hosts[place.rank] for place in expected}


def _kill(process: psutil.Process) -> None:
    import psutil

    with contextlib.suppress(psutil.Error):
        process.kill()
