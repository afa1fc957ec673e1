"""The launcher's entry: runs one function on every rank of a world, and never hangs.

Outside MPI this process starts its own ranks and watches them; inside ``mpirun`` or ``srun`` it is one of the
ranks and calls the function itself.
"""

from __future__ import annotations

import logging
import math
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exec.launcher.nodeset import MOST_RANKS, HostSlots, parse, read_hostfile
from probes.base import SILENT, LostRankError, Progress, Safekeeping, UnavailableError, UsageError, quoted
from probes.live import Need, refuse_crowding, rooms

if TYPE_CHECKING:
    from exec.launcher.ending import Ending
    from exec.launcher.protocol import Heartbeat, Lost, Wires

__all__ = ["World", "launch", "run_ranks", "started_by_mpi"]

_log = logging.getLogger(__name__)

# Maximum number of starts of a run that survives losses. If a rank is lost before all are connected, all
# ranks are started again: no rank has begun the task by then, or knows where the others are.
_STARTS = 3

# Least memory of a rank: Python with NumPy, MPI, and its queues in /dev/shm.
_RANK_BYTES, _RANK_SHARED_BYTES = 40 << 20, 1 << 18
_TASK = re.compile(r"[\w.]+:[\w.]+")
_MARKS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK")


@dataclass(frozen=True)
class World:
    """The number and place of ranks: ``ranks`` here, or on the slots of ``hosts`` or ``hostfile``.

    On each slot of ``spare`` one more rank may join later.
    """

    ranks: int | None = None
    hosts: str | None = None
    hostfile: str | None = None
    spare: str | None = None

    def placed(self) -> tuple[int, tuple[HostSlots, ...]]:
        """Return (number of ranks, their hosts; no hosts means here); raises UsageError.

        Raises UnavailableError if srun started several tasks without PMI.
        """
        _refuse_lone_tasks()
        if self.ranks is not None and self.ranks < 1:
            raise UsageError(f"ranks: expected at least 1 rank, found {self.ranks}")
        if self.ranks is not None and self.ranks > MOST_RANKS:
            raise UsageError(f"ranks: expected at most {MOST_RANKS} ranks, found {self.ranks}")
        where = self._where()
        if where is None:
            if self.ranks is None:
                raise UsageError(
                    "the number of ranks is missing",
                    hint="Give ranks=4, or hosts='gpu[01-08]:4', or run inside mpirun.",
                )
            return self.ranks, ()
        slots = sum(entry.slots for entry in where)
        if self.ranks is not None and self.ranks > slots:
            raise UsageError(
                f"ranks={self.ranks}, but the hosts have {slots} slots",
                hint="Slots follow the name: gpu[01-08]:4; in Slurm they are the tasks.",
            )
        return self.ranks or slots, where

    def with_manager(self) -> World:
        """Return a world with one more rank in front, on the first host, that hands out work to others."""
        ranks, where = self.placed()
        if not where:
            return World(ranks + 1)
        slots = [where[0].slots + 1, *(entry.slots for entry in where[1:])]
        hosts = ",".join(f"{entry.host}:{count}" for entry, count in zip(where, slots, strict=True))
        return World(ranks + 1, hosts)

    def spares(self) -> tuple[HostSlots, ...]:
        """Return the hosts of the ranks that may join later; raises UsageError."""
        return () if self.spare is None else _parsed("spare", self.spare)

    def _where(self) -> tuple[HostSlots, ...] | None:
        if self.hosts is not None and self.hostfile is not None:
            raise UsageError(
                f"hosts={self.hosts!r} and hostfile={self.hostfile!r} both say where the ranks run: "
                "give one of them"
            )
        if self.hostfile is not None:
            return read_hostfile(self.hostfile)
        return None if self.hosts is None else _parsed("hosts", self.hosts)


def _parsed(argument: str, text: str) -> tuple[HostSlots, ...]:
    """Return the hosts of a node set; raises UsageError that begins with the name of the argument."""
    try:
        return parse(text)
    except UsageError as error:
        raise UsageError(f"{argument}: {error.message}", hint=error.hint) from error


def started_by_mpi() -> bool:
    """Return whether mpirun, mpiexec or srun started this process as a rank."""
    return any(name in os.environ for name in _MARKS)


