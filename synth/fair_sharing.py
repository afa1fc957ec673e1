"""How long a program takes where transfers share what they cross fairly, as flows of TCP do.

``synth.simulate_program`` gives a port to one transfer at a time, in the order of a schedule. Nothing
enforces that order between hosts: whatever is ready is sent at once, and what meets at a port slows
down together. Here each pair of ranks is one flow, which carries its messages one after the other.
"""

from __future__ import annotations

import numpy as np

from probes.columns import Floats, Indices, Mask
from synth.compiler.order import links_of
from synth.events import pop, push
from synth.jit import compiled
from synth.network import Network
from synth.program import Program
from synth.simulate_program import Costs, links_used

__all__ = ["fair_time_s"]


def fair_time_s(program: Program, network: Network, chunk_bytes: int, costs: Costs | None = None) -> float:
    """Seconds with max-min fair rates: no flow can gain but from one that has no more than it.

    A port carries what its fastest link does. Infinite where the program deadlocks; raises UsageError
    where the network lacks a link. O(messages · flows · ports of the busiest moment).
    """
    costs = costs or Costs()
    links = links_of(program)
    link = links_used(program, network, chunk_bytes)
    used = np.unique(link[links.sends])
    flow = np.full(max(1, network.links), -1, dtype=np.int64)
    flow[used] = np.arange(len(used))
    # What costs nothing a byte is as fast as may be counted.
    rate = 1.0 / np.maximum(network.beta_s_per_byte[used], 1e-18)
    start, port = _crossed(network, used)
    return float(
        _run(
            program.tb_start.astype(np.int64),
            program.tb_of.astype(np.int64),
            program.tb_rank.astype(np.int64),
            np.searchsorted(program.tb_rank, np.arange(program.ranks + 1)),
            links.goal,
            links.sends,
            links.receives,
            links.send,
            links.recv,
            _reader(links.recv, links.fifos),
            _reader(links.send, links.fifos),
            costs.fifo,
            np.where(links.sends, flow[link], -1),
            program.count.astype(np.float64) * chunk_bytes,
            network.alpha_s[used].astype(np.float64),
            _capacities(rate, start, port),
            start,
            port,
            costs.step_s,
        )
    )


def _crossed(network: Network, used: Indices) -> tuple[Indices, Indices]:
    """(start, resource): what each flow crosses, itself first, then its link's ports."""
    crossed = [
        [
            number,
            *(len(used) + network.link_port[network.link_port_start[row] : network.link_port_start[row + 1]]),
        ]
        for number, row in enumerate(used.tolist())
    ]
    start = np.concatenate(([0], np.cumsum([len(resources) for resources in crossed]))).astype(np.int64)
    return start, np.array([resource for resources in crossed for resource in resources], dtype=np.int64)


def _capacities(rate: Floats, start: Indices, resource: Indices) -> Floats:
    """Bytes a second of each flow and port."""
    capacity = np.zeros(int(resource.max(initial=0)) + 1)
    np.maximum.at(capacity, resource, np.repeat(rate, np.diff(start)))
    return capacity


def _reader(fifo_of: Indices, fifos: int) -> Indices:
    """The threadblock at one end of each FIFO."""
    found = np.full(fifos + 1, -1, dtype=np.int64)
    found[fifo_of[fifo_of >= 0]] = np.flatnonzero(fifo_of >= 0)
    return found


