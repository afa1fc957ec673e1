"""The sends, receives and adds of each rank of a schedule, with their dependencies, for traces.

An operation waits only for its data. A send waits for the last arrival of its chunk. A copying receive waits
for the chunk's previous arrival. An add waits for the previous arrival and for the message that it adds. A
trace does not state the order of sends on one link: simulators start them as they become ready.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synth.multimem import refuse_switches
from synth.network import Network
from synth.schedules import COPY, Schedule
from synth.simulation import dependencies

__all__ = ["ADD", "RECV", "SEND", "TraceOperation", "operations_of"]

SEND, RECV, ADD = "send", "recv", "add"


class TraceOperation(NamedTuple):
    """One operation of a rank; ``after`` are the numbers of the rank's operations that it waits for.

    Each message between two ranks has its own ``tag``. An add has no peer; it takes ``seconds``, 0 if the
    cost of sums was not measured.
    """

    kind: str
    peer: int
    size_bytes: int
    tag: int
    after: tuple[int, ...]
    seconds: float = 0.0


def operations_of(schedule: Schedule) -> list[list[TraceOperation]]:
    """Return the operations of each rank, each after the operations that it waits for; O(sends).

    Raises UsageError for a schedule that switches carry out.
    """
    refuse_switches(schedule, "a trace of messages")
    network, size = schedule.network, schedule.chunk_bytes
    found: list[list[TraceOperation]] = [[] for _ in range(network.ranks)]
    add_s = _add_s(network, size)
    needs, entered_before = (column.tolist() for column in dependencies(schedule))
    # The operation at the target that completes each row's send.
    ended: list[int] = []
    messages: dict[tuple[int, int], int] = {}
    ends = zip(network.src[schedule.link].tolist(), network.dst[schedule.link].tolist(), strict=True)
    for row, (src, dst) in enumerate(ends):
        tag = messages.get((src, dst), 0)
        messages[src, dst] = tag + 1
        whole = (ended[needs[row]],) if needs[row] >= 0 else ()
        before = (ended[entered_before[row]],) if entered_before[row] >= 0 else ()
        copies = bool(schedule.op[row] == COPY)
        found[src].append(TraceOperation(SEND, dst, size, tag, whole))
        found[dst].append(TraceOperation(RECV, src, size, tag, before if copies else ()))
        if not copies:
            after = (*before, len(found[dst]) - 1)
            found[dst].append(TraceOperation(ADD, -1, size, -1, after, add_s[dst]))
        ended.append(len(found[dst]) - 1)
    return found


def _add_s(network: Network, size_bytes: int) -> list[float]:
    """Return the seconds that each rank takes to add a chunk, 0 if not measured."""
    of_host = {
        memory.host: float(np.interp(size_bytes, memory.sizes_bytes, memory.add_s_per_byte)) * size_bytes
        for memory in network.memory
    }
    return [of_host.get(host, 0.0) for host in network.hosts]
