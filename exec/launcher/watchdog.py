"""Watches the ranks of one run: who is alive, what each does, and whose end ends the run.

A rank is lost when its connection breaks before it has finished, or when it sends no heartbeat for
a while and is stopped or out of sight. A rank of this host that is silent yet running (a
library that holds the interpreter) is left alone.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from exec.errors import RankFailed
from exec.launcher.protocol import Failure, Finished, Hello, JobForRanks, Partial, Started, Status, rebuilt
from exec.sockets.channel import BrokenMessage, Channel
from exec.sockets.greeter import Greeter
from probes.errors import LostRankError, TimeoutExpired, UnavailableError
from probes.progress import Progress

__all__ = ["Limits", "Watchdog"]

_log = logging.getLogger(__name__)

SILENCE_S = 5.0
# A rank that takes nothing of its job for so long is not sent the rest.
_SENDING_S = 60
# A rank of another host cannot be looked at, and its heartbeat may be held up on the way.
FAR_SILENCE_S = 7.5
START_S = 120.0
# How long MPI may take to start once all ranks are there.
MPI_START_S = 120.0
# After one rank has failed, others may be found dead that brought it down: it pays to look.
_GRACE_S = 1.0
# mpirun gives the other ranks a second to end before it kills them; then it says who was the first.
_GATHERING_S = 5.0
_SCAN_S = 1.0
_MOST_NAMED = 8
# Open MPI: "process rank 2 with PID 71 on node a exited on signal 9", filled to the width of a page.
_BLAMED = re.compile(r"process\s+rank\s+(\d+)\s+with\s+PID\s+(\d+)\s+on\s+node\s+(\S+)")


@dataclass
class Rank:
    """What is known of one rank."""

    number: int
    host: str
    pid: int
    connection: Channel
    heard_s: float
    status: Status = field(default_factory=Status)
    segments: tuple[str, ...] = ()
    finished: bool = False

    def __str__(self) -> str:
        return f"rank {self.number} (host {self.host}, pid {self.pid})"


@dataclass(frozen=True)
class Limits:
    """Seconds for the whole run, and for a run in which no rank gets on; None is no limit."""

    timeout_s: float | None = None
    stall_s: float | None = None


class Watchdog:
    """Hands out the job, gathers what the ranks say, and raises as soon as the run cannot succeed."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        key: bytes,
        job: JobForRanks,
        launcher: subprocess.Popen[bytes],
        log: Path,
        stopped: Callable[[], str],
        reached: Callable[[bool], None] = lambda all_of_them: None,
        deliver: Callable[[], None] = lambda: None,
    ) -> None:
        """``stopped`` names a process of the run on this host that was stopped, "" where there is none.

        ``reached`` is called with False when the first rank runs, and with True when MPI is up on all;
        ``deliver`` whenever a signal that has come may raise.
        """
        self._job, self._launcher, self._log = job, launcher, log
        self._stopped, self._reached, self._up = stopped, reached, set[int]()
        self._deliver, self._scanned_s = deliver, 0.0
        self._arrivals: queue.SimpleQueue[Rank] = queue.SimpleQueue()
        self.ranks: dict[int, Rank] = {}
        self._here = socket.gethostname()
        self._value: Any = None
        self._keep: Callable[[Any], None] = lambda value: None
        self._started_s = self._looked_s = self._advanced_s = self._arrived_s = time.monotonic()
        self._greeter = Greeter(listeners, key, job.ranks, self._send_job)

    def result(self, progress: Progress, limits: Limits, keep: Callable[[Any], None]) -> Any:
        """Wait for the value of rank 0; raises LostRankError, TimeoutExpired, or what a rank raised."""
        self._keep = keep
        while not self.complete:
            self._deliver()
            self._listen(0.05 if len(self.ranks) < self._job.ranks else 0.2)
            first = self.ranks.get(0)
            if first is not None and first.status.total > 0:
                progress.update(first.status.done, first.status.total, first.status.doing)
            self._check_silence()
            self._check_launcher()
            self._check_clock(limits.timeout_s)
            self._check_advance(limits.stall_s)
        progress.update(1.0, 1.0)
        return self._value

    @property
    def complete(self) -> bool:
        """Every rank has finished its task."""
        return len(self.ranks) == self._job.ranks and all(rank.finished for rank in self.ranks.values())

    def segments_here(self) -> set[str]:
        """Files of shared memory of this host that a killed rank leaves behind."""
        return {name for rank in self.ranks.values() if rank.host == self._here for name in rank.segments}

    def close(self) -> None:
        """Hang up on every rank: one that still runs then ends itself. No more are greeted."""
        for rank in self.ranks.values():
            rank.connection.close()
        self._greeter.close()

    def _send_job(self, hello: Hello, connection: Channel) -> None:
        """Give a rank its part of the job; on a thread of its own, as large arguments take their time."""
        if not isinstance(hello, Hello):
            raise EOFError
        connection.limit_sending(_SENDING_S)
        try:
            connection.send(self._job.of_rank(hello.rank))
        except Exception as error:
            _log.warning(f"rank {hello.rank} did not get its arguments: {error}")
            raise
        self._arrivals.put(Rank(hello.rank, hello.host, hello.pid, connection, time.monotonic()))

    def _welcome(self) -> None:
        while not self._arrivals.empty():
            rank = self._arrivals.get()
            if not self.ranks:
                self._reached(False)
            self.ranks[rank.number] = rank
            self._arrived_s = time.monotonic()

    def _listen(self, at_most_s: float) -> None:
        self._welcome()
        by_connection = {rank.connection: rank for rank in self.ranks.values() if not rank.finished}
        if not by_connection:
            time.sleep(at_most_s)
            return
        for connection in wait(list(by_connection), at_most_s):  # type: ignore[arg-type]  # any with fileno()
            self._hear(by_connection[connection])  # type: ignore[index]  # wait() gives back what it got

    def _hear(self, rank: Rank) -> None:
        try:
            messages = rank.connection.arrived()
        except BrokenMessage as error:
            raise self._lost(rank, str(error)) from None
        except (EOFError, OSError):
            how = self._cause_of_death()
            self._welcome()
            failures = self._last_words()
            first = self._first_to_die(rank)
            unheard = "" if first.number in self.ranks else " before it was heard of"
            raise self._lost(first, how + unheard, failures) from None
        rank.heard_s = time.monotonic()
        for message in messages:
            self._take(rank, message)

    def _take(self, rank: Rank, message: object) -> None:
        if isinstance(message, Status):
            if message != rank.status:
                self._advanced_s = rank.heard_s
            rank.status = message
        elif isinstance(message, Partial):
            self._keep_all(message)
        elif isinstance(message, Started):
            rank.segments = message.segments
            self._up.add(rank.number)
            if len(self._up) == self._job.ranks:
                self._reached(True)
        elif isinstance(message, Finished):
            rank.finished = True
            if rank.number == 0:
                self._value = message.value
        elif isinstance(message, Failure):
            rank.status = message.state
            self._failed(rank, message)

    def _keep_all(self, pieces: Partial) -> None:
        for value in pieces.values:
            self._keep(value)

    def _last_words(self) -> list[str]:
        """Hear what the others have said since: pieces, and who waits for the lost one, in which step.

        Returns a line for each that has failed, which may be the reason or follow from it.
        """
        failures = []
        for rank in self.ranks.values():
            with contextlib.suppress(EOFError, OSError):
                for message in rank.connection.arrived() if not rank.finished else ():
                    if isinstance(message, Partial):
                        self._keep_all(message)
                    elif isinstance(message, Failure):
                        failures.append(f"{rank} failed: {message.summary}")
                    rank.status = message if isinstance(message, Status) else rank.status
        return failures

    def _failed(self, rank: Rank, failure: Failure) -> None:
        if failure.error is not None:
            raise rebuilt(failure.error)
        rank.finished = True
        deadline_s = time.monotonic() + _GRACE_S
        while "mpi4py.MPI.Exception" in failure.text and time.monotonic() < deadline_s:
            self._listen(0.1)
        raise RankFailed(f"{rank} failed\n{failure.text.rstrip()}")

    def _check_silence(self) -> None:
        now_s = time.monotonic()
        # This process may itself have been stopped, or the machine asleep: then nobody was silent.
        if now_s - self._looked_s > 2.0:
            for rank in self.ranks.values():
                rank.heard_s = now_s
        self._looked_s = now_s
        for rank in self.ranks.values():
            silent_s = now_s - rank.heard_s
            allowed_s = SILENCE_S if rank.host == self._here else FAR_SILENCE_S
            if not rank.finished and silent_s > allowed_s and (state := self._state(rank)) != "running":
                raise self._lost(rank, f"{state}, silent for {silent_s:.0f} s")

    def _state(self, rank: Rank) -> str:
        """What the process of a silent rank is: running, stopped, gone, or out of sight on its host."""
        import psutil

        if rank.host != self._here:
            return "does not answer"
        try:
            status = psutil.Process(rank.pid).status()
        except psutil.NoSuchProcess:
            return "is gone"
        return "was stopped (SIGSTOP)" if status in (psutil.STATUS_STOPPED, "tracing-stop") else "running"

    def _check_launcher(self) -> None:
        status = self._launcher.poll()
        if status is None:
            waited_s = time.monotonic() - self._started_s if len(self.ranks) < self._job.ranks else 0.0
            if waited_s > SILENCE_S and (name := self._found_stopped()):
                raise LostRankError(f"{name} was stopped (SIGSTOP); {self._who_started()}")
            if waited_s > START_S:
                raise UnavailableError(f"{self._who_started()} within {START_S:.0f} s")
            if len(self._up) < self._job.ranks and time.monotonic() - self._arrived_s > MPI_START_S:
                raise UnavailableError(
                    f"MPI did not start on all {self._job.ranks} ranks within {MPI_START_S:g} s",
                    hint="Another process may be holding the ports of mpirun on this host.",
                )
            return
        deadline_s = time.monotonic() + _GRACE_S
        while not self.complete and time.monotonic() < deadline_s:
            self._listen(0.1)
        if self.complete:
            return
        said = f"{self._launcher.args[0]!s} ended with status {status}"  # type: ignore[index]  # a list
        if len(self.ranks) < self._job.ranks:
            raise UnavailableError(f"{self._who_started()}; {said}")
        raise LostRankError(f"{said} while its ranks were at work")

    def _found_stopped(self) -> str:
        """A process of the run that was stopped; to look for one means to read all of /proc."""
        now_s = time.monotonic()
        if now_s - self._scanned_s < _SCAN_S:
            return ""
        self._scanned_s = now_s
        return self._stopped()

    def _check_clock(self, timeout_s: float | None) -> None:
        if timeout_s is None or time.monotonic() - self._started_s < timeout_s:
            return
        lines = [f"not done within {timeout_s:g} s", *_who_waits(self.ranks.values())]
        if len(self.ranks) < self._job.ranks:
            lines.append(self._who_started())
        raise TimeoutExpired("\n".join(lines))

    def _check_advance(self, stall_s: float | None) -> None:
        """A run is stalled when no rank tells anything new for a while, though all are heard."""
        now_s = time.monotonic()
        if len(self.ranks) < self._job.ranks or any(rank.finished for rank in self.ranks.values()):
            self._advanced_s = now_s
        if stall_s is None or now_s - self._advanced_s < stall_s:
            return
        rank = _culprit(self.ranks.values())
        said = f"nothing came through for {stall_s:g} s"
        lines = [f"{rank}: {said}" if rank else said, *_who_waits(self.ranks.values())]
        raise LostRankError("\n".join(lines), hint="Nothing was written.")

    def _lost(self, rank: Rank, how: str, failures: Sequence[str] = ()) -> LostRankError:
        doing = rank.status.step or rank.status.doing
        lines = [f"{rank} {how}" + (f"; it was at: {doing}" if doing else "")]
        return LostRankError(
            "\n".join([*lines, *failures, *_who_waits(self.ranks.values(), but=rank)]),
            hint="Nothing was written.",
        )

    def _first_to_die(self, seen: Rank) -> Rank:
        """The rank that mpirun blames: it kills the others, and we may see one of those first.

        It may be one that never said hello, of which only mpirun knows.
        """
        for number, pid, host in _BLAMED.findall(self._log.read_text(errors="replace")):
            known = self.ranks.get(int(number))
            if known is None or known.pid == int(pid):
                return known or Rank(int(number), host, int(pid), seen.connection, seen.heard_s)
        return seen

    def _cause_of_death(self) -> str:
        """How a rank died, as far as the status of mpirun tells (it ends as the first rank did)."""
        try:
            status = self._launcher.wait(_GATHERING_S)
        except subprocess.TimeoutExpired:
            return "died"
        number = -status if status < 0 else status - 128
        if number in {int(known) for known in signal.Signals}:
            return f"was killed ({signal.Signals(number).name})"
        return f"died (mpirun ended with status {status})"

    def _who_started(self) -> str:
        missing = [str(number) for number in range(self._job.ranks) if number not in self.ranks]
        named = ", ".join(missing[:_MOST_NAMED]) + (", …" if len(missing) > _MOST_NAMED else "")
        return f"{len(self.ranks)} of {self._job.ranks} ranks started; missing: {named}"


