"""Measurement of link costs in the middle of a job (AdapCC, Sec. IV-B).

Links within hosts come first, then those between hosts in N - 1 rounds: in round i each host sends a train of
data to the host i places after it, so that each NIC carries one flow each way. The receiver times the
arrivals and leaves out the first part, which fills buffers on the way; no clocks are compared. The first
arrivals set how much is sent, so that a slow link gets less than a fast one. If other flows have filled a
queue on the way, the train lasts longer, as a new flow gets its share of the rate only after some round
trips. A wait for a dead link ends after some seconds.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from exec.sockets import Group
from probes.base import LostRankError, floats
from synth.network import Link, Network, build

__all__ = [
    "KnownLinks",
    "LinkNow",
    "betas_of",
    "guessed_network",
    "measured_links",
    "measured_network",
    "steady_s",
    "with_links",
    "with_spares",
]

# Seconds that a train takes: long enough to measure a rate, short enough for a job that waits. Then the bytes
# of its first batch, and the most bytes of a train.
_TARGET_S, _FIRST_BYTES, _MOST_BYTES = 0.03, 64 << 10, 8 << 20
# Length of a train in round trips, for links with full queues, and its limit in seconds.
_ROUND_TRIPS, _MOST_TARGET_S = 12, 0.6
# Bytes of a piece of a train, whose arrival is timed, and the round trips of which the shortest gives alpha.
_PIECE_BYTES = 16 << 10
_PINGS = 5
# The copies that measure a link within a host, and the bytes of each.
_COPIES, _COPY_BYTES = 4, 256 << 10
# Lower results are errors of the clock.
_LEAST_ALPHA_S, _LEAST_BETA = 1e-7, 1e-12
# The costs of a link if none is known: 100 us and 1 GB/s.
_GUESSED_ALPHA_S, _GUESSED_BETA = 1e-4, 1e-9
# Tags of messages: the two ways of a round trip, trains, and a receiver's replies about them.
_PING, _PONG, _TRAIN, _CAME = range(1, 5)
# A link that takes longer than this counts as dead; a live link needs a small part of this time.
_PATIENCE_S = 3.0
# A train slower than usual by this factor is sent again, up to this many trains.
_DOUBTED, _TRAINS = 1.1, 3
# Measurements of a network, of which each link gets the median.
_MEASURED = 3
# A receiver's replies about a train, in place of the bytes received.
_ALL, _AGAIN, _NOTHING = 0, -1, -2


@dataclass(frozen=True)
class LinkNow:
    """The current cost of one directed link between ranks of the group."""

    src: int
    dst: int
    alpha_s: float
    beta_s_per_byte: float


@dataclass(frozen=True, eq=False)
class KnownLinks:
    """The capability of the links between the ranks ``slots`` of a session.

    ``start`` is the network known at the start, in which the links of the spare ranks ``guessed`` are
    guesses. ``measured`` are the first measurements of links of spares that have joined.
    """

    slots: tuple[int, ...]
    start: Network
    guessed: frozenset[int] = frozenset()
    measured: tuple[LinkNow, ...] = ()

    @property
    def capability(self) -> Network:
        """The network of all slots."""
        return with_links(self.start, self.measured, self.slots)

    def with_first(self, found: Iterable[LinkNow]) -> KnownLinks:
        """Return the links, with each guessed link's first measurement taken from ``found``."""
        known = {(link.src, link.dst): link for link in self.measured}
        for link in found:
            if {link.src, link.dst} & self.guessed and link.beta_s_per_byte < math.inf:
                known.setdefault((link.src, link.dst), link)
        return replace(self, measured=tuple(known.values()))


def measured_links(
    group: Group,
    severed: Iterable[tuple[int, int]] = (),
    usual: Mapping[tuple[int, int], float] | None = None,
) -> list[LinkNow]:
    """Measure the links into this rank; collective.

    The first rank of a host measures for all of its ranks, which share its NIC. ``severed`` are pairs of
    hosts, each given by its lowest rank as in the mesh; links between them are skipped. A link that delivers
    nothing for some seconds has infinite beta. A link that seems slower than ``usual`` (s/byte, by ranks of
    the group) is measured again, because a rank that waits for a CPU core makes its link look slow.
    """
    within = _within(group)
    group.Barrier()
    hosts, rank = _by_host(group), group.Get_rank()
    mine = next(at for at, ranks in enumerate(hosts) if rank in ranks)
    apart = {frozenset(pair) for pair in severed}
    name_of = [group.mesh.host[group.members[ranks[0]]] for ranks in hosts]
    found: list[LinkNow] = []
    for step in range(1, len(hosts)):
        to, back = (mine + step) % len(hosts), (mine - step) % len(hosts)
        if rank == hosts[mine][0]:
            sending = None
            if frozenset((name_of[mine], name_of[to])) not in apart:
                sending = threading.Thread(target=_send_train, args=(group, hosts[to][0]), daemon=True)
                sending.start()
            if frozenset((name_of[mine], name_of[back])) not in apart:
                usual_s = (usual or {}).get((hosts[back][0], rank), math.inf)
                alpha_s, beta = _received_trains(group, hosts[back][0], usual_s)
                found += [LinkNow(src, dst, alpha_s, beta) for src in hosts[back] for dst in hosts[mine]]
            if sending is not None:
                sending.join()
        group.Barrier()
    return within + found


