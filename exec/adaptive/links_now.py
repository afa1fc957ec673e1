"""What links carry at this moment: a profile quick enough for the middle of a job (AdapCC, Sec. IV-B).

First within hosts, then between them in N - 1 rounds: in round i a host sends to the one i places on, so
that each NIC carries one flow each way. A receiver times the arrival of what is sent, and leaves out the
first part, which goes into buffers on the way; no clocks are compared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from exec.sockets.group import Group
from probes.columns import floats
from synth.network import Link, Network, build

__all__ = ["LinkNow", "guessed_network", "measured_links", "with_links"]

# Long enough for a rate, short enough for a job that waits.
_TARGET_S, _LEAST_BYTES, _MOST_BYTES = 0.03, 64 << 10, 8 << 20
_PIECE_BYTES = 16 << 10
_PINGS = 5
_COPIES, _COPY_BYTES = 4, 256 << 10
_LEAST_ALPHA_S, _LEAST_BETA = 1e-7, 1e-12
_PING, _PONG, _TRAIN, _TOLD = range(1, 5)


@dataclass(frozen=True)
class LinkNow:
    """What one directed link costs now, by ranks of the group."""

    src: int
    dst: int
    alpha_s: float
    beta_s_per_byte: float


def measured_links(group: Group, guess_s_per_byte: float) -> list[LinkNow]:
    """The links into this rank; collective. ``guess_s_per_byte`` chooses how much is sent between hosts.

    The first rank of a host measures for all of its ranks, which share its NIC.
    """
    within = _within(group)
    group.Barrier()
    hosts = _by_host(group)
    mine = next(at for at, ranks in enumerate(hosts) if group.Get_rank() in ranks)
    found: list[LinkNow] = []
    for step in range(1, len(hosts)):
        there, back = hosts[(mine + step) % len(hosts)], hosts[(mine - step) % len(hosts)]
        if group.Get_rank() == hosts[mine][0]:
            alpha_s = _pinged(group, there[0], back[0])
            beta = _timed_train(group, there[0], back[0], _train_bytes(guess_s_per_byte))
            found += [LinkNow(src, dst, alpha_s, beta) for src in back for dst in hosts[mine]]
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
    """``network`` with the costs that were measured; links that nobody measured keep theirs."""
    alpha, beta = np.array(network.alpha_s), np.array(network.beta_s_per_byte)
    row_of = {
        ends: row for row, ends in enumerate(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    }
    for link in found:
        row = row_of.get((link.src, link.dst))
        if row is not None:
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


def _pinged(group: Group, there: int, back: int) -> float:
    """Half the shortest round trip between ``back`` and this rank, which ``back`` timed, in seconds."""
    ball, times_s = np.zeros(1, np.uint8), []
    for _ in range(_PINGS):
        started_s = time.perf_counter()
        group.Send(ball, there, _PING)
        group.Recv(ball, back, _PING)
        group.Send(ball, back, _PONG)
        group.Recv(ball, there, _PONG)
        times_s.append(time.perf_counter() - started_s)
    group.send(min(times_s) / 2, there, _TOLD)
    told_s: float = group.recv(back, _TOLD)
    return max(_LEAST_ALPHA_S, told_s)


def _train_bytes(guess_s_per_byte: float) -> int:
    return min(_MOST_BYTES, max(_LEAST_BYTES, int(_TARGET_S / guess_s_per_byte)))


def _timed_train(group: Group, there: int, back: int, size: int) -> float:
    """Seconds a byte from ``back``, while this rank sends as much to ``there``."""
    data = np.zeros(size, np.uint8)
    sending = threading.Thread(target=group.Send, args=(data, there, _TRAIN), daemon=True)
    sending.start()
    group.send(size, there, _TOLD)
    pieces = int(group.recv(back, _TOLD)) // _PIECE_BYTES
    piece, at_s = np.zeros(_PIECE_BYTES, np.uint8), []
    for _ in range(pieces):
        group.Recv(piece, back, _TRAIN)
        at_s.append(time.perf_counter())
    sending.join()
    first = pieces // 4
    return max(_LEAST_BETA, (at_s[-1] - at_s[first]) / ((pieces - 1 - first) * _PIECE_BYTES))
