"""Runs one function on every rank of a world, and never hangs.

Outside MPI this process starts its own ranks with mpirun and watches over them; inside ``mpirun``
or ``srun`` it is one of the ranks and calls the function itself.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ccctl import console
from ccctl.launcher.nodeset import HOSTS_VARIABLE, MOST_RANKS, HostSlots, parse, read_hostfile
from probes.errors import UnavailableError, UsageError
from probes.live.memory import Need, refuse_crowding, rooms

__all__ = ["World", "run_ranks", "started_by_mpi"]

# What a rank takes at least: Python with NumPy, MPI, and its queues in /dev/shm.
_RANK_BYTES, _RANK_SHARED_BYTES = 40 << 20, 1 << 18
_MARKS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK")


@dataclass(frozen=True)
class World:
    """How many ranks, and where: ``ranks`` on this host, or on the slots of ``hosts`` or ``hostfile``."""

    ranks: int | None = None
    hosts: str | None = None
    hostfile: str | None = None

    def placed(self) -> tuple[int, tuple[HostSlots, ...]]:
        """(how many ranks, the hosts they run on; none means here); raises UsageError."""
        if self.ranks is not None and self.ranks < 1:
            raise UsageError(f"-n: expected at least 1 rank, found {self.ranks}")
        if self.ranks is not None and self.ranks > MOST_RANKS:
            raise UsageError(f"-n: expected at most {MOST_RANKS} ranks, found {self.ranks}")
        by_default = self.hosts is not None and self.hosts == os.environ.get(HOSTS_VARIABLE)
        if self.hosts is not None and self.hostfile is not None and not by_default:
            raise UsageError("--hosts and --hostfile both say where the ranks run: give one of them")
        if self.hostfile is not None:
            where = read_hostfile(self.hostfile)
        elif self.hosts is not None:
            where = parse(self.hosts)
        elif self.ranks is None:
            raise UsageError(
                "how many ranks is not said", hint="Add -n 4, or --hosts gpu[01-08]:4, or run inside mpirun."
            )
        else:
            return self.ranks, ()
        slots = sum(entry.slots for entry in where)
        if self.ranks is not None and self.ranks > slots:
            raise UsageError(
                f"-n asks for {self.ranks} ranks, the hosts have {slots} slots",
                hint="Slots follow the name: gpu[01-08]:4",
            )
        return self.ranks or slots, where


def started_by_mpi() -> bool:
    """Whether mpirun, mpiexec or srun started this process as a rank."""
    return any(name in os.environ for name in _MARKS)


def run_ranks(
    task: str,
    arguments: object,
    world: World,
    *,
    label: str,
    timeout_s: float | None = None,
    stall_s: float | None = None,
    keep: Callable[[Any], None] = lambda value: None,
) -> Any:
    """What rank 0's ``function(comm, arguments, progress)`` returns, run on every rank of ``world``.

    ``task`` names the function as "package.module:function". A rank that dies, hangs or is stopped
    raises LostRankError within seconds; an expected error on a rank is raised here as itself. Inside
    mpirun or srun only rank 0 returns: the others leave with status 0.

    With ``stall_s``, a run in which no rank has got on for so long is lost, too: TCP waits for ever for
    a host that is gone. ``keep`` is called with each piece of the result that a rank hands to
    ``progress.partial``, soon after.
    """
    if started_by_mpi():
        from ccctl.launcher.attached import run_inside

        return run_inside(task, arguments, world.ranks, timeout_s, keep)
    _refuse_lone_tasks()
    ranks, where = world.placed()
    _refuse_crowd(ranks, where)
    from ccctl.launcher.session import StartedRanks
    from ccctl.launcher.watchdog import Limits

    with StartedRanks(ranks, where, task, arguments) as started, console.progress(label, 1.0) as bar:
        return started.result(bar, Limits(timeout_s, stall_s), keep)


def _refuse_crowd(ranks: int, where: Sequence[HostSlots]) -> None:
    """Raise UnavailableError where so many processes find no room on this host, whatever they do then.

    Of another host its own ranks ask for room, once they have started.
    """
    here = socket.gethostname()
    local = sum(entry.slots for entry in where if entry.host in (here, "localhost")) if where else ranks
    need = Need(_RANK_BYTES, _RANK_SHARED_BYTES, min(local, ranks))
    refuse_crowding([(here, rooms(), need)], "starting them")


def _refuse_lone_tasks() -> None:
    """Raise UnavailableError where srun started several tasks that cannot know of each other.

    Each would start a world of its own, and the results of so many runs apart look like one of all.
    """
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks.isdecimal() and int(tasks) > 1:
        raise UnavailableError(
            f"srun started {tasks} tasks without PMI: each would be a world of its own",
            hint="srun --mpi=pmix (srun --mpi=list says what there is), or start ccctl once, with --hosts.",
        )