def guessed_network(group: Group) -> Network:
    """Return a network that links every rank to every other, with one port out and one in per host."""
    return with_spares(build("session", (), ()), _host_names(group))


def measured_network(group: Group) -> Network:
    """Measure the network of ``group``: each link has the median of several measurements; collective."""
    found: dict[tuple[int, int], list[LinkNow]] = {}
    for _ in range(_MEASURED):
        for each in group.allgather(measured_links(group)):
            for one in each:
                found.setdefault((one.src, one.dst), []).append(one)
    middle = [sorted(each, key=lambda one: one.beta_s_per_byte)[_MEASURED // 2] for each in found.values()]
    return with_links(guessed_network(group), middle)


def _host_names(group: Group) -> list[str]:
    """Return the host name of each rank, or numbered names if two hosts have one name."""
    hosts = _by_host(group)
    called = [group.mesh.known[group.members[ranks[0]]].name for ranks in hosts]
    if len({*called}) < len(called):
        called = [f"host {at}" for at in range(len(hosts))]
    name_of = {rank: name for name, ranks in zip(called, hosts, strict=True) for rank in ranks}
    return [name_of[rank] for rank in range(group.Get_size())]


def betas_of(network: Network) -> dict[tuple[int, int], float]:
    """Return the seconds per byte of each link, by its ends."""
    ends = zip(network.src.tolist(), network.dst.tolist(), strict=True)
    return dict(zip(ends, network.beta_s_per_byte.tolist(), strict=True))


def with_links(network: Network, found: Sequence[LinkNow], ranks: Sequence[int] | None = None) -> Network:
    """Return ``network`` with the measured costs in ``found``; other links keep their costs.

    In ``found``, rank r of the network has the number ``ranks[r]``, by default r.
    """
    if not found:
        return network
    number = {name: rank for rank, name in enumerate(ranks if ranks is not None else range(network.ranks))}
    alpha, beta = np.array(network.alpha_s), np.array(network.beta_s_per_byte)
    row_of = {
        ends: row for row, ends in enumerate(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    }
    for link in found:
        row = row_of.get((number.get(link.src, -1), number.get(link.dst, -1)))
        if row is not None and link.beta_s_per_byte < math.inf:
            alpha[row], beta[row] = link.alpha_s, link.beta_s_per_byte
    return replace(network, alpha_s=floats(alpha), beta_s_per_byte=floats(beta))


def with_spares(network: Network, spares: Sequence[str]) -> Network:
    """Return ``network`` with ranks on the hosts ``spares`` added, whose links are guessed.

    Each guess is the median of the known links of its kind, within a host or between hosts.
    """
    hosts = (*network.hosts, *spares)
    guessed = []
    for src, src_host in enumerate(hosts):
        for dst, dst_host in enumerate(hosts):
            if src != dst and max(src, dst) >= network.ranks:
                alpha_s, beta = _middle(network, within=src_host == dst_host)
                ports = () if src_host == dst_host else (f"{src_host} out", f"{dst_host} in")
                guessed.append(Link(src, dst, alpha_s, beta, ports))
    found = build(network.name, hosts, network.as_links() + guessed, hold_alpha=network.hold_alpha)
    return replace(found, measured=network.measured)


def _middle(network: Network, *, within: bool) -> tuple[float, float]:
    """Return the median alpha and beta of the links within or between hosts; of all if there are none."""
    chosen = network.within_host == within
    if not chosen.any():
        chosen = np.ones(network.links, dtype=np.bool_)
    if not network.links:
        return _GUESSED_ALPHA_S, _GUESSED_BETA
    alpha_s, beta = network.alpha_s[chosen], network.beta_s_per_byte[chosen]
    return float(np.median(alpha_s)), float(np.median(beta))


def _by_host(group: Group) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for rank, member in enumerate(group.members):
        found.setdefault(group.mesh.host[member], []).append(rank)
    return list(found.values())


def _within(group: Group) -> list[LinkNow]:
    """Measure links within this host: n copies of s bytes, then one of n·s bytes (Sec. IV-B)."""
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


def _send_train(group: Group, receiver: int) -> None:
    """Answer the pings of ``receiver``, then send it trains of data until it has enough."""
    ball, deadline_s = np.zeros(1, np.uint8), time.monotonic() + _PATIENCE_S
    times_s = [time.perf_counter()]
    # A lost rank is no error here, because the other end and the next call notice it as well.
    with contextlib.suppress(TimeoutError, LostRankError):
        for _ in range(_PINGS):
            group.Send(ball, receiver, _PONG, deadline_s)
            group.Recv(ball, receiver, _PING, deadline_s)
            times_s.append(time.perf_counter())
    target_s = _target_s(min(np.diff(times_s), default=0.0))
    reply = _AGAIN
    while reply == _AGAIN:
        reply = 1
        with contextlib.suppress(TimeoutError, LostRankError):
            reply = _send_batches(group, receiver, target_s, deadline_s)
        try:
            while reply > 0:
                reply = int(group.recv(receiver, _CAME))
        except LostRankError:
            return
        # Each train has a new connection, as an old one stays slow after earlier packet loss.
        group.drop_flow(receiver, (_TRAIN,), outgoing=True)
    if reply == _NOTHING:
        group.drop_flow(receiver, (_PONG,), outgoing=True)
        group.drop_flow(receiver, (_PING,), outgoing=False)


def _target_s(round_trip_s: float) -> float:
    """Return how long a train should take: longer for long round trips."""
    return min(_MOST_TARGET_S, max(_TARGET_S, _ROUND_TRIPS * round_trip_s))


def _send_batches(group: Group, receiver: int, target_s: float, deadline_s: float) -> int:
    """Send batches of growing size for about ``target_s``, two in flight; return the last reply.

    The reply is the number of bytes received, or `_ALL`, `_AGAIN` or `_NOTHING`.
    """
    started_s, sent, size, received = time.perf_counter(), 0, _FIRST_BYTES, 1
    for number in itertools.count():
        if number > 1:
            received = int(group.recv(receiver, _CAME))
            if received <= 0:
                break
            rate = received / (time.perf_counter() - started_s)
            room = int(min(_MOST_BYTES, rate * target_s)) - sent
            size = max(0, min(2 * size, room // _PIECE_BYTES * _PIECE_BYTES))
        group.Send(np.array([size], np.int64), receiver, _TRAIN, deadline_s)
        if not size:
            break
        group.Send(np.zeros(size, np.uint8), receiver, _TRAIN, deadline_s)
        sent += size
    return received


def _received_trains(group: Group, sender: int, usual_s_per_byte: float) -> tuple[float, float]:
    """Return (alpha in s, beta in s/byte) from ``sender``, the best of some trains.

    Beta is infinite if nothing arrives.
    """
    ball, deadline_s = np.zeros(1, np.uint8), time.monotonic() + _PATIENCE_S
    times_s, best = list[float](), math.inf
    try:
        for _ in range(_PINGS):
            group.Recv(ball, sender, _PONG, deadline_s)
            times_s.append(time.perf_counter())
            group.Send(ball, sender, _PING, deadline_s)
        for left in reversed(range(_TRAINS)):
            at_s = _arrivals(group, sender, deadline_s)
            group.drop_flow(sender, (_TRAIN,), outgoing=False)
            best = min(best, max(_LEAST_BETA, steady_s(at_s) / _PIECE_BYTES))
            # A long train is not repeated: it shows that the link is slow for as long as runs last.
            is_long = _target_s(min(np.diff(times_s))) > 2 * _TARGET_S
            if best <= _DOUBTED * usual_s_per_byte or is_long or not left:
                break
            group.send(_AGAIN, sender, _CAME)
    except TimeoutError:
        group.drop_flow(sender, (_PONG, _TRAIN), outgoing=False)
        group.drop_flow(sender, (_PING,), outgoing=True)
        group.send(_NOTHING, sender, _CAME)
    else:
        group.send(_ALL, sender, _CAME)
    alpha_s = float(min(np.diff(times_s), default=0.0)) / 2
    return max(_LEAST_ALPHA_S, alpha_s), best


def _arrivals(group: Group, sender: int, deadline_s: float) -> list[float]:
    """Return the arrival times of the pieces of one train, in seconds."""
    size, at_s = np.zeros(1, np.int64), list[float]()
    while True:
        group.Recv(size, sender, _TRAIN, deadline_s)
        if not size[0]:
            return at_s
        at_s += group.arrivals(sender, _TRAIN, int(size[0]) // _PIECE_BYTES, _PIECE_BYTES, deadline_s)
        group.send(len(at_s) * _PIECE_BYTES, sender, _CAME)


def steady_s(at_s: Sequence[float]) -> float:
    """Return the seconds between arrivals of equal pieces, some of which are seen late but none early.

    The result is the slope of the line below all arrivals that is nearest to them on average: the middle edge
    of their lower convex hull (Moon, Skelly and Towsley 1999). The first quarter, which filled buffers, is
    left out.
    """
    first = len(at_s) // 4
    hull: list[tuple[int, float]] = []
    for point in enumerate(at_s[first:]):
        while len(hull) > 1 and _is_above(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    middle = (len(at_s) - first - 1) / 2
    (left, left_s), (right, right_s) = next(
        (one, other) for one, other in pairwise(hull) if one[0] <= middle <= other[0]
    )
    return (right_s - left_s) / (right - left)


def _is_above(left: tuple[int, float], middle: tuple[int, float], right: tuple[int, float]) -> bool:
    """Return whether ``middle`` is on or above the line from ``left`` to ``right``."""
    rise = (right[1] - left[1]) * (middle[0] - left[0])
    return rise <= (middle[1] - left[1]) * (right[0] - left[0])
