"""A second opinion on schedules: every chunk is followed as a multiset of contributions.

The sends are carried out twice: in the order of the table, and in the order of the times at which they start
and arrive. Both must give every rank what it wants, and add no contribution twice on the way.
"""

from __future__ import annotations

import math
from typing import Any

from oracles import ACCEPTED, Verdict, refused
from oracles.collectives import Malformed, Wanted, contents, total, wanted

__all__ = ["judge"]

_SLACK = 1e-9


def judge(schedule: Any) -> Verdict:
    """Whether the sends do the collective over links that exist; O(sends² · ranks)."""
    try:
        _network(schedule.network)
        asked = wanted(schedule.collective)
        sends = _sends(schedule, asked)
    except Malformed as error:
        return refused(str(error))
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


def _times(
    schedule: Any, sends: list[tuple[int, int, int, int, int]], asked: Wanted
) -> list[tuple[float, float, float]]:
    """(start, end of the hold, arrival) of each send, each as early as chunk, link and ports allow."""
    network, size = schedule.network, schedule.chunk_bytes
    ready = {slot: 0.0 for slot in contents(asked)}
    free: dict[tuple[str, int], float] = {}
    found = []
    for chunk, link, src, dst, _ in sends:
        low, high = int(network.link_port_start[link]), int(network.link_port_start[link + 1])
        used = [("link", link)] + [("port", int(network.link_port[at])) for at in range(low, high)]
        begin = max([ready.get((src, chunk), math.inf), *(free.get(one, 0.0) for one in used)])
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
