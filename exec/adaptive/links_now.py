"""What links carry at this moment: a profile quick enough for the middle of a job (AdapCC, Sec. IV-B).

First within hosts, then between them in N - 1 rounds: in round i a host sends to the one i places on, so
that each NIC carries one flow each way. A receiver times the arrival of what is sent, and leaves out the
first part, which goes into buffers on the way; no clocks are compared. How much is sent follows from how
fast the first of it arrives: a slow link is not given what a fast one takes in that time. A link that
carries nothing ends the wait after some seconds.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from exec.sockets.group import Group
from probes.columns import floats
from probes.errors import LostRankError
from synth.network import Link, Network, build

__all__ = ["LinkNow", "guessed_network", "measured_links", "with_links"]

# Long enough for a rate, short enough for a job that waits.
_TARGET_S, _FIRST_BYTES, _MOST_BYTES = 0.03, 64 << 10, 8 << 20
_PIECE_BYTES = 16 << 10
_PINGS = 5
_COPIES, _COPY_BYTES = 4, 256 << 10
_LEAST_ALPHA_S, _LEAST_BETA = 1e-7, 1e-12
_PING, _PONG, _TRAIN, _CAME = range(1, 5)
# Over a link that carries anything the exchange takes a small part of this.
_PATIENCE_S = 3.0


@dataclass(frozen=True)
class LinkNow:
    """What one directed link costs now, by ranks of the group."""

    src: int
    dst: int
    alpha_s: float
    beta_s_per_byte: float


def measured_links(group: Group, severed: Iterable[tuple[int, int]] = ()) -> list[LinkNow]:
    """The links into this rank; collective.

    The first rank of a host measures for all of its ranks, which share its NIC. Between hosts of ``severed``
    pairs (lowest ranks, as the mesh numbers them) nothing is measured. A link over which nothing comes for
    some seconds has infinite beta.
    """
    within = _within(group)
    group.Barrier()
    hosts, rank = _by_host(group), group.Get_rank()
    mine = next(at for at, ranks in enumerate(hosts) if rank in ranks)
    apart = {frozenset(pair) for pair in severed}
    name_of = [group.mesh.host[group.members[ranks[0]]] for ranks in hosts]
    found: list[LinkNow] = []
    for step in range(1, len(hosts)):
        to, of = (mine + step) % len(hosts), (mine - step) % len(hosts)
        if rank == hosts[mine][0]:
            sending = None
            if frozenset((name_of[mine], name_of[to])) not in apart:
                sending = threading.Thread(target=_send_train, args=(group, hosts[to][0]), daemon=True)
                sending.start()
            if frozenset((name_of[mine], name_of[of])) not in apart:
                alpha_s, beta = _received_train(group, hosts[of][0])
                found += [LinkNow(src, dst, alpha_s, beta) for src in hosts[of] for dst in hosts[mine]]
            if sending is not None:
                sending.join()
        group.Barrier()
    return within + found


def guessed_network(group: Group, alpha_s: float = 1e-4, beta_s_per_byte: float = 1e-9) -> Network:
    """Every rank linked to every other; the NIC of a host is one port out and one in."""
    hosts = _by_host(group)
    host_of = {rank: at for at, ranks in enumerate(hosts) for rank in ranks}
    links = []
    for src in range(group.Get_size()):
        for dst in range(group.Get_size()):
            if src != dst:
                here, there = host_of[src], host_of[dst]
                ports = () if here == there else (f"host {here} out", f"host {there} in")
                links.append(Link(src, dst, alpha_s, beta_s_per_byte, ports))
    return build("session", [f"host {host_of[rank]}" for rank in range(group.Get_size())], links)


def with_links(network: Network, found: Sequence[LinkNow]) -> Network:
    """``network`` with the costs that were measured; others keep theirs."""
    alpha, beta = np.array(network.alpha_s), np.array(network.beta_s_per_byte)
    row_of = {
        ends: row for row, ends in enumerate(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    }
    for link in found:
        row = row_of.get((link.src, link.dst))
        if row is not None and link.beta_s_per_byte < math.inf:
            alpha[row], beta[row] = link.alpha_s, link.beta_s_per_byte
    return replace(network, alpha_s=floats(alpha), beta_s_per_byte=floats(beta))


def _by_host(group: Group) -> list[list[int]]:
    """The ranks of each host."""
    found: dict[int, list[int]] = {}
    for rank, member in enumerate(group.members):
        found.setdefault(group.mesh.host[member], []).append(rank)
    return list(found.values())


def _within(group: Group) -> list[LinkNow]:
    """Links from ranks of this host: n copies of s bytes against one of n·s (Sec. IV-B)."""
    rank = group.Get_rank()
    peers = next(ranks for ranks in _by_host(group) if rank in ranks)
    if len(peers) == 1:
        return []
    source = np.ones(_COPIES * _COPY_BYTES, np.uint8)
    target = np.zeros_like(source)
    apart_s, joined_s = [], []
    for _ in range(3):
        started_s = time.perf_counter()
        for at in range(0, source.size, _COPY_BYTES):
            target[at : at + _COPY_BYTES] = source[at : at + _COPY_BYTES]
        middle_s = time.perf_counter()
        target[:] = source
        joined_s.append(time.perf_counter() - middle_s)
        apart_s.append(middle_s - started_s)
    alpha_s = max(_LEAST_ALPHA_S, (min(apart_s) - min(joined_s)) / (_COPIES - 1))
    beta = max(_LEAST_BETA, (min(joined_s) - alpha_s) / source.size)
    return [LinkNow(peer, rank, alpha_s, beta) for peer in peers if peer != rank]


def _send_train(group: Group, there: int) -> None:
    """Answer the pings of ``there``, then send it data; both ends agree whether that went well."""
    ball, deadline_s, said = np.zeros(1, np.uint8), time.monotonic() + _PATIENCE_S, 1
    # Whoever is lost is so for the other end and for the next call as well.
    with contextlib.suppress(TimeoutError, LostRankError):
        for _ in range(_PINGS):
            group.Send(ball, there, _PONG, deadline_s)
            group.Recv(ball, there, _PING, deadline_s)
        said = _send_batches(group, there, deadline_s)
    with contextlib.suppress(LostRankError):
        while said > 0:
            said = int(group.recv(there, _CAME))
    if said:
        group.drop_flow(there, (_PONG, _TRAIN), outgoing=True)
        group.drop_flow(there, (_PING,), outgoing=False)


def _send_batches(group: Group, there: int, deadline_s: float) -> int:
    """Send for about `_TARGET_S`: each batch twice as large, two on their way; what ``there`` said last.

    That is how many bytes have come, 0 once all have, and -1 where they do not.
    """
    started_s, sent, size, came = time.perf_counter(), 0, _FIRST_BYTES, 1
    for number in itertools.count():
        if number > 1:
            came = int(group.recv(there, _CAME))
            if came < 0:
                break
            rate = came / (time.perf_counter() - started_s)
            room = int(min(_MOST_BYTES, rate * _TARGET_S)) - sent
            size = max(0, min(2 * size, room // _PIECE_BYTES * _PIECE_BYTES))
        group.Send(np.array([size], np.int64), there, _TRAIN, deadline_s)
        if not size:
            break
        group.Send(np.zeros(size, np.uint8), there, _TRAIN, deadline_s)
        sent += size
    return came


def _received_train(group: Group, back: int) -> tuple[float, float]:
    """(alpha in s, beta in s/byte) from ``back``; beta is infinite where nothing comes."""
    ball, deadline_s = np.zeros(1, np.uint8), time.monotonic() + _PATIENCE_S
    size, piece = np.zeros(1, np.int64), np.zeros(_PIECE_BYTES, np.uint8)
    at_s, times_s = list[float](), list[float]()
    try:
        for _ in range(_PINGS):
            group.Recv(ball, back, _PONG, deadline_s)
            started_s = time.perf_counter()
            group.Send(ball, back, _PING, deadline_s)
            times_s.append(started_s)
        while True:
            group.Recv(size, back, _TRAIN, deadline_s)
            if not size[0]:
                break
            for _ in range(int(size[0]) // _PIECE_BYTES):
                group.Recv(piece, back, _TRAIN, deadline_s)
                at_s.append(time.perf_counter())
            group.send(len(at_s) * _PIECE_BYTES, back, _CAME)
    except TimeoutError:
        group.drop_flow(back, (_PONG, _TRAIN), outgoing=False)
        group.drop_flow(back, (_PING,), outgoing=True)
        group.send(-1, back, _CAME)
        return _LEAST_ALPHA_S, math.inf
    group.send(0, back, _CAME)
    first, pieces = len(at_s) // 4, len(at_s)
    beta = (at_s[-1] - at_s[first]) / ((pieces - 1 - first) * _PIECE_BYTES)
    alpha_s = min(np.diff(times_s)) / 2
    return max(_LEAST_ALPHA_S, float(alpha_s)), max(_LEAST_BETA, beta)
