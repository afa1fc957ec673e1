"""The watchdog of one run's ranks: which are alive, what each does, and which loss ends the run.

A rank is lost when its connection breaks before it has finished, or when it sends no heartbeat for a while
and is stopped or out of sight. A silent rank that is seen running (a library may hold Python's lock) is left
alone; with mpirun only ranks of this host can be seen. A rank whose host acknowledges nothing is cut off,
whether it runs or not.

In a run that survives losses, a lost rank is killed if its host can be reached, and disconnected, before the
others learn of the loss. So it cannot undo their decisions. A lost rank may be started again; until the
others admit it, its loss does not affect the run.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import queue
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from exec.errors import RankFailed
from exec.launcher.protocol import (
    Admitted,
    Failure,
    Fence,
    Finished,
    GatherContribution,
    Heartbeat,
    Hello,
    JobForRanks,
    Lost,
    Partial,
    Returned,
    Started,
)
from exec.launcher.ranks import MOST_NAMED, RankPhase, RankState, Responder, culprit, who_waits
from exec.launcher.restarts import Restarts
from exec.launcher.starters import Starter
from exec.sockets import BrokenMessage, Channel, Greeter, Meeting
from probes.base import SILENT, LostRankError, Progress, TimeoutExpired, UnavailableError

__all__ = ["Heard", "Watchdog"]

_log = logging.getLogger(__name__)

# Longest silence of a rank on this host: a loaded host delays heartbeats, but a user waits for the error.
SILENCE_S = 5.0
# A rank that accepts no data for this long does not get the rest of its job.
_SENDING_S = 60
# Longest silence of a rank on another host, which cannot be inspected and whose heartbeats may be delayed on
# the way.
FAR_SILENCE_S = 7.5
# Longest time for all ranks to report after the start.
START_S = 120.0
# Longest time for MPI, or ccctl's own wires, to come up once all ranks are present.
MPI_START_S = 120.0
# The watchdog listens this long after a failure or the launcher's end: further messages may explain it.
_GRACE_S = 1.0
_SCAN_S = 1.0
_CUT_OFF = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)


@dataclass(frozen=True)
class Heard:
    """The receivers of ranks' reports during a run: progress, pieces of the result, and losses.

    ``on_status`` is called with a rank, its host and its status at each report.
    """

    progress: Progress = SILENT
    keep: Callable[[Any], None] = lambda value: None
    on_lost: Callable[[Lost], None] = lambda lost: None
    on_status: Callable[[int, str, Heartbeat], None] = lambda rank, host, status: None


class Watchdog:
    """Server that hands out the job, gathers the ranks' reports, and raises once the run cannot succeed."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        key: bytes,
        job: JobForRanks,
        starter: Starter,
        stopped: Callable[[], str],
        reached: Callable[[bool], None] = lambda all_of_them: None,
        deliver: Callable[[], None] = lambda: None,
    ) -> None:
        """Start to accept connections of ranks.

        ``stopped`` names a stopped process of the run on this host, "" for none. ``reached`` is called with
        False when the first rank runs, and with True when all wires are up. ``deliver`` is called whenever a
        pending signal may raise.
        """
        self._job, self._starter = job, starter
        self._stopped, self._reached = stopped, reached
        self._deliver, self._scanned_s = deliver, 0.0
        self._arrivals: queue.SimpleQueue[RankState] = queue.SimpleQueue()
        self.ranks: dict[int, RankState] = {}
        self._here = socket.gethostname()
        self._value: Any = None
        self._heard = Heard()
        self._answers, self.losses, self._survives = Responder(job), list[Lost](), False
        self._spares = frozenset(spare.rank for spare in job.spares)
        self._restarts, self._joining = Restarts(job.rejoin, self._spares), dict[int, RankState]()
        self._whereabouts = {spare.rank: spare for spare in job.spares}
        self._started_s = self._looked_s = self._advanced_s = self._arrived_s = time.monotonic()
        self._greeter = Greeter(listeners, key, job.ranks, self._send_job)

    def result(self, heard: Heard, timeout_s: float | None, stall_s: float | None) -> Any:
        """Wait for the value of rank 0, or of the lowest survivor that has one.

        ``timeout_s`` limits the run, ``stall_s`` the time in which no rank makes progress. Raises
        LostRankError, TimeoutExpired, or the error of a rank.
        """
        self._heard = heard
        while not self.complete:
            self._deliver()
            self._listen(0.05 if len(self.ranks) < self._job.at_start else 0.2)
            first = min((rank for rank in self.ranks if not self.ranks[rank].lost), default=None)
            if first is not None and (status := self.ranks[first].status).total > 0:
                heard.progress.update(status.done, status.total, status.doing)
            for rank, answer in self._answers.due(self.ranks):
                self._tell(rank, answer)
            self._check_silence()
            self._check_launcher()
            self._start_again()
            self._check_clock(timeout_s)
            self._check_advance(stall_s)
        heard.progress.update(1.0, 1.0)
        self._let_nobody_in()
        return self._value

    @property
    def connected(self) -> bool:
        """Whether the run survives losses: it was asked to, and all ranks have connected."""
        return self._survives

    @property
    def complete(self) -> bool:
        """Whether every remaining rank has finished its task."""
        assembled = len(self.ranks) >= self._job.at_start
        return assembled and not any(rank.connected for rank in self.ranks.values())

    def segments_here(self) -> set[str]:
        """Return the files of shared memory on this host that a killed rank leaves behind."""
        return {name for rank in self._known() if rank.host == self._here for name in rank.segments}

    def close(self) -> None:
        """Close the connections to all ranks, which ends those that still run; accept no more."""
        for rank in self._known():
            rank.connection.close()
        self._greeter.close()

    def _known(self) -> list[RankState]:
        """Return all ranks; first the restarted ranks that have not been admitted yet."""
        return [*self._joining.values(), *self.ranks.values()]

    def _send_job(self, hello: Hello, connection: Channel) -> None:
        """Send a rank its part of the job; on its own thread, because large arguments take time."""
        if not isinstance(hello, Hello):
            raise EOFError
        if hello.start and not self._restarts.awaits(hello.rank, hello.start):
            # This start was abandoned before it reported.
            raise EOFError
        connection.limit_sending(_SENDING_S)
        try:
            connection.send(self._job.of_rank(hello.rank, self._meeting(hello.start)))
        except Exception as error:
            _log.warning(f"rank {hello.rank} did not get its arguments: {error}")
            raise
        if self._job.wires == "sockets":
            connection.expect_acknowledgements(FAR_SILENCE_S)
        now_s = time.monotonic()
        self._arrivals.put(RankState(hello.rank, hello.host, hello.pid, connection, now_s, start=hello.start))

    def _meeting(self, start: int) -> Meeting | None:
        """Return the ranks that a restarted rank has to connect to."""
        if not start:
            return None
        living = frozenset(rank.number for rank in tuple(self.ranks.values()) if rank.at_work)
        known = tuple(where for _, where in sorted(tuple(self._whereabouts.items())))
        return Meeting(start, known, living)

    def _welcome(self) -> None:
        while not self._arrivals.empty():
            rank = self._arrivals.get()
            if rank.start:
                if self._restarts.awaits(rank.number, rank.start):
                    self._restarts.answered(rank.number)
                    self._joining[rank.number] = rank
                else:
                    rank.connection.close()
                continue
            if not self.ranks:
                self._reached(False)
            self.ranks[rank.number] = rank
            self._arrived_s = time.monotonic()

    def _listen(self, at_most_s: float) -> None:
        self._welcome()
        by_connection = {rank.connection: rank for rank in self._known() if rank.connected}
        if not by_connection:
            time.sleep(at_most_s)
            return
        for connection in wait(list(by_connection), at_most_s):  # type: ignore[arg-type]  # any with fileno()
            self._hear(by_connection[connection])  # type: ignore[index]  # wait() gives back what it got

    def _hear(self, rank: RankState) -> None:
        if rank.lost:
            return
        try:
            rank.connection.flush()
            messages = rank.connection.arrived()
        except BrokenMessage as error:
            self._lose(rank, str(error))
            return
        except (EOFError, OSError) as error:
            self._end_of(rank, rank.send_error or error)
            return
        rank.heard_s = time.monotonic()
        for message in messages:
            if not rank.lost:
                self._take(rank, message)

    def _end_of(self, rank: RankState, error: Exception) -> None:
        """Handle the broken connection of a rank."""
        cut_off = isinstance(error, OSError) and error.errno in _CUT_OFF
        how = "is cut off" if cut_off else self._starter.how_it_died(rank.number)
        if self._survives:
            self._lose(rank, how)
            return
        self._welcome()
        failures = self._last_words()
        first = self._first_to_die(rank)
        unheard = "" if first.number in self.ranks else " before it was heard of"
        raise self._lost(first, how + unheard, failures) from None

    def _lose(self, rank: RankState, how: str) -> None:
        """Declare a rank lost; raises LostRankError if the others cannot go on."""
        if not self._survives:
            raise self._lost(rank, how) from None
        rank.lose(how)
        self._starter.kill(rank.number)
        rank.connection.close()
        self._restarts.lost(rank.number, time.monotonic())
        lost = Lost(rank.number, f"(host {rank.host}, pid {rank.pid}) {how}", rank.start)
        if self._joining.get(rank.number) is rank:
            del self._joining[rank.number]
            _log.warning(f"{lost} before it was let in")
            return
        self.losses.append(lost)
        _log.warning(f"{lost}")
        self._heard.on_lost(lost)
        if all(other.lost for other in self.ranks.values()):
            raise LostRankError(["no rank is left", *self._who_is_lost()]) from None
        for other in self.ranks.values():
            if other.connected:
                self._tell(other, lost)

    def _start_again(self) -> None:
        """Start the ranks whose restart is due, and give up those that do not report."""
        now_s = time.monotonic()
        overdue = self._restarts.overdue(now_s)
        for rank in self._restarts.awaited:
            failed = "was not heard of" if rank in overdue else self._starter.failed_again(rank)
            if failed:
                _log.warning(f"rank {rank}, {self._how_started(rank)}, {failed}")
                self._starter.kill(rank)
                self._restarts.lost(rank, now_s)
        for rank, start in self._restarts.due(now_s):
            _log.info(f"rank {rank} is {self._how_started(rank)}")
            try:
                self._starter.restart(rank, start)
            except UnavailableError as error:
                _log.warning(f"rank {rank} was not {self._how_started(rank)}: {error.message}")
                self._restarts.lost(rank, now_s)

    def _how_started(self, rank: int) -> str:
        return "started again" if rank in self.ranks else "started as a spare"

    def _let_nobody_in(self) -> None:
        """End the ranks that have not been admitted, because the run is over."""
        for rank in self._joining.values():
            rank.connection.close()
        for number in (*self._joining, *self._restarts.awaited):
            self._starter.kill(number)

    def _who_is_lost(self) -> list[str]:
        return [str(lost) for lost in self.losses[:MOST_NAMED]]

    def _tell(self, rank: RankState, message: object) -> None:
        # A broken connection is handled when it is read next.
        try:
            rank.connection.post(message)
        except OSError as error:
            rank.send_error = error

    def _take(self, rank: RankState, message: object) -> None:
        if isinstance(message, Heartbeat):
            if message != rank.status:
                self._advanced_s = rank.heard_s
            rank.status = message
            self._heard.on_status(rank.number, rank.host, message)
        elif isinstance(message, Partial):
            self._keep_all(message)
        elif isinstance(message, Started):
            rank.segments, rank.phase = message.segments, RankPhase.CONNECTED
            if message.where is not None:
                self._whereabouts[rank.number] = message.where
            if self._all_up() and not self._survives:
                # Before all ranks are up they are not all connected to each other, so the run cannot survive
                # a loss.
                self._survives = self._job.survive
                self._reached(True)
                for spare in self._spares:
                    self._restarts.lost(spare, rank.heard_s)
        elif self._joining.get(rank.number) is rank:
            self._take_of_joining(rank, message)
        elif isinstance(message, Finished):
            rank.phase = RankPhase.FINISHED
            if rank is self._answers.giver or (self._job.wires == "mpi" and rank.number == 0):
                self._value = message.value
        elif isinstance(message, Returned):
            rank.phase, rank.has_value = RankPhase.RETURNED, message.has_value
        elif isinstance(message, GatherContribution):
            self._answers.exchanges.give(rank.number, message.content)
        elif isinstance(message, Fence):
            self._fence(message.rank, rank)
        elif isinstance(message, Failure):
            rank.status = message.state
            self._failed(rank, message)

    def _take_of_joining(self, rank: RankState, message: object) -> None:
        """Handle a message of a rank that was started later and does not take part yet."""
        if isinstance(message, Admitted):
            del self._joining[rank.number]
            self.ranks[rank.number] = rank
            _log.info(f"{rank} was let in")
        elif isinstance(message, Failure):
            self._lose(rank, f"failed: {message.summary}")
        elif isinstance(message, Returned):
            self._lose(rank, "returned")

    def _fence(self, number: int, by: RankState) -> None:
        rank = self._joining.get(number) or self.ranks.get(number)
        if rank is not None and rank.connected:
            self._lose(rank, f"was fenced by rank {by.number}")

    def _all_up(self) -> bool:
        if len(self.ranks) < self._job.at_start:
            return False
        return all(rank.phase > RankPhase.PRESENT for rank in self.ranks.values())

    def _keep_all(self, pieces: Partial) -> None:
        for value in pieces.values:
            self._heard.keep(value)

    def _last_words(self) -> list[str]:
        """Read all ranks' latest messages: pieces, failures, and heartbeats, which tell who waits.

        Return a line for each rank that has failed, which may be a cause or a consequence.
        """
        failures = []
        for rank in self.ranks.values():
            with contextlib.suppress(EOFError, OSError):
                for message in rank.connection.arrived() if rank.connected else ():
                    if isinstance(message, Partial):
                        self._keep_all(message)
                    elif isinstance(message, Failure):
                        failures.append(f"{rank} failed: {message.summary}")
                    rank.status = message if isinstance(message, Heartbeat) else rank.status
        return failures

    def _failed(self, rank: RankState, failure: Failure) -> None:
        """Raise a rank's error; wait first for a death that may have caused it."""
        follows = self._job.wires == "sockets" or (
            failure.error is None and "mpi4py.MPI.Exception" in failure.text
        )
        rank.phase = RankPhase.FINISHED
        deadline_s = time.monotonic() + _GRACE_S
        while follows and time.monotonic() < deadline_s:
            self._listen(0.1)
        if failure.error is not None:
            raise failure.error
        raise RankFailed("\n".join([f"{rank} failed", failure.text.rstrip(), *self._who_is_lost()]))

    def _check_silence(self) -> None:
        now_s = time.monotonic()
        # This process may have been stopped, or the machine asleep: then no rank was silent.
        if now_s - self._looked_s > 2.0:
            for rank in self._known():
                rank.heard_s = now_s
        self._looked_s = now_s
        for rank in self._known():
            silent_s = now_s - rank.heard_s
            allowed_s = SILENCE_S if rank.host == self._here else FAR_SILENCE_S
            if rank.connected and rank.host != self._here and silent_s > allowed_s / 2:
                self._starter.look_at(rank.number)
            if rank.connected and silent_s > allowed_s and (state := self._state(rank)) != "running":
                self._lose(rank, f"{state}, silent for {silent_s:.0f} s")

    def _state(self, rank: RankState) -> str:
        """Return the state of a silent rank's process: running, stopped, gone, or out of sight."""
        import psutil

        if rank.host != self._here:
            return "running" if self._starter.seen_running(rank.number) else "does not answer"
        try:
            status = psutil.Process(rank.pid).status()
        except psutil.NoSuchProcess:
            return "is gone"
        return "was stopped (SIGSTOP)" if status in (psutil.STATUS_STOPPED, "tracing-stop") else "running"

    def _check_launcher(self) -> None:
        ended = self._starter.ended({*self.ranks, *self._spares})
        if not ended:
            waited_s = time.monotonic() - self._started_s if len(self.ranks) < self._job.at_start else 0.0
            if waited_s > SILENCE_S and (name := self._found_stopped()):
                raise LostRankError(f"{name} was stopped (SIGSTOP); {self._who_started()}")
            if waited_s > START_S:
                raise UnavailableError(f"{self._who_started()} within {START_S:.0f} s")
            if not self._all_up() and time.monotonic() - self._arrived_s > MPI_START_S:
                raise self._without_wires()
            return
        deadline_s = time.monotonic() + _GRACE_S
        while not self.complete and time.monotonic() < deadline_s:
            self._listen(0.1)
        ended = self._starter.ended({*self.ranks, *self._spares})
        if self.complete or not ended:
            return
        if len(self.ranks) < self._job.at_start:
            self._refuse_lost_at_start()
            raise UnavailableError(f"{self._who_started()}; {ended}")
        raise LostRankError(f"{ended} while its ranks were at work")

    def _without_wires(self) -> UnavailableError:
        what, why = "MPI", "Another process may be holding the ports of mpirun on this host."
        if self._job.wires == "sockets":
            what, why = "the connections between ranks", "A firewall between the hosts?"
        return UnavailableError(
            f"{what} did not start on all {self._job.at_start} ranks within {MPI_START_S:g} s", hint=why
        )

    def _found_stopped(self) -> str:
        """Return a stopped process of the run; rate-limited, because the search reads all of /proc."""
        now_s = time.monotonic()
        if now_s - self._scanned_s < _SCAN_S:
            return ""
        self._scanned_s = now_s
        return self._stopped()

    def _check_clock(self, timeout_s: float | None) -> None:
        if timeout_s is None or time.monotonic() - self._started_s < timeout_s:
            return
        lines = [f"not done within {timeout_s:g} s", *who_waits(self.ranks.values())]
        if len(self.ranks) < self._job.at_start:
            lines.append(self._who_started())
        raise TimeoutExpired(lines)

    def _check_advance(self, stall_s: float | None) -> None:
        """Raise LostRankError if no rank reports progress for a while, though all send heartbeats."""
        now_s = time.monotonic()
        if len(self.ranks) < self._job.at_start or not all(
            rank.at_work or rank.lost for rank in self.ranks.values()
        ):
            self._advanced_s = now_s
        if stall_s is None or now_s - self._advanced_s < stall_s:
            return
        rank = culprit(self.ranks.values())
        reason = f"no progress for {stall_s:g} s, though all ranks answer"
        lines = [f"{rank}: {reason}" if rank else reason, *who_waits(self.ranks.values())]
        raise LostRankError(lines, hint="Nothing was written.")

    def _lost(self, rank: RankState, how: str, failures: Sequence[str] = ()) -> LostRankError:
        doing = rank.status.step or rank.status.doing
        lines = [f"{rank} {how}" + (f"; it was at: {doing}" if doing else "")]
        return LostRankError(
            [*lines, *failures, *who_waits(self.ranks.values(), but=rank)],
            hint="Nothing was written.",
        )

    def _first_to_die(self, seen: RankState) -> RankState:
        """Return the rank that mpirun blames, else ``seen``.

        mpirun kills the other ranks, so their ends may be seen first. The blamed rank may never have said
        hello; then only mpirun knows it.
        """
        for number, pid, host in self._starter.blamed():
            known = self.ranks.get(number)
            if pid is not None and (known is None or known.pid == pid):
                return known or RankState(number, host, pid, seen.connection, seen.heard_s)
        return seen

    def _refuse_lost_at_start(self) -> None:
        """Raise LostRankError if a signal ended a rank before its hello; this is not a failure of MPI."""
        for number, pid, host in self._starter.blamed():
            if number not in self.ranks:
                how = self._starter.how_it_died(number)
                where = f"host {host}" if pid is None else f"host {host}, pid {pid}"
                raise LostRankError(f"rank {number} ({where}) {how} before it was heard of")

    def _who_started(self) -> str:
        missing = [str(number) for number in range(self._job.at_start) if number not in self.ranks]
        named = ", ".join(missing[:MOST_NAMED]) + (", …" if len(missing) > MOST_NAMED else "")
        return f"{len(self.ranks)} of {self._job.at_start} ranks started; missing: {named}"
