"""The start of ranks for a command, with its progress bar, its messages and its rescue of results."""

from __future__ import annotations

import contextlib
import os
import re
import time
import traceback
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from signal import Signals
from typing import TYPE_CHECKING, Any, get_args

from ccctl import console
from ccctl.errors import EXIT_STATUS, INTERNAL, CcctlError, TimeoutExpired, exit_status, message_of
from ccctl.rescue import reason_of, rescue_now
from exec.errors import RankFailed
from exec.launcher import Ending, HostSlots, World, run, started_by_mpi
from exec.launcher.starters import other_nodes
from probes.base import Progress, UnavailableError, UsageError, plural

if TYPE_CHECKING:
    from exec.launcher import Heartbeat, Lost
    from synth.program import Program

__all__ = [
    "HOSTS_VARIABLE",
    "Deadline",
    "Drawn",
    "RankDisplay",
    "World",
    "by_default",
    "over_sockets",
    "paced_between_hosts",
    "placed",
    "run_ranks",
    "started_by_mpi",
    "without_hosts",
    "world_of",
]

# Environment variable with the default of --hosts; a lab sets it for commands inside the lab.
HOSTS_VARIABLE = "CCCTL_HOSTS"
# The most ranks that are named because others wait for them.
_MOST_AWAITED = 4
_FLAGS = {"ranks": "-n", "hosts": "--hosts", "hostfile": "--hostfile", "spare": "--spare"}
_ARGUMENT = re.compile(r"^(ranks|hosts|hostfile|spare)(?=: )|\b(ranks|hosts|hostfile)=(\d+|'[^']*')")


@dataclass(frozen=True)
class Deadline:
    """The user's time limit for a command that starts ranks several times, from ``began_s`` on."""

    limit_s: float | None
    began_s: float = field(default_factory=time.monotonic)

    def left_s(self) -> float | None:
        """Return the seconds left, None without a limit; raises TimeoutExpired if none are left."""
        if self.limit_s is None:
            return None
        left_s = self.began_s + self.limit_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutExpired(f"not done within {self.limit_s:g} s")
        return left_s


def by_default(hosts: str | None) -> bool:
    """Return whether ``hosts`` is a default: None, the environment's or the Slurm job's."""
    return hosts is None or hosts in (os.environ.get(HOSTS_VARIABLE), other_nodes())


def world_of(ranks: int | None, hosts: str | None, hostfile: str | None) -> World:
    """Return the world that the options describe; a hostfile overrides the hosts of the environment.

    Without either, use the nodes of the Slurm job of this process.
    """
    if hostfile is not None:
        return World(ranks, None if by_default(hosts) else hosts, hostfile)
    return World(ranks, other_nodes() if hosts is None else hosts)


def over_sockets(wires: str) -> bool:
    """Return whether ``--wires`` is sockets.

    Raises UsageError unless it is sockets, mpi or auto.
    """
    from exec.launcher import Wires

    known = ("auto", *get_args(Wires))
    if wires not in known:
        raise UsageError(f"--wires: expected {', '.join(known)}, found {wires!r}")
    return wires == "sockets"


def paced_between_hosts(programs: Iterable[Program], world: World) -> bool:
    """Return whether ``world`` names hosts and all programs set a send rate for each threadblock.

    Each threadblock then needs its own connection, which sockets provide and MPI does not.
    """
    if started_by_mpi() or (world.hosts is None and world.hostfile is None):
        return False
    return all(len(program.tb_bytes_per_s) for program in programs)


def placed(world: World) -> tuple[int, tuple[HostSlots, ...]]:
    """Return (number of ranks, their hosts); no hosts means this machine.

    Raises UsageError that names the flags.
    """
    with _naming_flags():
        return world.placed()


def without_hosts(world: World, missing: Container[str]) -> World:
    """Return ``world`` without the hosts in ``missing``."""
    left = [entry for entry in placed(world)[1] if entry.host not in missing]
    slots = sum(entry.slots for entry in left)
    listed = ",".join(f"{entry.host}:{entry.slots}" for entry in left)
    return World(None if world.ranks is None else min(world.ranks, slots), listed)


