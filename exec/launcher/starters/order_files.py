"""Writers of rank orders for launchers: hostfile, machinefile, rankfile, SLURM_HOSTFILE, node ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["FORMATS", "PlacedHost", "keeps_slots", "order_file"]


@dataclass(frozen=True)
class PlacedHost:
    """A host in the new order: its slots in the order of ranks, and its old index, from 0."""

    host: str
    slots: tuple[int, ...]
    index: int


def order_file(hosts: Sequence[PlacedHost], form: str) -> str:
    """Return the text of one of ``FORMATS``, with a line feed at its end."""
    return "".join(f"{line}\n" for line in _WRITERS[form](hosts))


def keeps_slots(form: str) -> bool:
    """Return whether a format says which slot of a host a rank takes."""
    return form == "rankfile"


def _hostfile(hosts: Sequence[PlacedHost]) -> list[str]:
    """Write for Open MPI: ``mpirun --hostfile FILE``."""
    return [f"{machine.host} slots={len(machine.slots)}" for machine in hosts]


def _machinefile(hosts: Sequence[PlacedHost]) -> list[str]:
    """Write for MPICH's and Intel's hydra: ``mpiexec -f FILE``."""
    return [f"{machine.host}:{len(machine.slots)}" for machine in hosts]


def _rankfile(hosts: Sequence[PlacedHost]) -> list[str]:
    """Write for Open MPI: ``mpirun --map-by rankfile:file=FILE``; a slot is a core."""
    placed = [(machine.host, slot) for machine in hosts for slot in machine.slots]
    return [f"rank {rank}={host} slot={slot}" for rank, (host, slot) in enumerate(placed)]


def _slurm(hosts: Sequence[PlacedHost]) -> list[str]:
    """Write the host of each task: ``SLURM_HOSTFILE=FILE srun --distribution=arbitrary``."""
    return [machine.host for machine in hosts for _ in machine.slots]


def _torchrun(hosts: Sequence[PlacedHost]) -> list[str]:
    """Write the words for ``torchrun`` on each host, one line per host."""
    return [
        f"{machine.host} --nnodes={len(hosts)} --node-rank={rank} --nproc-per-node={len(machine.slots)} "
        f"--master-addr={hosts[0].host}"
        for rank, machine in enumerate(hosts)
    ]


def _kubernetes(hosts: Sequence[PlacedHost]) -> list[str]:
    """Write the node rank of each pod of an indexed job, the pod with index 0 first."""
    place = {machine.index: rank for rank, machine in enumerate(hosts)}
    return [",".join(str(place[index]) for index in sorted(place))]


_WRITERS: dict[str, Callable[[Sequence[PlacedHost]], list[str]]] = {
    "hostfile": _hostfile,
    "machinefile": _machinefile,
    "rankfile": _rankfile,
    "slurm": _slurm,
    "torchrun": _torchrun,
    "kubernetes": _kubernetes,
}
FORMATS = tuple(_WRITERS)
