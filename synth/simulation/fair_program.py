"""A simulation of a program whose transfers share ports fairly, as flows of TCP do.

``synth.simulation.program`` gives a port to one transfer at a time, in the order of a schedule. Between hosts
nothing enforces that order: ranks send each message as soon as it is ready, and transfers through one port
slow each other down. Here each pair of ranks is one flow, which carries its messages one after the other. In
a paced program each connection is a flow, at most as fast as its pace.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, Mask, offsets
from synth.kernels import compiled, pop, push
from synth.multimem import refuse_switches
from synth.network import Network
from synth.program import Program
from synth.simulation.fifo_order import links_of
from synth.simulation.max_min_fairness import Flows, carry, enqueue, next_s, share
from synth.simulation.program import Costs, links_used

__all__ = ["fair_time_s"]


def fair_time_s(program: Program, network: Network, chunk_bytes: int, costs: Costs | None = None) -> float:
    """Return the seconds that a program takes if its flows have max-min fair rates.

    A port is as fast as its fastest flow, or as `Network.port_s_per_byte` on a network that queues. The time
    is infinite if the program deadlocks. Raises UsageError if the network lacks a link. O(messages · flows ·
    ports of the busiest moment).
    """
    refuse_switches(program, "the model of flows")
    costs = costs or Costs()
    links = links_of(program)
    link = links_used(program, network, chunk_bytes)
    # Rates stay finite: a link that costs 0 s per byte gets 1e18 bytes per second.
    fastest = 1.0 / np.maximum(network.beta_s_per_byte, 1e-18)
    if len(program.tb_bytes_per_s):
        # Each connection is a paced flow of its own.
        tb = np.unique(program.tb_of[links.sends])
        flow_of = np.full(program.threadblocks, -1, dtype=np.int64)
        flow_of[tb] = np.arange(len(tb))
        first = program.tb_start[tb]
        used, flow = link[first], flow_of[program.tb_of]
        rate = np.minimum(fastest[used], np.maximum(program.tb_bytes_per_s[tb], 1e-18))
    else:
        used = np.unique(link[links.sends])
        of_link = np.full(max(1, network.links), -1, dtype=np.int64)
        of_link[used] = np.arange(len(used))
        flow, rate = of_link[link], fastest[used]
    start, port = _crossed(network, used)
    wiring = _Wiring(
        program.tb_start.astype(np.int64),
        program.tb_of.astype(np.int64),
        program.tb_rank.astype(np.int64),
        np.searchsorted(program.tb_rank, np.arange(program.ranks + 1)),
        links.goal,
        links.sends,
        links.receives,
        links.send,
        links.recv,
        _end(links.recv, links.fifos),
        _end(links.send, links.fifos),
        costs.fifo,
        np.where(links.sends, flow, -1),
    )
    flows = Flows(
        head=np.full(len(used), -1, dtype=np.int64),
        tail=np.full(len(used), -1, dtype=np.int64),
        after=np.full(program.steps, -1, dtype=np.int64),
        left=np.zeros(len(used)),
        rate=np.zeros(len(used)),
        size=program.count.astype(np.float64) * chunk_bytes,
        alpha_s=network.alpha_s[used].astype(np.float64),
        capacity=_capacities(network, rate, fastest, start, port),
        start=start,
        crossed=port,
    )
    return float(_run(wiring, _ready(wiring), flows, costs.step_s))


class _Wiring(NamedTuple):
    """The wiring of a program; ``reader`` and ``writer`` are the threadblocks at a FIFO's ends."""

    start: Indices
    tb_of: Indices
    tb_rank: Indices
    rank_start: Indices
    goal: Indices
    sends: Mask
    receives: Mask
    send: Indices
    recv: Indices
    reader: Indices
    writer: Indices
    depth: int
    flow: Indices


class _State(NamedTuple):
    """Next step of each threadblock, messages of each FIFO, ``queue`` of threadblocks to try."""

    reached: Indices
    busy: Mask
    awake: Mask
    queue: Indices
    sent: Indices
    arrived: Indices
    taken: Indices


def _ready(wiring: _Wiring) -> _State:
    blocks, fifos = len(wiring.send), len(wiring.reader)
    sent, arrived, taken = (np.zeros(fifos, dtype=np.int64) for _ in range(3))
    awake, busy = np.ones(blocks, dtype=np.bool_), np.zeros(blocks, dtype=np.bool_)
    return _State(wiring.start[:-1].copy(), busy, awake, np.arange(blocks), sent, arrived, taken)


