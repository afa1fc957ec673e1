"""Spare ranks: declared when a run starts, started and let in when their hosts answer."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from exec.launcher import HostSlots
from exec.sockets import Whereabouts

__all__ = ["spares_of"]


def spares_of(
    ranks: int, where: Sequence[HostSlots], spare: Sequence[HostSlots]
) -> tuple[tuple[Whereabouts, ...], Mapping[int, HostSlots]]:
    """Return (expected locations of the ranks on the slots of ``spare``, the host of each).

    They are numbered after the ``ranks`` on ``where``, which are present at the start.
    """
    later = [entry for entry in spare for _ in range(entry.slots)]
    hosts = dict(enumerate([*_hosts_of_ranks(ranks, where), *later]))
    names = {rank: socket.gethostname() if entry.is_here else entry.host for rank, entry in hosts.items()}
    expected = []
    for rank in range(ranks, len(hosts)):
        lowest = min(other for other, name in names.items() if name == names[rank])
        expected.append(Whereabouts(rank, 0, lowest, names[rank], "", 0, ()))
    return tuple(expected), {one.rank: hosts[one.rank] for one in expected}


def _hosts_of_ranks(ranks: int, where: Sequence[HostSlots]) -> list[HostSlots]:
    """Return the host of each of ``ranks`` on the slots of ``where`` in their order, or else here."""
    entries = where or (HostSlots(socket.gethostname(), ranks),)
    return [entry for entry in entries for _ in range(entry.slots)][:ranks]
