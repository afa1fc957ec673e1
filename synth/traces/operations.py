"""The operations of each rank of a schedule for traces: sends, receives, adds, each after others of its rank.

An operation waits for what makes its data whole and for nothing else: a send for the last that came for its
chunk, an add for the message that it adds and for the add before it. The order of sends on one link is not
in a trace: simulators take them as they become ready.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synth.network import Network
from synth.schedules import COPY, Schedule
from synth.simulation import dependencies

__all__ = ["ADD", "RECV", "SEND", "TraceOperation", "operations_of"]

SEND, RECV, ADD = "send", "recv", "add"


class TraceOperation(NamedTuple):
    """``after`` are the numbers of operations of the same rank.

    Messages between two ranks have a ``tag`` each. An add has no peer; it takes ``seconds``, 0 where nobody
    measured what sums cost.
    """

    kind: str
    peer: int
    size_bytes: int
    tag: int
    after: tuple[int, ...]
    seconds: float = 0.0


def operations_of(schedule: Schedule) -> list[list[TraceOperation]]:
    """Return the operations of each rank, each after those that it waits for; O(sends)."""
    network, size = schedule.network, schedule.chunk_bytes
    found: list[list[TraceOperation]] = [[] for _ in range(network.ranks)]
    add_s = _add_s(network, size)
    needs, entered_before = (column.tolist() for column in dependencies(schedule))
    # The operation at the target that ends each row's send.
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
    """Return what it takes each rank to add a chunk, 0 where that was not measured."""
    of_host = {
        memory.host: float(np.interp(size_bytes, memory.sizes_bytes, memory.add_s_per_byte)) * size_bytes
        for memory in network.memory
    }
    return [of_host.get(host, 0.0) for host in network.hosts]
