"""List scheduling (Graham 1969): a schedule of a given set of sends, made event by event.

A method assigns chunks to links and gives each send a turn. A send is ready when all sends of its chunk that
reach its source in earlier turns have arrived. Whenever a link and its ports are free, the most urgent ready
send goes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from probes.base import Bytes, Floats, Indices, Mask, bytes_of, ints, offsets, spans
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.kernels import LinkState, argsorted, compiled, is_free, link_state, occupy, offer, pop, push
from synth.network import Network
from synth.schedules import Schedule
from synth.scheduling.precedence import Precedence, of_turns
from synth.simulation import replay

__all__ = ["Sends", "SendsOfParts", "in_order", "in_start_order", "line_up", "link_of"]


class Sends:
    """Collector of sends, each with a turn and an urgency, that makes a schedule of them."""

    def __init__(self) -> None:
        self._blocks: list[list[Indices]] = []

    def add(
        self,
        chunk: int | Indices,
        link: int | Indices,
        op: int | Bytes,
        turn: int | Indices,
        urgency: int | Indices | Floats | None = None,
    ) -> None:
        """Add sends of ``chunk`` over ``link``; a send must have a later turn than the sends it needs.

        Among ready sends the lowest ``urgency`` goes first, by default the lowest turn. Each argument may be
        one number or a column; they are broadcast against each other.
        """
        columns = (chunk, link, op, turn, turn if urgency is None else urgency)
        self._blocks.append([column.ravel() for column in np.broadcast_arrays(*map(np.asarray, columns))])

    def schedule(
        self, network: Network, collective: Collective, chunk_bytes: int, method: str, seed: int = 0
    ) -> Schedule:
        """Return the schedule in which each send starts once it is ready and its link and ports are free.

        O(sends · log sends). Sends whose data never arrives are left out, and the checker reports them.
        """
        chunk, link, op, turn, urgency = (
            np.concatenate([block[at] for block in self._blocks] or [np.zeros(0, np.int64)])
            for at in range(5)
        )
        precedence = of_turns(network, collective, chunk, link, turn)
        order, _ = line_up(network, chunk_bytes, link, precedence, urgency)
        return Schedule(
            network,
            collective,
            chunk_bytes,
            method,
            seed,
            ints(chunk[order]),
            ints(link[order]),
            bytes_of(op[order]),
        )


class SendsOfParts:
    """Collector of sends that name their addends, each added after the sends that it needs."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int]] = []
        self._addends: list[list[int]] = []

    def add(self, chunk: int, link: int, op: int, addends: list[int]) -> int:
        """Add a send and return its row; ``addends`` are rows, or -1 for the source's own contribution."""
        self._rows.append((chunk, link, op))
        self._addends.append(list(addends))
        return len(self._rows) - 1

    def schedule(
        self, network: Network, collective: Collective, chunk_bytes: int, method: str, seed: int = 0
    ) -> Schedule:
        """Return the sends in the order of their starts."""
        table = np.array(self._rows, dtype=np.int64).reshape(-1, 3)
        flat = [part for parts in self._addends for part in parts]
        return in_start_order(
            Schedule(
                network,
                collective,
                chunk_bytes,
                method,
                seed,
                ints(table[:, 0]),
                ints(table[:, 1]),
                bytes_of(table[:, 2]),
                addend_start=ints(offsets([len(parts) for parts in self._addends])),
                addend=ints(flat),
            )
        )


def in_start_order(schedule: Schedule) -> Schedule:
    """Return the same sends in the order of their starts in a replay; all times stay the same."""
    return in_order(schedule, np.argsort(replay(schedule).start_s, kind="stable"))


def in_order(schedule: Schedule, order: Indices) -> Schedule:
    """Return the sends of the rows ``order``, in this order; it must contain the addends of its sends."""
    chunk, link, op = schedule.chunk[order], schedule.link[order], schedule.op[order]
    stream = schedule.stream[order] if len(schedule.stream) else schedule.stream
    found = replace(schedule, chunk=ints(chunk), link=ints(link), op=bytes_of(op), stream=ints(stream))
    if not schedule.exchanges:
        return found
    place = np.full(schedule.sends + 1, -1)
    place[order] = np.arange(len(order))
    first, counts = schedule.addend_start[:-1][order], np.diff(schedule.addend_start)[order]
    addend = place[schedule.addend[spans(first, counts)]]
    return replace(found, addend_start=ints(offsets(counts)), addend=ints(addend))


def link_of(links: dict[tuple[int, int], int], src: int, dst: int, method: str) -> int:
    """Return the row of the link src → dst; raise NotApplicableError if there is none."""
    try:
        return links[src, dst]
    except KeyError:
        raise NotApplicableError(f"{method} needs a link from rank {src} to rank {dst}") from None


def line_up(
    network: Network, chunk_bytes: int, link: Indices, precedence: Precedence, urgency: Indices | Floats
) -> tuple[Indices, Floats]:
    """Return (rows in order of start, arrivals); of ready sends the least ``urgency`` goes first.

    Sends that are never ready are left out of the order, and their arrival is infinite. O((sends + edges) ·
    log sends).
    """
    sends = _Sends(
        link.astype(np.int64), urgency.astype(np.float64), precedence.waits, *precedence.successors
    )
    queues = _Queues(
        offsets(np.bincount(link, minlength=network.links)),
        np.empty(len(link)),
        np.empty(len(link), np.int64),
        np.zeros(network.links, np.int64),
        np.empty(precedence.milestones, np.int64),
    )
    state = link_state(network.link_port_start, network.link_port, *network.port_links)
    hold_s = network.hold_s(chunk_bytes)
    port_hold_s = network.port_hold_s(chunk_bytes)
    # A port with another hold time than its link is freed by an event of its own.
    apart = port_hold_s != hold_s[network.port_user]
    events = 2 + int(np.bincount(network.port_user[apart], minlength=1).max())
    times = _Times(hold_s, network.travel_s(chunk_bytes), port_hold_s, apart)
    return _run(sends, queues, state, times, events)


