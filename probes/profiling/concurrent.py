"""Rounds in which all hosts send at once: to the next host, and from one half of the hosts to the other.

Pairs of hosts that are measured alone do not show an oversubscribed core: each fits through it. All flows at
once show it, because together they need more than it carries. The halves are cut in the order of the racks,
so that the flows between them cross the middle of the network.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from probes.base import Bytes, Safekeeping, floats, ints
from probes.link_costs import ConcurrentFlows
from probes.sampling import Pair, packet_trains, waited_s

__all__ = ["ConcurrentRequest", "concurrent_task", "flows_of"]

# With fewer hosts a half has one host, and its flow is a pair that was measured alone.
_FEWEST_HOSTS = 4
# The time of a flow at its normal rate. It is four periods of a CPU quota (100 ms, the default of Linux), and
# many times the milliseconds for which a queue or a shaper lets a burst through.
_FLOW_S = 0.4
# A message is larger than messages that MPI libraries buffer (64 KiB over TCP), so that its time is the time
# of a transfer.
_MESSAGE_BYTES = 1 << 18
# Messages of a flow that are under way at once, so that its link never idles: 1 MiB, which covers round trips
# of 80 us at 100 Gb/s.
_WINDOW = 4
# The most bytes of a flow. They last for 20 ms at 400 Gb/s.
_MOST_BYTES = 1 << 30
# Each kind of probe has its own tag, so that probes never receive each other's messages.
_TAG = 104
# While no message moves, the sleeps of a rank double between these. The shortest is less than the time of one
# message at 100 Gb/s (21 us); the longest delays the end of a flow by a four-hundredth.
_SHORTEST_NAP_S, _LONGEST_NAP_S = 20e-6, 1e-3


@dataclass(frozen=True)
class ConcurrentRequest:
    """The host of each rank, the racks in which hosts stand, and the usual time of a byte between hosts.

    ``rack_of`` maps hosts to racks; hosts without an entry form one rack.
    """

    hosts: tuple[str, ...]
    rack_of: Mapping[str, str]
    s_per_byte: float


def flows_of(hosts: Sequence[str], rack_of: Mapping[str, str]) -> dict[str, list[Pair]]:
    """Return the pairs of ranks of each round, by its name; none on fewer than four hosts.

    The ranks of a host send to the ranks of another host, each to the rank at the same position there.
    """
    ranks_of: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        ranks_of.setdefault(host, []).append(rank)
    racks = list(dict.fromkeys(rack_of.get(host, "") for host in ranks_of))
    order = sorted(ranks_of, key=lambda host: racks.index(rack_of.get(host, "")))
    if len(order) < _FEWEST_HOSTS:
        return {}
    half = len(order) // 2
    there = list(zip(order[:half], order[-half:], strict=True))
    rounds = {
        "all NICs": list(zip(order, [*order[1:], order[0]], strict=True)),
        "across the middle": there,
        "back across the middle": [(dst, src) for src, dst in there],
    }
    return {
        name: [pair for src, dst in pairs for pair in zip(ranks_of[src], ranks_of[dst], strict=False)]
        for name, pairs in rounds.items()
    }


def concurrent_task(
    comm: Any, request: ConcurrentRequest, progress: Safekeeping
) -> tuple[ConcurrentFlows, ...] | None:
    """Return the time of each flow of all rounds on rank 0, None elsewhere; collective over ``comm``."""
    wanted = min(_MOST_BYTES, max(_MESSAGE_BYTES, _FLOW_S / request.s_per_byte))
    size_bytes = int(wanted) // _MESSAGE_BYTES * _MESSAGE_BYTES
    packet_trains.warm_buffer()
    found = []
    rounds = flows_of(request.hosts, request.rack_of)
    for number, (name, pairs) in enumerate(rounds.items()):
        progress.update(number, len(rounds), f"{name}: all flows at once")
        progress.waiting(-1, f"{name}: all flows at once")
        begun_s, waited_before_s = time.perf_counter(), waited_s()
        mine = _sent_at_once(comm, pairs, size_bytes)
        share = (waited_s() - waited_before_s) / (time.perf_counter() - begun_s)
        every = comm.gather((mine, share))
        if every is not None:
            seconds = {pair: value for own, _ in every for pair, value in own.items()}
            src, dst = zip(*pairs, strict=True)
            found.append(
                ConcurrentFlows(
                    name,
                    ints(src),
                    ints(dst),
                    size_bytes,
                    floats([seconds[pair] for pair in pairs]),
                    max(share for _, share in every),
                )
            )
    return tuple(found) if comm.Get_rank() == 0 else None


def _sent_at_once(comm: Any, pairs: Sequence[Pair], size_bytes: int) -> dict[Pair, float]:
    """Start all flows at once; return the seconds until each flow to this rank has arrived."""
    rank, count = comm.Get_rank(), size_bytes // _MESSAGE_BYTES
    message = packet_trains.warm_buffer()[:_MESSAGE_BYTES]
    into = {pair: np.empty((_WINDOW, _MESSAGE_BYTES), np.uint8) for pair in pairs if pair[1] == rank}
    flows = [_Flow(pair, count, partial(_receive, comm, pair[0], rows)) for pair, rows in into.items()]
    flows += [_Flow(pair, count, partial(_send, comm, pair[1], message)) for pair in pairs if pair[0] == rank]
    comm.Barrier()
    began_s, found = time.perf_counter(), {}
    nap_s = _SHORTEST_NAP_S
    while flows:
        moved = [flow.moved() for flow in flows]
        for flow in flows:
            if flow.done and flow.pair in into:
                found[flow.pair] = time.perf_counter() - began_s
        flows = [flow for flow in flows if not flow.done]
        # Ranks that poll take cores from those that move data.
        nap_s = _SHORTEST_NAP_S if any(moved) else min(2 * nap_s, _LONGEST_NAP_S)
        time.sleep(nap_s)
    comm.Barrier()
    return found


def _send(comm: Any, dst: int, message: Bytes, number: int) -> Any:
    return comm.Isend(message, dst, _TAG)


def _receive(comm: Any, src: int, rows: Bytes, number: int) -> Any:
    return comm.Irecv(rows[number % _WINDOW], src, _TAG)


@dataclass
class _Flow:
    """The messages of one flow at one of its ends, of which at most ``_WINDOW`` are under way."""

    pair: Pair
    left: int
    start: Callable[[int], Any]
    under_way: deque[Any] = field(default_factory=deque)
    begun: int = 0

    @property
    def done(self) -> bool:
        return not self.left and not self.under_way

    def moved(self) -> bool:
        """Start the messages that may start; return whether any message has passed since the last call."""
        passed = False
        while self.under_way and self.under_way[0].Test():
            self.under_way.popleft()
            passed = True
        while self.left and len(self.under_way) < _WINDOW:
            self.under_way.append(self.start(self.begun))
            self.begun, self.left = self.begun + 1, self.left - 1
        return passed
