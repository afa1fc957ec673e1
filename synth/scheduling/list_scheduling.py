"""From the sends of some trees to a schedule: list scheduling, event by event.

A method says which chunk goes over which link and gives each send a turn. A send is ready when
everything that earlier turns bring to its source, of its chunk, has arrived; whenever a link and its
ports are free, the most urgent ready send goes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.columns import Bytes, Floats, Indices, Mask, bytes_of, ints, offsets
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.kernels.compiled import compiled
from synth.kernels.event_queue import is_free, occupy, pop, push
from synth.network import Network
from synth.schedule import Schedule
from synth.simulation.chunk_slots import touched
from synth.simulation.schedule import replay

__all__ = ["Sends", "in_start_order", "link_of"]


class Sends:
    """Collects sends, each with its turn: among sends that could start, the lowest turn goes first."""

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
        """``chunk`` goes over ``link``; its turn must be later than those of the sends it needs.

        Of the sends that are ready the lowest ``urgency`` goes first, by default the lowest turn.
        Each may be one number or a column; they are broadcast against each other.
        """
        columns = (chunk, link, op, turn, turn if urgency is None else urgency)
        self._blocks.append([column.ravel() for column in np.broadcast_arrays(*map(np.asarray, columns))])

    def schedule(
        self, network: Network, collective: Collective, chunk_bytes: int, method: str, seed: int = 0
    ) -> Schedule:
        """The schedule in which each send starts as soon as it is ready and its link and ports are free.

        O(sends · log sends). Sends of what never arrives are left out, and the judge will miss them.
        """
        chunk, link, op, turn, urgency = (
            np.concatenate([block[at] for block in self._blocks] or [np.zeros(0, np.int64)])
            for at in range(5)
        )
        order = _line_up(network, collective, chunk_bytes, chunk, link, turn, urgency)
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


def in_start_order(schedule: Schedule) -> Schedule:
    """The same sends, in the order in which replaying them starts them: times stay what they are."""
    order = np.argsort(replay(schedule).start_s, kind="stable")
    chunk, link, op = schedule.chunk[order], schedule.link[order], schedule.op[order]
    return replace(schedule, chunk=ints(chunk), link=ints(link), op=bytes_of(op))


def link_of(links: dict[tuple[int, int], int], src: int, dst: int, method: str) -> int:
    """The row of the link src → dst; NotApplicableError if there is none."""
    try:
        return links[src, dst]
    except KeyError:
        raise NotApplicableError(f"{method} needs a link from rank {src} to rank {dst}") from None


def _line_up(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    chunk: Indices,
    link: Indices,
    turn: Indices,
    urgency: Indices,
) -> Indices:
    """Rows of the sends in the order in which they start."""
    leaves, enters, held = touched(network, collective, chunk, link)
    # Turns only matter by their order: ranks of them fit into integers and compare exactly.
    place = np.unique(turn, return_inverse=True)[1]
    return _run(
        leaves,
        enters,
        *_by_slot(leaves, place, len(held)),
        *_by_slot(enters, place, len(held)),
        held,
        place,
        urgency.astype(np.float64),
        link,
        offsets(np.bincount(link, minlength=network.links)),
        network.hold_s(chunk_bytes),
        network.travel_s(chunk_bytes),
        network.link_port_start,
        network.link_port,
        *network.port_links,
    )


def _by_slot(slot: Indices, place: Indices, slots: int) -> tuple[Indices, Indices]:
    """(start, rows): the sends that touch a slot, in the order of their turns."""
    rows = np.lexsort((place, slot))
    return offsets(np.bincount(slot, minlength=slots)), rows


@compiled
def _run(
    leaves: Indices,
    enters: Indices,
    out_start: Indices,
    out_rows: Indices,
    in_start: Indices,
    in_rows: Indices,
    held: Mask,
    place: Indices,
    urgency: Floats,
    link_of_send: Indices,
    queue_start: Indices,
    hold_s: Floats,
    travel_s: Floats,
    link_port_start: Indices,
    link_port: Indices,
    port_start: Indices,
    port_links: Indices,
) -> Indices:
    sends, links = len(leaves), len(hold_s)
    order = np.empty(sends, np.int64)
    arrived = np.zeros(sends, np.bool_)
    next_in, next_out = in_start[:-1].copy(), out_start[:-1].copy()
    # Each link's ready sends are a heap by turn, in its own stretch of one array.
    queue_turn, queue_send = np.empty(sends), np.empty(sends, np.int64)
    queued = np.zeros(links, np.int64)
    free = np.ones(links + len(port_start) - 1, np.bool_)
    heap_s, heap_what = np.empty(2 * sends + 1), np.empty(2 * sends + 1, np.int64)
    heap_size = 0
    candidate, offered = np.empty(links, np.int64), np.full(links, -1)
    candidates, instant, started = 0, 0, 0
    now_s = 0.0
    for slot in range(len(held)):
        if held[slot]:
            _release(
                slot, next_in, in_start, in_rows, next_out, out_start, out_rows, place, urgency, link_of_send,
                queue_start, queue_turn, queue_send, queued,
            )  # fmt: skip
    for link in range(links):
        if queued[link]:
            candidate[candidates] = link
            candidates += 1
    while True:
        first = np.empty(candidates)
        for at in range(candidates):
            first[at] = queue_turn[queue_start[candidate[at]]] if queued[candidate[at]] else np.inf
        for at in np.argsort(first, kind="mergesort"):
            link = candidate[at]
            if not queued[link] or not is_free(link, free, link_port_start, link_port, links):
                continue
            low = queue_start[link]
            send = queue_send[low]
            queued[link] = pop(queue_turn[low:], queue_send[low:], queued[link])
            occupy(link, free, link_port_start, link_port, links, False)
            order[started] = send
            started += 1
            heap_size = push(heap_s, heap_what, heap_size, now_s + hold_s[link], -1 - send)
            heap_size = push(heap_s, heap_what, heap_size, now_s + travel_s[link], send)
        if heap_size == 0:
            return order[:started]
        now_s = heap_s[0]
        instant += 1
        candidates = 0
        while heap_size > 0 and heap_s[0] <= now_s * (1 + 1e-12):
            send = heap_what[0]
            heap_size = pop(heap_s, heap_what, heap_size)
            if send >= 0:
                arrived[send] = True
                slot = enters[send]
                while next_in[slot] < in_start[slot + 1] and arrived[in_rows[next_in[slot]]]:
                    next_in[slot] += 1
                _release(
                    slot, next_in, in_start, in_rows, next_out, out_start, out_rows, place, urgency,
                    link_of_send, queue_start, queue_turn, queue_send, queued,
                )  # fmt: skip
                for at in range(out_start[slot], next_out[slot]):
                    link = link_of_send[out_rows[at]]
                    if offered[link] != instant and queued[link]:
                        offered[link] = instant
                        candidate[candidates] = link
                        candidates += 1
                continue
            link = link_of_send[-1 - send]
            occupy(link, free, link_port_start, link_port, links, True)
            if offered[link] != instant and queued[link]:
                offered[link] = instant
                candidate[candidates] = link
                candidates += 1
            for at in range(link_port_start[link], link_port_start[link + 1]):
                for other in range(port_start[link_port[at]], port_start[link_port[at] + 1]):
                    sibling = port_links[other]
                    if offered[sibling] != instant and queued[sibling]:
                        offered[sibling] = instant
                        candidate[candidates] = sibling
                        candidates += 1


@compiled
def _release(
    slot: int,
    next_in: Indices,
    in_start: Indices,
    in_rows: Indices,
    next_out: Indices,
    out_start: Indices,
    out_rows: Indices,
    place: Indices,
    urgency: Floats,
    link_of_send: Indices,
    queue_start: Indices,
    queue_turn: Floats,
    queue_send: Indices,
    queued: Indices,
) -> None:
    """Queue the sends that leave ``slot`` and wait for nothing more."""
    waits_for = np.inf
    if next_in[slot] < in_start[slot + 1]:
        waits_for = place[in_rows[next_in[slot]]]
    while next_out[slot] < out_start[slot + 1] and place[out_rows[next_out[slot]]] <= waits_for:
        send = out_rows[next_out[slot]]
        next_out[slot] += 1
        link = link_of_send[send]
        low = queue_start[link]
        queued[link] = push(queue_turn[low:], queue_send[low:], queued[link], urgency[send], send)
