"""A second opinion on schedules: every chunk is followed as a multiset of contributions.

The sends are carried out twice: in the order of the table, and in the order of the times at which they start
and arrive. Both must give every rank what it wants, and add no contribution twice on the way.

Sends that name addends are followed in the order of the table. None may start before what it carries is
there. If the order of sums is fixed, ranks keep parts apart: each is the sum below one node of the tree.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from oracles import ACCEPTED, Verdict, refused
from oracles.collectives import REDUCING, Malformed, Wanted, contents, total, wanted

__all__ = ["judge"]

_SLACK = 1e-9


def judge(schedule: Any) -> Verdict:
    """Whether the sends do the collective over links that exist; O(sends² · ranks)."""
    try:
        _network(schedule.network)
        asked = wanted(schedule.collective)
        sends = _sends(schedule, asked)
        parts = _parts(schedule)
    except Malformed as error:
        return refused(str(error))
    fixed = schedule.collective.sum_order == "aligned"
    if fixed and schedule.collective.kind not in (*REDUCING, "custom"):
        return refused("an order of sums without sums")
    if parts is not None:
        return _by_parts(schedule, sends, parts, asked, fixed) or ACCEPTED
    if fixed and any(op == 1 for *_, op in sends):
        return refused("no addends are named, so ranks add up in the order of arrival")
    times = _times(schedule, sends, asked)
    return _in_table_order(sends, asked) or _in_time(schedule, sends, times, asked) or ACCEPTED


def _network(network: Any) -> None:
    ranks, links = len(network.hosts), len(network.src)
    columns = (network.dst, network.alpha_s, network.beta_s_per_byte)
    if any(len(column) != links for column in columns) or len(network.link_port_start) != links + 1:
        raise Malformed("columns of the network have other lengths")
    for link in range(links):
        src, dst = int(network.src[link]), int(network.dst[link])
        if not (0 <= src < ranks and 0 <= dst < ranks and src != dst):
            raise Malformed(f"link {link} leads from {src} to {dst}")
        alpha, beta = float(network.alpha_s[link]), float(network.beta_s_per_byte[link])
        if not (0 <= alpha < math.inf and 0 < beta < math.inf):
            raise Malformed(f"link {link} costs {alpha} and {beta}")
    start = [int(at) for at in network.link_port_start]
    if start != sorted(start) or start[0] != 0 or start[-1] != len(network.link_port):
        raise Malformed("ports of links do not cover the table")
    if any(not 0 <= int(port) < len(network.ports) for port in network.link_port):
        raise Malformed("a link names a port that does not exist")


def _sends(schedule: Any, asked: Wanted) -> list[tuple[int, int, int, int, int]]:
    """(chunk, link, src, dst, op) of every send."""
    network, rows = schedule.network, len(schedule.chunk)
    if schedule.collective.ranks != len(network.hosts):
        raise Malformed("the network has another number of ranks")
    if schedule.chunk_bytes < 1 or len(schedule.link) != rows or len(schedule.op) != rows:
        raise Malformed("columns of the schedule have other lengths, or chunks no bytes")
    found = []
    for row in range(rows):
        chunk, link, op = int(schedule.chunk[row]), int(schedule.link[row]), int(schedule.op[row])
        if not (0 <= chunk < asked.chunks and 0 <= link < len(network.src) and op in (0, 1)):
            raise Malformed(f"send {row} is of chunk {chunk} over link {link}, op {op}")
        found.append((chunk, link, int(network.src[link]), int(network.dst[link]), op))
    return found


def _in_table_order(sends: list[tuple[int, int, int, int, int]], asked: Wanted) -> Verdict | None:
    held = contents(asked)
    for row, (chunk, _, src, dst, op) in enumerate(sends):
        if (src, chunk) not in held:
            return refused(f"in table order: send {row} leaves rank {src}, which lacks chunk {chunk}")
        if wrong := _receive(held, row, chunk, dst, op, held[src, chunk]):
            return refused(f"in table order: {wrong}")
    return _incomplete(held, asked, "in table order")


def _parts(schedule: Any) -> list[list[int]] | None:
    """The addends of each send; None if the schedule names none."""
    start, addend = ([int(one) for one in column] for column in (schedule.addend_start, schedule.addend))
    if not start and not addend:
        return None
    rows = len(schedule.chunk)
    if len(start) != rows + 1 or start[0] != 0 or start[-1] != len(addend) or start != sorted(start):
        raise Malformed("ranges of addends do not cover their table")
    found = [addend[low:high] for low, high in pairwise(start)]
    src, dst = ([int(one) for one in ends] for ends in (schedule.network.src, schedule.network.dst))
    link = [int(one) for one in schedule.link]
    if any(not 0 <= one < len(src) for one in link):
        raise Malformed("a send over a link that does not exist")
    for row, parts in enumerate(found):
        for part in parts:
            if not -1 <= part < row:
                raise Malformed(f"send {row} names addend {part}")
            if part >= 0 and schedule.chunk[part] != schedule.chunk[row]:
                raise Malformed(f"send {row} names a send of another chunk")
            if part >= 0 and dst[link[part]] != src[link[row]]:
                raise Malformed(f"send {row} names a send to another rank")
    return found


def _by_parts(
    schedule: Any,
    sends: list[tuple[int, int, int, int, int]],
    parts: list[list[int]],
    asked: Wanted,
    fixed: bool,
) -> Verdict | None:
    held, own, messages = contents(asked), contents(asked), list[dict[tuple[int, int], int]]()
    overwritten: set[tuple[int, int]] = set()
    times = _times(schedule, sends, asked, parts)
    for row, (chunk, _, src, dst, op) in enumerate(sends):
        message: dict[tuple[int, int], int] = {}
        if not parts[row]:
            message = dict(held.get((src, chunk), {}))
        elif (src, chunk) in overwritten:
            return refused(f"send {row} adds up what was overwritten")
        for part in parts[row]:
            if part < 0 and (src, chunk) not in own:
                return refused(f"send {row} adds a contribution that rank {src} lacks")
            for atom, count in (messages[part] if part >= 0 else own[src, chunk]).items():
                message[atom] = message.get(atom, 0) + count
        if not message or times[row][0] == math.inf:
            return refused(f"send {row} leaves rank {src}, which lacks chunk {chunk}")
        if any(count > 1 for count in message.values()):
            return refused(f"send {row} carries a contribution twice")
        if fixed and asked.reduced[chunk]:
            leaves = frozenset(asked.sources[chunk].index(rank) for _, rank in message)
            if leaves not in _nodes(0, len(asked.sources[chunk])):
                return refused(f"send {row} carries the sum of {sorted(leaves)}, which is below no node")
        messages.append(message)
        if op == 0:
            held[dst, chunk] = message
            overwritten.add((dst, chunk))
            continue
        after = dict(held.get((dst, chunk), {}))
        for atom, count in message.items():
            after[atom] = 1 if fixed else after.get(atom, 0) + count
        held[dst, chunk] = after
        if any(count > 1 for count in after.values()):
            return refused(f"send {row} adds a contribution twice")
    return _incomplete(held, asked, "by parts")


def _nodes(first: int, leaves: int) -> set[frozenset[int]]:
    """The leaves below each node of the aligned tree over ``leaves`` leaves from ``first``."""
    found = {frozenset(range(first, first + leaves))}
    if leaves > 1:
        left = 1
        while 2 * left < leaves:
            left *= 2
        found |= _nodes(first, left) | _nodes(first + left, leaves - left)
    return found


def _times(
    schedule: Any,
    sends: list[tuple[int, int, int, int, int]],
    asked: Wanted,
    parts: list[list[int]] | None = None,
) -> list[tuple[float, float, float]]:
    """(start, end of the hold, arrival) of each send, each as early as chunk, link and ports allow.

    A send that names addends waits for them only.
    """
    network, size = schedule.network, schedule.chunk_bytes
    ready = {slot: 0.0 for slot in contents(asked)}
    free: dict[tuple[str, int], float] = {}
    found = []
    for row, (chunk, link, src, dst, _) in enumerate(sends):
        low, high = int(network.link_port_start[link]), int(network.link_port_start[link + 1])
        used = [("link", link)] + [("port", int(network.link_port[at])) for at in range(low, high)]
        there = [ready.get((src, chunk), math.inf)]
        if parts is not None and parts[row]:
            there = [found[part][2] if part >= 0 else 0.0 for part in parts[row]]
        begin = max([*there, *(free.get(one, 0.0) for one in used)])
        alpha, beta = float(network.alpha_s[link]), float(network.beta_s_per_byte[link])
        hold = beta * size + (alpha if network.hold_alpha else 0.0)
        arrival = begin + (alpha + beta * size)
        found.append((begin, begin + hold, arrival))
        if begin < math.inf:
            free |= dict.fromkeys(used, begin + hold)
            ready[dst, chunk] = max(ready.get((dst, chunk), 0.0), arrival)
    return found


def _in_time(
    schedule: Any,
    sends: list[tuple[int, int, int, int, int]],
    times: list[tuple[float, float, float]],
    asked: Wanted,
) -> Verdict | None:
    # A chunk can leave at the instant at which it arrives.
    events = [(arrival, 0, row) for row, (_, _, arrival) in enumerate(times)]
    events += [(start, 1, row) for row, (start, _, _) in enumerate(times)]
    held = contents(asked)
    message: dict[int, dict[tuple[int, int], int]] = {}
    for moment, kind, row in sorted(events):
        chunk, _, src, dst, op = sends[row]
        if kind == 1:
            if (src, chunk) not in held or moment == math.inf:
                return refused(f"in time: send {row} leaves rank {src}, which lacks chunk {chunk}")
            message[row] = held[src, chunk]
            continue
        if row not in message:
            return refused(f"in time: send {row} arrives before it starts")
        before = held.get((dst, chunk))
        if wrong := _receive(held, row, chunk, dst, op, message[row]):
            return refused(f"in time: {wrong}")
        leaving = [
            other
            for other, (start, end, _) in enumerate(times)
            if sends[other][0] == chunk and sends[other][2] == dst and start < moment < end * (1.0 - _SLACK)
        ]
        if leaving and held[dst, chunk] != before:
            return refused(f"in time: chunk {chunk} changes at rank {dst} while send {leaving[0]} carries it")
    return _incomplete(held, asked, "in time")


def _receive(
    held: dict[tuple[int, int], dict[tuple[int, int], int]],
    row: int,
    chunk: int,
    dst: int,
    op: int,
    content: dict[tuple[int, int], int],
) -> str:
    """Apply a send to its destination; what is wrong with it."""
    if op == 0:
        held[dst, chunk] = content
        return ""
    after = dict(held.get((dst, chunk), {}))
    for atom, times in content.items():
        after[atom] = after.get(atom, 0) + times
    held[dst, chunk] = after
    twice = [atom for atom, times in after.items() if times > 1]
    return f"send {row} adds the contribution of rank {twice[0][1]} twice" if twice else ""


def _incomplete(
    held: dict[tuple[int, int], dict[tuple[int, int], int]], asked: Wanted, how: str
) -> Verdict | None:
    for chunk in range(asked.chunks):
        complete = total(asked.sources[chunk], chunk, asked.reduced[chunk])
        for rank in asked.targets[chunk]:
            if held.get((rank, chunk)) != complete:
                return refused(f"{how}: rank {rank} ends without the complete chunk {chunk}")
    return None
