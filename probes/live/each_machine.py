"""One reading of each machine of a cluster, collected by rank 0 or merged on the way to it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from probes.base import Safekeeping

__all__ = ["first_ranks", "merged_up_a_tree", "read_each_machine"]

Reading = TypeVar("Reading")
Key = TypeVar("Key", bound=Hashable)
# Values that one rank merges with its own: three levels then reach 585 ranks, and four 4,681.
_FAN_IN = 8
_TAG = 41


def read_each_machine(
    comm: Any, machine: tuple[str, str], read: Callable[[], Reading], progress: Safekeeping, what: str
) -> list[Reading] | None:
    """Return the readings of all machines on rank 0, None on the other ranks; collective.

    ``machine`` identifies the machine of this rank, ``what`` names the readings while rank 0 waits for them.
    Each reading is also handed over as soon as it is ready, so that a lost host does not lose the others'.
    """
    progress.waiting(-1, "finding out which ranks share a host")
    machines = comm.allgather(machine)
    found = None
    if first_ranks(machines)[machine] == comm.Get_rank():
        found = read()
        progress.partial(found)
    progress.waiting(-1, what)
    gathered: list[Reading | None] | None = comm.gather(found)
    return None if gathered is None else [reading for reading in gathered if reading is not None]


def first_ranks(machines: Sequence[Key]) -> dict[Key, int]:
    """Return {machine: its first rank}, in the order of these ranks; ``machines`` has one entry a rank."""
    found: dict[Key, int] = {}
    for rank, machine in enumerate(machines):
        found.setdefault(machine, rank)
    return found


def merged_up_a_tree(
    comm: Any, ranks: Sequence[int], mine: Reading, merge: Callable[[Reading, Reading], Reading]
) -> Reading | None:
    """Return the merged values of ``ranks`` on the first of them, None on the others; collective on these.

    Each rank merges the values of up to eight others with its own, so no rank receives those of all.
    """
    at = ranks.index(comm.Get_rank())
    for child in ranks[_FAN_IN * at + 1 : _FAN_IN * at + _FAN_IN + 1]:
        mine = merge(mine, comm.recv(source=child, tag=_TAG))
    if at:
        comm.send(mine, dest=ranks[(at - 1) // _FAN_IN], tag=_TAG)
        return None
    return mine