def run_ranks(
    task: str,
    arguments: object,
    world: World,
    *,
    label: str,
    timeout_s: float | None = None,
    stall_s: float | None = None,
    keep: Callable[[Any], None] = lambda value: None,
    sockets: bool = False,
    survive: bool = False,
    rejoin: int = 0,
    below: Callable[[], Sequence[str]] = tuple,
) -> Any:
    """Call ``exec.launcher.run.run_ranks`` with a progress bar named ``label``, and return its result.

    Under the bar are the lines of ``below``, then which ranks wait for which.

    With ``sockets`` or ``survive`` the ranks need no MPI. With ``survive`` the surviving ranks go on when
    others die; a lost rank is restarted up to ``rejoin`` times.

    Inside mpirun or srun only rank 0 returns; the other ranks exit, with status 0 after success.
    """
    _hear_launcher()
    limits: dict[str, Any] = {"timeout_s": timeout_s, "stall_s": stall_s, "keep": keep}
    if sockets or survive:
        limits |= {"wires": "sockets", "survive": survive, "rejoin": rejoin}
    with _naming_flags():
        if started_by_mpi():
            return _inside(lambda: run.run_ranks(task, arguments, world, ending=_ReportedEnding(), **limits))
        ranks = RankDisplay()
        view = console.progress(label, 1.0, lambda: [*below(), *ranks.lines()])
        with view as bar, _showing_output():
            heard: dict[str, Any] = {"on_status": ranks.heard, "on_lost": ranks.lost}
            return run.run_ranks(task, arguments, world, progress=Drawn(bar), **heard, **limits)


def _inside(call: Callable[[], Any]) -> Any:
    """Return the result of ``call`` on rank 0; exit on every other rank."""
    from exec.launcher import own_rank

    try:
        value = call()
    except UsageError:
        # Every rank gets this error; only one reports it.
        if own_rank() == 0:
            raise
        raise SystemExit(EXIT_STATUS[UsageError]) from None
    if own_rank() != 0:
        raise SystemExit(0)
    return value


@contextlib.contextmanager
def _naming_flags() -> Iterator[None]:
    """Replace the launcher's argument names by flags in a UsageError that the block raises."""
    try:
        yield
    except UsageError as error:
        error.message, error.hint = _with_flags(error.message), _with_flags(error.hint)
        error.args = (error.message,)
        raise


def _with_flags(text: str) -> str:
    """Replace argument names by flags: ``ranks=4`` becomes ``-n 4``, ``hosts: …`` becomes ``--hosts: …``."""

    def flag(found: re.Match[str]) -> str:
        value = (found[3] or "").strip("'")
        return f"{_FLAGS[found[1] or found[2]]} {value}".strip()

    return _ARGUMENT.sub(flag, text)


@contextlib.contextmanager
def _showing_output() -> Iterator[None]:
    """Print mpirun's output before an error that the block raises.

    That output often says why ranks did not start. For a lost rank the error says enough.
    """
    try:
        yield
    except Exception as error:
        show = console.note if isinstance(error, UnavailableError | RankFailed) else console.detail
        for line in getattr(error, "__notes__", ()):
            show(line)
        error.__notes__ = []
        raise


class Drawn(Progress):
    """Progress of a stage or of rank 0, drawn as a bar."""

    def __init__(self, bar: console.ProgressBar) -> None:
        self._bar = bar

    def update(self, done: float, total: float, text: str = "") -> None:
        self._bar.update(min(done / total, 1.0) if total else 1.0, text)

    def waiting(self, peer: int, what: str) -> None:
        """Ignore waiting; the bar does not show it."""


