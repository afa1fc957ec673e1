"""The first rank of each machine of a cluster, and values of such ranks merged on the way to rank 0."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

__all__ = ["first_ranks", "merged_up_a_tree"]

Value = TypeVar("Value")
Key = TypeVar("Key", bound=Hashable)
# Values that one rank merges with its own: three levels then reach 585 ranks, and four 4,681.
_FAN_IN = 8
_TAG = 41


def first_ranks(machines: Sequence[Key]) -> dict[Key, int]:
    """Return {machine: its first rank}, in the order of these ranks; ``machines`` has one entry a rank."""
    found: dict[Key, int] = {}
    for rank, machine in enumerate(machines):
        found.setdefault(machine, rank)
    return found


def merged_up_a_tree(
    comm: Any, ranks: Sequence[int], mine: Value, merge: Callable[[Value, Value], Value]
) -> Value | None:
    """Return the merged values of ``ranks`` on the first rank, None on the others; all ``ranks`` call it.

    Each rank merges the values of up to eight others with its own, so no rank receives the values of all.
    """
    at = ranks.index(comm.Get_rank())
    for child in ranks[_FAN_IN * at + 1 : _FAN_IN * at + _FAN_IN + 1]:
        mine = merge(mine, comm.recv(source=child, tag=_TAG))
    if at:
        comm.send(mine, dest=ranks[(at - 1) // _FAN_IN], tag=_TAG)
        return None
    return mine