def launch(
    function: Callable[[Any, Any, Safekeeping], Any] | str,
    arguments: object = None,
    *,
    ranks: int | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    timeout_s: float | None = None,
    stall_s: float | None = None,
    keep: Callable[[Any], None] = lambda value: None,
    progress: Progress = SILENT,
    wires: Wires = "mpi",
    survive: bool = False,
    rejoin: int = 0,
    spare: str | None = None,
    on_lost: Callable[[Lost], None] = lambda lost: None,
) -> Any:
    """Call ``function(comm, arguments, progress)`` on every rank; return rank 0's result.

    ``comm`` is mpi4py's ``COMM_WORLD`` on ``ranks`` processes of this host, or on the slots of ``hosts``
    ("gpu[01-08]:4,login1:2") or of a ``hostfile``. The function must be importable by the ranks. It is given
    as an object or by its name, "package.module:function"; ranks find modules where this process does. It
    reports to its ``progress``: how far it is (``update``), whom it waits for (``waiting``), and pieces of
    its result that are kept even if the run fails (``partial``). ``keep`` is called here with each piece, and
    the ``progress`` given here with the updates of rank 0. ``arguments`` and the function's result are sent
    as records.

    Raises UsageError for impossible arguments; UnavailableError if ranks do not start; LostRankError if one
    dies or is stopped, or with ``stall_s`` if no rank makes progress for so long; TimeoutExpired after
    ``timeout_s`` seconds; a rank's error if it is a CcctlError, else RankFailed with its traceback. No
    process, file or shared memory of the run is left then. A launch takes about a second on one host.

    Inside the user's own mpirun or srun this process is one of the ranks: every rank calls ``launch``, all
    but rank 0 get None, an exception on one rank aborts the job, and ``progress`` and ``stall_s`` are not
    used.

    With ``wires="sockets"`` neither MPI nor mpirun is needed: ``comm`` is a group of `exec.sockets`, and the
    ranks of other hosts are started through the remote shell that mpirun would use. With ``survive=True`` as
    well, the run goes on after the death of ranks or of a whole host. ``on_lost`` is called here with each
    lost rank; on the remaining ranks ``progress.on_lost(callback)`` registers a callback, and
    ``progress.fence(rank)`` ends a rank that is stopped or too slow. The value comes from the lowest
    remaining rank that does not return None; LostRankError means that no rank is left. If a rank dies before
    all are connected, all are started again, twice at most. An error of a rank ends the run. This does not
    work inside the user's own mpirun.

    A lost rank is started again on its host up to ``rejoin`` times, with growing delays. The restarted rank
    calls the function anew, and its `Session` joins the others. Until the others have admitted the rank, its
    end or error does not affect the run.

    ``spare`` names hosts as ``hosts`` does. Ranks on their slots are started once the others are at work. If
    a host does not answer, the start is tried again at least once a minute. These ranks are numbered after
    the others and join as lost ranks do, so that a run grows while it runs. ``comm`` has only the ranks of
    the start.

    >>> from exec import launch
    >>> greetings = launch("exec.launcher.selftest:hello", ranks=2, timeout_s=60)
    >>> len(greetings.hosts)
    2
    >>> launch("exec.launcher.selftest:survivors", ranks=3, wires="sockets", survive=True, timeout_s=60)
    (0, 2)
    """
    if isinstance(function, str) and not _TASK.fullmatch(function):
        raise UsageError(f"function: expected a name like 'module:function', found {quoted(function)}")
    return run_ranks(
        function if isinstance(function, str) else _name_of(function),
        arguments,
        World(ranks, hosts, hostfile, spare),
        timeout_s=timeout_s,
        stall_s=stall_s,
        keep=keep,
        progress=progress,
        wires=wires,
        survive=survive,
        rejoin=rejoin,
        on_lost=on_lost,
        path=[str(Path(folder).absolute()) for folder in sys.path],
    )


