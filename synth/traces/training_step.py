"""The collectives of a training step, and when they start, by the Chakra traces of its ranks.

Each rank computes one thing at a time, in the order in which its nodes become ready. A collective starts when
all its ranks are ready and its process group has ended the one before, and takes as long as the caller says.
A message is a broadcast between two ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from probes.base import UsageError
from synth.collective import Kind
from synth.traces.chakra import BARRIER, COLLECTIVES, TraceNode
from synth.traces.operations import RECV, SEND

__all__ = ["TracedCollective", "busiest", "traced_collectives"]

# Collectives whose size in a trace is what each rank gives; others state the larger of the two buffers.
_GIVEN = ("all_gather", "gather")


class TracedCollective(NamedTuple):
    """A collective of the step; ``size_bytes`` is the larger of a rank's buffers, ``name`` that of its node.

    ``ranks`` begin with the root, if there is one. ``kind`` is "" for a barrier.
    """

    name: str
    kind: Kind | str
    ranks: tuple[int, ...]
    size_bytes: int
    start_s: float = 0.0


def traced_collectives(
    traces: Mapping[int, Sequence[TraceNode]],
    groups: Mapping[str, Sequence[int]],
    ranks: int,
    seconds: Callable[[TracedCollective], float],
) -> list[TracedCollective]:
    """Return the collectives of a step of ``ranks`` ranks in the order in which they start.

    ``traces`` are the nodes of each rank; ranks without a trace are always ready. ``groups`` are the ranks of
    process groups that the traces do not list. Raises UsageError if a node makes no sense, or if ranks wait
    for each other forever. O(nodes · log nodes).
    """
    listed = {name: tuple(members) for name, members in groups.items()}
    for nodes in traces.values():
        for node in nodes:
            listed |= {name: members or tuple(range(ranks)) for name, members in node.groups.items()}
    return _Step(traces, listed, ranks, seconds).walked()


def busiest(collectives: Sequence[TracedCollective], most: int) -> Sequence[TracedCollective]:
    """Return the ``most`` collectives in a row that move most data."""
    moved = [one.size_bytes * len(one.ranks) for one in collectives]
    windows = range(max(1, len(moved) - most + 1))
    first = max(windows, key=lambda at: sum(moved[at : at + most]))
    return collectives[first : first + most]


class _Step:
    """The nodes of all ranks, and those that still wait."""

    def __init__(
        self,
        traces: Mapping[int, Sequence[TraceNode]],
        groups: Mapping[str, tuple[int, ...]],
        ranks: int,
        seconds: Callable[[TracedCollective], float],
    ) -> None:
        self._traces, self._groups, self._ranks, self._seconds = traces, groups, ranks, seconds
        self._waits: dict[tuple[int, int], int] = {}
        self._next: dict[tuple[int, int], list[TraceNode]] = defaultdict(list)
        self._ready: list[tuple[float, int, int, TraceNode]] = []
        # When each rank may compute again, and each process group communicate.
        self._free_s: dict[int | tuple[int, ...], float] = defaultdict(float)

    def walked(self) -> list[TracedCollective]:
        for rank, nodes in self._traces.items():
            known = {node.number for node in nodes}
            for node in nodes:
                # A trace may leave out nodes that others name.
                before = known.intersection(node.after)
                self._waits[rank, node.number] = len(before)
                for number in before:
                    self._next[rank, number].append(node)
                if not before:
                    heappush(self._ready, (0.0, rank, node.number, node))
        met: dict[TracedCollective, list[list[tuple[int, TraceNode]]]] = defaultdict(list)
        found = []
        while self._ready:
            ready_s, rank, _, node = heappop(self._ready)
            one = self._collective(rank, node)
            if one is None:
                start_s = max(ready_s, self._free_s[rank]) if node.seconds else ready_s
                if node.seconds:
                    self._free_s[rank] = start_s + node.seconds
                self._end(start_s + node.seconds, [(rank, node)])
                continue
            # A rank's next node of this collective meets the first that has none of the rank.
            meeting = next((each for each in met[one] if rank not in dict(each)), None)
            if meeting is None:
                met[one].append(meeting := [])
            meeting.append((rank, node))
            if {member for member, _ in meeting} == self._traces.keys() & set(one.ranks):
                met[one].remove(meeting)
                start_s = max(ready_s, self._free_s[one.ranks])
                self._free_s[one.ranks] = end_s = start_s + (self._seconds(one) if one.size_bytes else 0.0)
                self._end(end_s, meeting)
                if one.size_bytes and len(one.ranks) > 1:
                    found.append(one._replace(name=meeting[0][1].name, start_s=start_s))
        for one, meetings in met.items():
            for meeting in meetings:
                rank, node = meeting[0]
                missing = min(self._traces.keys() & set(one.ranks) - {member for member, _ in meeting})
                raise UsageError(
                    f"rank {rank} waits in {node.name} (node {node.number}) for rank {missing}, which never "
                    f"takes part in such a {one.kind or 'barrier'} of {one.size_bytes} bytes"
                )
        if stuck := next((key for key, count in self._waits.items() if count), None):
            raise UsageError(f"node {stuck[1]} of rank {stuck[0]} waits for itself")
        return sorted(found, key=lambda one: one.start_s)

    def _end(self, end_s: float, nodes: Sequence[tuple[int, TraceNode]]) -> None:
        for rank, node in nodes:
            for later in self._next[rank, node.number]:
                self._waits[rank, later.number] -= 1
                if not self._waits[rank, later.number]:
                    heappush(self._ready, (end_s, rank, later.number, later))

    def _collective(self, rank: int, node: TraceNode) -> TracedCollective | None:
        """Return what the node takes part in, None if it computes; raises UsageError."""
        if not node.kind:
            return None
        values, where = node.values, f"{node.name} (node {node.number} of rank {rank})"
        size = values.get("comm_size")
        if not isinstance(size, int) or size < 0:
            raise UsageError(f"{where}: expected comm_size in bytes, found {size!r}")
        if node.kind in (SEND, RECV):
            ends = (values.get("comm_src", rank), values.get("comm_dst", rank))
            if rank != ends[node.kind == RECV] or len(self._proper(ends)) != 2:
                raise UsageError(f"{where}: expected another rank as comm_src or comm_dst, found {ends}")
            # The tag tells messages apart until they have met.
            return TracedCollective(f"tag {values.get('comm_tag', 0)}", "broadcast", ends, size)
        number, group = values.get("comm_type"), str(values.get("pg_name", values.get("comm_group", "")))
        if number != BARRIER and number not in COLLECTIVES:
            raise UsageError(f"{where}: expected a known comm_type, found {number!r}")
        members = self._groups.get(group) or (tuple(range(self._ranks)) if group in ("", "0") else ())
        if rank not in self._proper(members):
            raise UsageError(
                f"{where}: expected rank {rank} and others of {self._ranks} ranks in group {group!r}, found "
                f"{list(members)}",
                hint="A JSON file beside the traces lists the ranks of each process group.",
            )
        kind = COLLECTIVES.get(number, "")
        return TracedCollective(
            group, kind, members, 0 if not kind else size * (len(members) if kind in _GIVEN else 1)
        )

    def _proper(self, members: Sequence[int]) -> set[int]:
        """Return the members that are ranks of the step."""
        return {one for one in members if 0 <= one < self._ranks}