class _Sends(NamedTuple):
    """The link and urgency of each send, and the precedence graph; sends are its first nodes.

    Node n waits for ``waits[n]`` others, and ``after[after_start[n]:after_start[n + 1]]`` wait for it.
    """

    link: Indices
    urgency: Floats
    waits: Indices
    after_start: Indices
    after: Indices


class _Times(NamedTuple):
    """Seconds for which a send holds its link, travels over it, and holds each of its ports.

    ``apart`` marks ports with another hold time than their link.
    """

    hold_s: Floats
    travel_s: Floats
    port_hold_s: Floats
    apart: Mask


class _Queues(NamedTuple):
    """The ready sends of each link, and a stack of reached milestones (nodes that are not sends).

    The sends of link e are a heap by urgency: ``queued[e]`` entries from ``start[e]`` on. All heaps share the
    arrays ``urgency`` and ``send``.
    """

    start: Indices
    urgency: Floats
    send: Indices
    queued: Indices
    reached: Indices


@compiled
def _run(
    sends: _Sends, queues: _Queues, state: LinkState, times: _Times, events: int
) -> tuple[Indices, Floats]:
    """Return (sends in order of start, arrivals); a send causes at most ``events`` events."""
    hold_s, travel_s, port_hold_s, apart = times
    count, queued = len(sends.link), queues.queued
    order, arrival_s = np.empty(count, np.int64), np.full(count, np.inf)
    heap_s, heap_what = np.empty(events * count + 1), np.empty(events * count + 1, np.int64)
    heap_size, candidates, instant, started = 0, 0, 0, 0
    now_s = 0.0
    for send in range(count):
        if sends.waits[send] == 0:
            candidates = _queue(sends, queues, state, send, instant, candidates)
    while True:
        first = np.empty(candidates)
        for at in range(candidates):
            link = state.candidate[at]
            first[at] = queues.urgency[queues.start[link]] if queued[link] else np.inf
        for at in argsorted(first):
            link = state.candidate[at]
            if not queued[link] or not is_free(state, link):
                continue
            low = queues.start[link]
            send = queues.send[low]
            queued[link] = pop(queues.urgency[low:], queues.send[low:], queued[link])
            occupy(state, link, False)
            order[started] = send
            started += 1
            arrival_s[send] = now_s + travel_s[link]
            heap_size = push(heap_s, heap_what, heap_size, now_s + hold_s[link], -1 - send)
            heap_size = push(heap_s, heap_what, heap_size, now_s + travel_s[link], send)
            for at in range(state.port_start[link], state.port_start[link + 1]):
                if apart[at]:
                    heap_size = push(heap_s, heap_what, heap_size, now_s + port_hold_s[at], count + at)
        if heap_size == 0:
            return order[:started], arrival_s
        now_s = heap_s[0]
        instant += 1
        candidates = 0
        while heap_size > 0 and heap_s[0] <= now_s * (1 + 1e-12):
            send = heap_what[0]
            heap_size = pop(heap_s, heap_what, heap_size)
            if send >= count:
                candidates = _free_port(queues, state, state.port[send - count], instant, candidates)
            elif send >= 0:
                candidates = _arrive(sends, queues, state, send, instant, candidates)
            else:
                link = sends.link[-1 - send]
                candidates = _end_hold(queues, state, link, apart, instant, candidates)


@compiled
def _arrive(
    sends: _Sends, queues: _Queues, state: LinkState, send: int, instant: int, candidates: int
) -> int:
    """Queue the sends that waited for ``send``, which has arrived, and return the number of candidates."""
    node, left = send, 0
    while True:
        for at in range(sends.after_start[node], sends.after_start[node + 1]):
            later = sends.after[at]
            sends.waits[later] -= 1
            if sends.waits[later]:
                continue
            if later < len(sends.link):
                candidates = _queue(sends, queues, state, later, instant, candidates)
            else:
                queues.reached[left] = later
                left += 1
        if left == 0:
            return candidates
        left -= 1
        node = queues.reached[left]


@compiled
def _queue(sends: _Sends, queues: _Queues, state: LinkState, send: int, instant: int, candidates: int) -> int:
    """Add a ready send to its link's queue; return the number of candidate links."""
    link = sends.link[send]
    low = queues.start[link]
    queues.queued[link] = push(
        queues.urgency[low:], queues.send[low:], queues.queued[link], sends.urgency[send], send
    )
    return offer(state, link, instant, candidates)


@compiled
def _end_hold(
    queues: _Queues, state: LinkState, link: int, apart: Mask, instant: int, candidates: int
) -> int:
    """Free a link and its ports with the same hold time, and return the number of candidates."""
    state.free[link] = True
    if queues.queued[link]:
        candidates = offer(state, link, instant, candidates)
    for at in range(state.port_start[link], state.port_start[link + 1]):
        if not apart[at]:
            candidates = _free_port(queues, state, state.port[at], instant, candidates)
    return candidates


@compiled
def _free_port(queues: _Queues, state: LinkState, port: int, instant: int, candidates: int) -> int:
    """Free a port, and return the number of candidates."""
    state.free[len(state.offered) + port] = True
    for user in range(state.user_start[port], state.user_start[port + 1]):
        if queues.queued[state.user[user]]:
            candidates = offer(state, state.user[user], instant, candidates)
    return candidates