def _culprit(ranks: Collection[Rank]) -> Rank | None:
    """The one rank that every transfer under way has in common; None where there is none, or no telling."""
    by_number = {rank.number: rank for rank in ranks}
    transfers = {
        frozenset((rank.number, rank.status.peer))
        for rank in ranks
        if not rank.finished and rank.status.peer is not None and rank.status.peer >= 0
    }
    common = frozenset.intersection(*transfers) if transfers else frozenset()
    return by_number.get(next(iter(common))) if len(common) == 1 else None


def _who_waits(ranks: Collection[Rank], but: Rank | None = None) -> list[str]:
    """One line for each thing that is waited for, with the ranks that wait for it."""
    waiting: dict[tuple[int, str], list[int]] = {}
    for rank in ranks:
        if rank is not but and not rank.finished and rank.status.peer is not None:
            waiting.setdefault((rank.status.peer, rank.status.step), []).append(rank.number)
    lines = []
    for (peer, step), numbers in sorted(waiting.items())[:_MOST_NAMED]:
        who = ", ".join(map(str, sorted(numbers)))
        verb = f"rank{'s' if len(numbers) > 1 else ''} {who} waited for"
        lines.append(f"{verb} {f'rank {peer}' if peer >= 0 else 'all ranks'}: {step}")
    idle = [rank for rank in ranks if rank is not but and not rank.finished and rank.status.peer is None]
    said = [f"rank {rank.number} was at: {rank.status.doing}" for rank in idle if rank.status.doing]
    return lines + said[:_MOST_NAMED]