def _crossed(network: Network, used: Indices) -> tuple[Indices, Indices]:
    """Return (start, resource) of each flow: its own pace, its link, and the ports of that link."""
    links = len(used) + network.links
    crossed = [
        [number, len(used) + row, *(links + network.ports_of(row))]
        for number, row in enumerate(used.tolist())
    ]
    return offsets(list(map(len, crossed))), np.concatenate([np.zeros(0, np.int64), *crossed])


def _capacities(network: Network, rate: Floats, fastest: Floats, start: Indices, resource: Indices) -> Floats:
    """Return the capacity of each flow, link and port in bytes a second."""
    flows = len(rate)
    capacity = np.zeros(flows + network.links + len(network.ports))
    np.maximum.at(capacity, resource, np.repeat(rate, np.diff(start)))
    capacity[flows : flows + network.links] = fastest
    if network.queues:
        capacity[flows + network.links :] = 1.0 / np.maximum(network.port_s_per_byte, 1e-18)
    return capacity


def _end(fifo_of: Indices, fifos: int) -> Indices:
    """Return the threadblock at one end of each FIFO."""
    found = np.full(fifos + 1, -1, dtype=np.int64)
    found[fifo_of[fifo_of >= 0]] = np.flatnonzero(fifo_of >= 0)
    return found


@compiled
def _run(wiring: _Wiring, state: _State, flows: Flows, step_s: float) -> float:
    steps, blocks = len(wiring.tb_of), len(wiring.send)
    # An event below ``steps`` is the arrival of that step's message. Event ``steps + tb`` is the end of the
    # current step of threadblock ``tb``.
    key = np.empty(steps + 2 * blocks + 4)
    what = np.empty(steps + 2 * blocks + 4, dtype=np.int64)
    events, waiting, done = 0, blocks, 0
    now_s, last_s = 0.0, 0.0
    while True:
        changed = False
        while waiting > 0:
            waiting -= 1
            tb = state.queue[waiting]
            state.awake[tb] = False
            if _may_run(wiring, state, tb):
                waiting, began = _start(wiring, state, flows, tb, waiting)
                changed = changed or began
                done += 1
                last_s = max(last_s, now_s + step_s)
                events = push(key, what, events, now_s + step_s, steps + tb)
        if changed:
            share(flows)
        until_s = next_s(flows, now_s, key[0] if events > 0 else np.inf)
        if until_s == np.inf:
            return last_s if done == steps else np.inf
        events, ended = carry(flows, now_s, until_s, key, what, events)
        now_s = until_s
        if ended:
            share(flows)
        while events > 0 and key[0] <= now_s:
            waiting = _take(wiring, state, what[0], waiting)
            events = pop(key, what, events)


@compiled
def _may_run(wiring: _Wiring, state: _State, tb: int) -> bool:
    step = state.reached[tb]
    if state.busy[tb] or step == wiring.start[tb + 1]:
        return False
    goal = wiring.goal[step]
    if goal >= 0 and state.reached[wiring.tb_of[goal]] <= goal:
        return False
    into, out = wiring.recv[tb], wiring.send[tb]
    if wiring.receives[step] and state.arrived[into] == state.taken[into]:
        return False
    return not wiring.sends[step] or state.sent[out] - state.taken[out] < wiring.depth


@compiled
def _start(wiring: _Wiring, state: _State, flows: Flows, tb: int, waiting: int) -> tuple[int, bool]:
    """Start a threadblock's next step; return (length of the queue, whether a flow began)."""
    step = state.reached[tb]
    state.busy[tb] = True
    if wiring.receives[step]:
        state.taken[wiring.recv[tb]] += 1
        waiting = _wake(state, wiring.writer[wiring.recv[tb]], waiting)
    began = False
    if wiring.sends[step]:
        state.sent[wiring.send[tb]] += 1
        began = enqueue(flows, wiring.flow[step], step)
    return waiting, began


@compiled
def _take(wiring: _Wiring, state: _State, event: int, waiting: int) -> int:
    """Handle an event, the arrival of a message or the end of a step; return the length of the queue."""
    steps = len(wiring.tb_of)
    if event < steps:
        fifo = wiring.send[wiring.tb_of[event]]
        state.arrived[fifo] += 1
        return _wake(state, wiring.reader[fifo], waiting)
    tb = event - steps
    state.reached[tb], state.busy[tb] = state.reached[tb] + 1, False
    here = wiring.tb_rank[tb]
    # Any threadblock of the rank may have waited for this step.
    for other in range(wiring.rank_start[here], wiring.rank_start[here + 1]):
        waiting = _wake(state, other, waiting)
    return waiting


@compiled
def _wake(state: _State, tb: int, waiting: int) -> int:
    """Put a threadblock (-1: none) into the queue unless it is there; return the length of the queue."""
    if tb >= 0 and not state.awake[tb]:
        state.awake[tb], state.queue[waiting] = True, tb
        return waiting + 1
    return waiting
