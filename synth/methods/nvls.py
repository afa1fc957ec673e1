"""NVLink SHARP: the switch of each host sums and copies (``multimem.ld_reduce``, ``multimem.st``).

Each rank reads the sum of its chunks from all ranks of its host in one operation, and writes the result to
all of them in another. With several hosts, ranks of the same place in their hosts exchange sums in between:
the owner of a chunk receives the sums of the other hosts, and sends the total back.

Klenk et al., An In-Network Architecture for Accelerating Shared-Memory Multiprocessor Collectives (ISCA
2020); NCCL's algorithm NVLS.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.base import Indices, bytes_of, ints, spans
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.multimem import laned, operations
from synth.network import Network
from synth.networks import host_places, hosts_of, link_table, links_between
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling import line_up, of_turns

__all__ = ["suits", "synthesize"]

_KINDS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce")
# The phases of a chunk: the sum in each host, sums to the owner's host, totals back, the copy in each host.
_SUM, _TO_OWNER, _FROM_OWNER, _SPREAD = range(4)


def suits(network: Network, collective: Collective) -> bool:
    """Return whether the network has switches that sum and copy."""
    return network.multimem_s_per_byte > 0


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return an all_reduce, reduce_scatter, all_gather, broadcast or reduce with operations of switches.

    Raises NotApplicableError if no switch sums and copies, if hosts differ, for other collectives, and for a
    root among several hosts, whose NIC would carry everything. O(ranks · chunks) sends.
    """
    if not network.multimem_s_per_byte:
        raise NotApplicableError(
            f"nvls needs switches that sum and copy (NVLink SHARP), such as those of dgx-h100+nvls; "
            f"{network.name} has none"
        )
    if collective.kind not in _KINDS or not collective.whole:
        raise NotApplicableError(f"nvls does not serve {collective.label}")
    members = _members(network)
    if len(members) > 1 and collective.kind in ("broadcast", "reduce"):
        raise NotApplicableError(f"nvls serves {collective.kind} within one host only")
    table = _Table(network, collective, chunk_bytes, members)
    if collective.reduces:
        table.sum_up()
    if collective.kind not in ("reduce_scatter", "reduce"):
        table.spread()
    return table.schedule(seed)


def _members(network: Network) -> Indices:
    """Return (hosts, ranks a host): the ranks of every host; raise NotApplicableError if hosts differ."""
    if len(set(network.hosts)) > 1:
        return hosts_of(network, "nvls")
    if network.ranks < 2:
        raise NotApplicableError("nvls needs two ranks")
    return np.arange(network.ranks)[None]


class _Table:
    """The rows of a schedule: chunk, link, op, phase, and the number of the switch's operation."""

    def __init__(self, network: Network, collective: Collective, chunk_bytes: int, members: Indices) -> None:
        self._network, self._collective, self._chunk_bytes = network, collective, chunk_bytes
        self._members = members
        self._links = link_table(network, chunk_bytes)
        self._chunk = np.arange(collective.chunks)
        self._owner, self._lap = collective.owner_of()
        host, place = host_places(members)
        self._home, self._place = host[self._owner], place[self._owner]
        self._rows: list[tuple[Indices, ...]] = []
        self._operations = 0

    def sum_up(self) -> None:
        """Add the sum of each chunk in every host, and the sums between hosts."""
        self._in_switches(REDUCE, _SUM)
        self._between(REDUCE, _TO_OWNER)

    def spread(self) -> None:
        """Add the sends of each chunk to the other hosts, and its copy in every host."""
        self._between(COPY, _FROM_OWNER)
        self._in_switches(COPY, _SPREAD)

    def _in_switches(self, op: int, phase: int) -> None:
        hosts, size = self._members.shape
        one = self._members[:, self._place].T[:, :, None]
        steps = np.arange(1, size)
        other = self._members[np.arange(hosts)[:, None], (self._place[:, None, None] + steps) % size]
        src, dst = (other, one) if op == REDUCE else (one, other)
        number = self._operations + np.arange(self._collective.chunks * hosts).reshape(-1, hosts, 1)
        self._operations += self._collective.chunks * hosts
        self._add(self._chunk[:, None, None], src, dst, op, phase, number)

    def _between(self, op: int, phase: int) -> None:
        hosts = len(self._members)
        away = (self._home[:, None] + np.arange(1, hosts)) % hosts
        other, owner = self._members[away, self._place[:, None]], self._owner[:, None]
        src, dst = (other, owner) if op == REDUCE else (owner, other)
        self._add(self._chunk[:, None], src, dst, op, phase, np.array(-1), np.arange(1, hosts))

    def _add(
        self,
        chunk: Indices,
        src: Indices,
        dst: Indices,
        op: int,
        phase: int,
        number: Indices,
        away: int | Indices = 0,
    ) -> None:
        link = links_between(self._links, src, dst, "nvls")
        # Totals go back while the next lap's sums travel, so both directions of a NIC are always busy.
        turn = (self._lap[chunk] + (phase >= _FROM_OWNER)) * (_SPREAD + 1) + phase
        urgency = turn * len(self._members) + away
        columns = np.broadcast_arrays(chunk, link, op, phase, urgency, number)
        self._rows.append(tuple(column.ravel() for column in columns))

    def schedule(self, seed: int) -> Schedule:
        """Return the schedule in which each operation and send starts once its data and ports allow."""
        chunk, link, op, phase, urgency, number = (
            np.concatenate([block[at] for block in self._rows]).astype(np.int64) for at in range(6)
        )
        unordered = Schedule(
            self._network,
            self._collective,
            self._chunk_bytes,
            "nvls",
            seed,
            ints(chunk),
            ints(link),
            bytes_of(op),
            multimem=ints(number),
        )
        apart = laned(unordered)
        first, end = operations(unordered)
        heads = np.flatnonzero(first == np.arange(len(first)))
        columns = apart.network, self._collective, chunk[heads], apart.link[heads]
        precedence = of_turns(*columns, phase[heads])
        order, _ = line_up(apart.network, self._chunk_bytes, apart.link[heads], precedence, urgency[heads])
        rows = spans(heads[order], (end - first)[heads[order]])
        return replace(
            unordered,
            chunk=ints(chunk[rows]),
            link=ints(link[rows]),
            op=bytes_of(op[rows]),
            multimem=ints(number[rows]),
        )