def _name_of(function: Callable[..., Any]) -> str:
    """Return the name by which ranks import a function; raises UsageError if it has none."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if module in (None, "__main__"):
        raise UsageError(
            f"function: ranks cannot import {name or function!r}, which {module or 'no module'} defines",
            hint="Put it into a module of its own, and import it from there.",
        )
    found: Any = sys.modules.get(str(module))
    for part in str(name).split("."):
        found = getattr(found, part, None)
    if found is not function:
        raise UsageError(
            f"function: ranks cannot import {name or function!r}: {module} has another of that name, or none",
            hint="Give a function of a module, no lambda and none that is defined inside another.",
        )
    return f"{module}:{name}"


def run_ranks(
    task: str,
    arguments: object,
    world: World,
    *,
    timeout_s: float | None = None,
    stall_s: float | None = None,
    keep: Callable[[Any], None] = lambda value: None,
    progress: Progress = SILENT,
    wires: Wires = "mpi",
    survive: bool = False,
    rejoin: int = 0,
    on_lost: Callable[[Lost], None] = lambda lost: None,
    on_status: Callable[[int, str, Heartbeat], None] = lambda rank, host, status: None,
    ending: Ending | None = None,
    path: Sequence[str] = (),
) -> Any:
    """Run the function named ``task`` on every rank of ``world``, as `launch` does; return rank 0's result.

    ``on_status`` is called with a rank, its host and its status at each report. Ranks find modules where a
    fresh Python does, and then in the folders of ``path``. Inside mpirun or srun, ``ending`` is called before
    an error ends the job. Notes of an error hold the last output of mpirun or the ranks.
    """
    if survive and wires == "mpi":
        raise UsageError("survive=True: MPI ends all ranks when one dies", hint="Give wires='sockets'.")
    if rejoin and not survive:
        raise UsageError("rejoin: ranks are started again only in a run that survives their loss")
    spares = world.spares()
    if spares and not survive:
        raise UsageError("spare: only a run that survives the loss of a rank can grow")
    if started_by_mpi():
        if wires == "sockets":
            raise UsageError(
                "wires='sockets' starts ranks of its own, but this process is a rank of mpirun or srun",
                hint="Start it outside mpirun, with the hosts.",
            )
        from exec.launcher.attached import run_inside
        from exec.launcher.ending import Ending

        return run_inside(task, arguments, world.ranks, timeout_s, keep, ending or Ending())
    ranks, where = world.placed()
    _refuse_crowd(ranks, where)
    from exec.launcher.protocol import JobForRanks
    from exec.launcher.session import StartedRanks, spares_of
    from exec.launcher.watchdog import Heard

    absent, hosts = spares_of(ranks, where, spares)
    most = ranks + len(absent)
    job = JobForRanks(
        task, arguments, most, tuple(path), wires, survive=survive, rejoin=rejoin, spares=absent
    )
    heard, until_s = Heard(progress, keep, on_lost, on_status), time.monotonic() + (timeout_s or math.inf)
    left_s = timeout_s
    for left in reversed(range(_STARTS if survive else 1)):
        with StartedRanks(where, job, hosts) as started:
            try:
                return started.result(heard, left_s, stall_s)
            except LostRankError as error:
                if started.connected or not left:
                    raise
                why = str(error).splitlines()[0]
        _log.warning(f"{why}; the ranks were not connected yet, so all are started again")
        left_s = None if timeout_s is None else max(0.0, until_s - time.monotonic())
    raise AssertionError("the last start returns or raises")


def _refuse_crowd(ranks: int, where: Sequence[HostSlots]) -> None:
    """Raise UnavailableError if this host lacks the memory that its ranks take even when idle.

    Ranks on other hosts check the room there themselves, once they have started.
    """
    here = socket.gethostname()
    local = sum(entry.slots for entry in where if entry.is_here) if where else ranks
    need = Need(_RANK_BYTES, _RANK_SHARED_BYTES, min(local, ranks))
    refuse_crowding([(here, rooms(), need)], "starting them")


def _refuse_lone_tasks() -> None:
    """Raise UnavailableError if srun started several tasks without PMI.

    Each task would start a world of its own, and the results of these separate runs would look like one.
    """
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks.isdecimal() and int(tasks) > 1 and not started_by_mpi():
        raise UnavailableError(
            f"srun started {tasks} tasks without PMI: each would be a world of its own",
            hint="srun --mpi=pmix (srun --mpi=list says what there is), or start one task with the hosts.",
        )