@compiled
def _run(
    start: Indices,
    tb_of: Indices,
    tb_rank: Indices,
    rank_start: Indices,
    goal: Indices,
    sends: Mask,
    receives: Mask,
    send: Indices,
    recv: Indices,
    reader: Indices,
    writer: Indices,
    depth: int,
    flow: Indices,
    size: Floats,
    alpha_s: Floats,
    capacity: Floats,
    crossed_start: Indices,
    crossed: Indices,
    step_s: float,
) -> float:
    steps, blocks, flows = len(tb_of), len(send), len(alpha_s)
    reached = start[:-1].copy()
    sent = np.zeros(len(reader), dtype=np.int64)
    arrived = np.zeros(len(reader), dtype=np.int64)
    taken = np.zeros(len(reader), dtype=np.int64)
    # The messages of a flow are a chain of steps; the first of them is under way.
    head = np.full(flows, -1, dtype=np.int64)
    tail = np.full(flows, -1, dtype=np.int64)
    after = np.full(steps, -1, dtype=np.int64)
    left = np.zeros(flows)
    rate = np.zeros(flows)
    # Events: the arrival of a step's message, or, above ``steps``, a threadblock that may go on.
    key = np.empty(steps + 2 * blocks + 4)
    what = np.empty(steps + 2 * blocks + 4, dtype=np.int64)
    events = 0
    awake = np.ones(blocks, dtype=np.bool_)
    busy = np.zeros(blocks, dtype=np.bool_)
    queue = np.arange(blocks)
    waiting = blocks
    now_s, last_s, done = 0.0, 0.0, 0
    while True:
        changed = False
        while waiting > 0:
            waiting -= 1
            tb = queue[waiting]
            awake[tb] = False
            step = reached[tb]
            if busy[tb] or step == start[tb + 1]:
                continue
            if goal[step] >= 0 and reached[tb_of[goal[step]]] <= goal[step]:
                continue
            if receives[step] and arrived[recv[tb]] == taken[recv[tb]]:
                continue
            if sends[step] and sent[send[tb]] - taken[send[tb]] >= depth:
                continue
            reached[tb] = step + 1
            done += 1
            last_s = max(last_s, now_s + step_s)
            if receives[step]:
                taken[recv[tb]] += 1
                waiting = _wake(writer[recv[tb]], awake, queue, waiting)
            if sends[step]:
                sent[send[tb]] += 1
                f = flow[step]
                if head[f] < 0:
                    head[f], left[f], changed = step, size[step], True
                else:
                    after[tail[f]] = step
                tail[f] = step
            busy[tb] = True
            events = push(key, what, events, now_s + step_s, steps + tb)
        if changed:
            _share(head, rate, capacity, crossed_start, crossed)
        next_s = _next_s(now_s, key[0] if events > 0 else np.inf, head, left, rate)
        if next_s == np.inf:
            return last_s if done == steps else np.inf
        events, ended = _carry(now_s, next_s, head, after, left, rate, size, alpha_s, key, what, events)
        now_s = next_s
        if ended:
            _share(head, rate, capacity, crossed_start, crossed)
        while events > 0 and key[0] <= now_s:
            event = what[0]
            events = pop(key, what, events)
            if event < steps:
                fifo = send[tb_of[event]]
                arrived[fifo] += 1
                waiting = _wake(reader[fifo], awake, queue, waiting)
                continue
            tb = event - steps
            busy[tb] = False
            here = tb_rank[tb]
            # Any threadblock of the rank may have waited for this step.
            for other in range(rank_start[here], rank_start[here + 1]):
                waiting = _wake(other, awake, queue, waiting)


@compiled
def _wake(tb: int, awake: Mask, queue: Indices, waiting: int) -> int:
    """Put a threadblock (-1: none) among those that may go on; how many there are."""
    if tb >= 0 and not awake[tb]:
        awake[tb], queue[waiting] = True, tb
        return waiting + 1
    return waiting


@compiled
def _next_s(now_s: float, event_s: float, head: Indices, left: Floats, rate: Floats) -> float:
    """When something happens next: an event, or the end of a message under way."""
    for f in range(len(head)):
        if head[f] >= 0:
            event_s = min(event_s, now_s + left[f] / rate[f])
    return event_s


@compiled
def _carry(
    now_s: float,
    next_s: float,
    head: Indices,
    after: Indices,
    left: Floats,
    rate: Floats,
    size: Floats,
    alpha_s: Floats,
    key: Floats,
    what: Indices,
    events: int,
) -> tuple[int, bool]:
    """Carry every flow on until ``next_s``: (events with the arrivals, whether a flow has nothing left)."""
    ended = False
    for f in range(len(head)):
        if head[f] < 0:
            continue
        # By the same sum as in ``_next_s``, so that whatever sets the moment ends at it, however it rounds.
        over = now_s + left[f] / rate[f] <= next_s
        left[f] -= rate[f] * (next_s - now_s)
        # What rounding leaves of a message is not worth an event.
        if over or left[f] <= 1e-9 * size[head[f]]:
            events = push(key, what, events, next_s + alpha_s[f], head[f])
            head[f] = after[head[f]]
            left[f] = size[head[f]] if head[f] >= 0 else 0.0
            ended = ended or head[f] < 0
    return events, ended


@compiled
def _share(head: Indices, rate: Floats, capacity: Floats, start: Indices, crossed: Indices) -> None:
    """Give each flow that carries something its rate, in place: the tightest resource is shared out first."""
    free = capacity.copy()
    users = np.zeros(len(capacity), dtype=np.int64)
    open_ = head >= 0
    for f in range(len(head)):
        if open_[f]:
            for at in range(start[f], start[f + 1]):
                users[crossed[at]] += 1
    while True:
        tightest, least = -1, np.inf
        for r in range(len(capacity)):
            if users[r] > 0 and free[r] / users[r] < least:
                tightest, least = r, free[r] / users[r]
        if tightest < 0:
            return
        for f in range(len(head)):
            if not open_[f]:
                continue
            crosses = False
            for at in range(start[f], start[f + 1]):
                crosses = crosses or crossed[at] == tightest
            if crosses:
                # Rounding may leave nothing of a port; what crosses it still has to end.
                rate[f], open_[f] = max(least, 1e-9 * capacity[tightest]), False
                for at in range(start[f], start[f + 1]):
                    free[crossed[at]] = max(0.0, free[crossed[at]] - least)
                    users[crossed[at]] -= 1