class RankDisplay:
    """The state of the ranks as lines for a terminal: the ranks that others wait for, and lost ranks."""

    def __init__(self) -> None:
        self._now: dict[int, tuple[str, Heartbeat]] = {}
        self._lost: dict[int, str] = {}

    def heard(self, rank: int, host: str, status: Heartbeat) -> None:
        """Record the latest heartbeat of a rank."""
        self._now[rank] = (host, status)
        self._lost.pop(rank, None)

    def lost(self, lost: Lost) -> None:
        """Record that a rank was lost."""
        self._lost[lost.rank] = lost.how
        self._now.pop(lost.rank, None)

    def lines(self) -> list[str]:
        """Return the lines, the most waited-for ranks first; none before the first heartbeat."""
        now, gone = dict(self._now), dict(self._lost)
        if not now:
            return []
        waits: dict[int, list[int]] = {}
        for rank, (_, status) in sorted(now.items()):
            if status.peer is not None:
                waits.setdefault(status.peer, []).append(rank)
        together = waits.pop(-1, [])
        peers = {rank: status.peer for rank, (_, status) in now.items()}
        pairs = [(rank, peer) for rank, peer in sorted(peers.items()) if peer is not None and rank < peer]
        pairs = [(rank, peer) for rank, peer in pairs if peers.get(peer) == rank]
        for rank, peer in pairs:
            waits[peer].remove(rank)
            waits[rank].remove(peer)
        waits = {peer: ranks for peer, ranks in waits.items() if ranks}
        lines = [f"{plural(len(now), 'rank')}, {sum(map(len, waits.values()))} waiting for another"]
        for peer, ranks in sorted(waits.items(), key=lambda entry: -len(entry[1]))[:_MOST_AWAITED]:
            whom = f"rank {peer}" + (f" on {now[peer][0]}" if peer in now else "")
            who = f"rank {ranks[0]} waits" if len(ranks) == 1 else f"{len(ranks)} ranks wait"
            lines.append(f"{who} for {whom}: {now[ranks[0]][1].step}")
        for rank, peer in pairs[:_MOST_AWAITED]:
            hosts = dict.fromkeys((now[rank][0], now[peer][0]))
            step = max(now[rank][1].step, now[peer][1].step, key=len)
            lines.append(f"ranks {rank} and {peer}, with each other on {' and '.join(hosts)}: {step}")
        if len(pairs) > _MOST_AWAITED:
            lines.append(f"{plural(len(pairs) - _MOST_AWAITED, 'more pair')}, with each other")
        if together:
            who = f"rank {together[0]}" if len(together) == 1 else f"{len(together)} ranks"
            lines.append(f"{who}, with all others: {now[together[0]][1].step}")
        return lines + [f"rank {rank} is lost: {how}" for rank, how in sorted(gone.items())[:_MOST_AWAITED]]


class _ReportedEnding(Ending):
    """The end of an aborted job: saves the results so far, then tells the user why."""

    out_of_time_status = EXIT_STATUS[TimeoutExpired]

    def waiting(self, rank: str, where: str) -> None:
        console.error(f"{rank} {where}")

    def out_of_time(self, timeout_s: float) -> None:
        why = f"not done within {timeout_s:g} s"
        console.error(why, rescue_now(why))

    def signalled(self, number: Signals) -> int:
        console.error(f"ended by {number.name}", rescue_now(number.name))
        return 128 + number

    def failed(self, rank: str, error: BaseException) -> int:
        kept = rescue_now(reason_of(error))
        if isinstance(error, CcctlError):
            console.error(f"{rank}: {message_of(error)}", kept or error.hint)
            return exit_status(error)
        traceback.print_exception(error)
        console.error(f"{rank}: this is a bug in ccctl", "please report it with the lines above")
        return INTERNAL


@cache
def _hear_launcher() -> None:
    """Let ``-v`` show the launcher's log from now on: its command line, and the output of ranks."""
    import logging

    class Details(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno < logging.WARNING:
                console.detail(record.getMessage())

    logger = logging.getLogger("exec.launcher")
    logger.addHandler(Details())
    logger.setLevel(logging.INFO)
