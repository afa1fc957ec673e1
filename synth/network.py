"""The network that schedules run on: ranks, directed links with alpha and beta, shared ports.

A chunk of c bytes on link e occupies the link and every port that the link names for beta_e·c seconds, and
arrives alpha_e seconds later. With ``hold_alpha`` the link and its ports are held for alpha_e + beta_e·c
instead, which is the cost model of TACOS (Sec. III).

On a network that ``queues``, as Ethernet and TCP do, a link between hosts holds a port only for the port's
own time per byte. The rest of the chunk waits in a queue, and the port serves other links meanwhile. So a
fast NIC sends to several slow NICs at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, Ints, Mask, floats, gc_paused, ints, offsets, spans
from probes.link_costs import HostMemory

__all__ = ["Link", "Network", "build"]

# Within these limits, sums of times and of bandwidths stay finite.
_MOST_ALPHA_S = 1e12
_BETA_S_PER_BYTE = (1e-30, 1e12)
# The largest ratio of the times of two links. With a larger ratio, a float with the time of some thousand
# slow sends could not resolve a fast send.
_MOST_SPREAD = 1e9
# Chunk sizes at which links are compared: at the small one latency decides, at the large one the rate.
_SIZES_BYTES = (1 << 12, 1 << 30)
# Links of one port whose betas differ by less than this factor run at the port's rate; the difference is
# measurement error.
_ALIKE = 1.1


class Link(NamedTuple):
    """One directed link, as input to ``build``; ``ports`` are names."""

    src: int
    dst: int
    alpha_s: float
    beta_s_per_byte: float
    ports: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Network:
    """Ranks and links as columns; the ports of link e are ``link_port[link_port_start[e]:…[e+1]]``.

    ``memory`` holds the measured costs of copies and sums within a host; empty if not measured. With
    ``queues`` a slow link between hosts holds a fast port only for the port's own time per byte.
    ``port_beta_s_per_byte`` is the measured time per byte of each port. A 0 means that the port is as fast as
    its fastest links; empty means 0 for all ports. ``measured`` says that the costs come from real ranks.
    ``multiprocessors`` is the number of threadblocks that the GPU of each rank runs at once; 0 if unknown.
    ``multimem_s_per_byte`` is the time for which a byte that a host's switch sums or copies (NVLink SHARP)
    holds the ports of the host's ranks; 0 if no switch does either. `Schedule.multimem` has these operations.
    """

    name: str
    hosts: tuple[str, ...]
    src: Ints
    dst: Ints
    alpha_s: Floats
    beta_s_per_byte: Floats
    ports: tuple[str, ...]
    link_port_start: Ints
    link_port: Ints
    hold_alpha: bool = False
    memory: tuple[HostMemory, ...] = ()
    queues: bool = False
    port_beta_s_per_byte: Floats = field(default_factory=lambda: floats([]))
    measured: bool = False
    multiprocessors: int = 0
    multimem_s_per_byte: float = 0.0

    @property
    def is_measured_host(self) -> bool:
        """Whether all ranks are on one host whose costs of copies and sums were measured."""
        return bool(self.memory) and len(set(self.hosts)) == 1

    @property
    def ranks(self) -> int:
        return len(self.hosts)

    @cached_property
    def links(self) -> int:
        """The number of links."""
        return len(self.src)

    @cached_property
    def host_of(self) -> Ints:
        """The host number of each rank; hosts are numbered in the order of their names."""
        return ints(np.unique(self.hosts, return_inverse=True)[1])

    @property
    def within_host(self) -> Mask:
        """Whether both ranks of each link are on one host."""
        return np.asarray(self.host_of[self.src] == self.host_of[self.dst])

    @cached_property
    def out_links(self) -> tuple[Ints, Ints]:
        """(start, link ids): the links that leave rank r are ``ids[start[r]:start[r+1]]``."""
        return grouped(self.src, self.ranks)

    @cached_property
    def in_links(self) -> tuple[Ints, Ints]:
        """(start, link ids): the links that enter rank r are ``ids[start[r]:start[r+1]]``."""
        return grouped(self.dst, self.ranks)

    @cached_property
    def port_links(self) -> tuple[Ints, Ints]:
        """(start, link ids): the links that use port p are ``ids[start[p]:start[p+1]]``."""
        start, order = grouped(self.link_port, len(self.ports))
        return start, ints(self.port_user[order])

    @cached_property
    def link_resources(self) -> tuple[Indices, Indices]:
        """(start, resource): the resources that each link holds: itself, then its ports.

        Port p has resource number ``links + p``.
        """
        own_resource = np.arange(self.links)
        held = np.insert(
            self.links + self.link_port.astype(np.int64), self.link_port_start[:-1], own_resource
        )
        return self.link_port_start + np.arange(self.links + 1), held

    @cached_property
    def port_user(self) -> Ints:
        """The link of each entry of ``link_port``."""
        return ints(np.repeat(np.arange(self.links), np.diff(self.link_port_start)))

    @cached_property
    def port_s_per_byte(self) -> Floats:
        """Seconds that each port needs for a byte: those of its fastest links, or a smaller measured time.

        If links between hosts use the port, only those links count. The time is the median over the links
        about as fast as the fastest, because one link may have been measured too fast.
        """
        found = np.zeros(len(self.ports))
        start, users = self.port_links
        within = self.within_host
        for port in range(len(self.ports)):
            mine = users[start[port] : start[port + 1]]
            beta = self.beta_s_per_byte[mine[~within[mine]] if not within[mine].all() else mine]
            if len(beta):
                found[port] = np.median(beta[beta <= beta.min() * _ALIKE])
        if len(self.port_beta_s_per_byte):
            port_beta = self.port_beta_s_per_byte
            found = np.where(port_beta > 0, np.minimum(port_beta, found), found)
        return floats(found)

    @cached_property
    def held_s_per_byte(self) -> Floats:
        """Seconds that a byte over the link keeps the port busy, for each entry of ``link_port``.

        A link that was measured faster than its port keeps it busy for its own time.
        """
        beta = self.beta_s_per_byte[self.port_user]
        if not self.queues:
            return floats(beta)
        port_s_per_byte = np.minimum(beta, self.port_s_per_byte[self.link_port])
        return floats(np.where(self.within_host[self.port_user], beta, port_s_per_byte))

    @cached_property
    def port_part(self) -> Floats:
        """The fraction of a link's time for which a byte holds the port, for each entry of ``link_port``."""
        return floats(self.held_s_per_byte / self.beta_s_per_byte[self.port_user])

    @property
    def columns(self) -> tuple[bytes, ...]:
        """All that times depend on: networks with equal columns differ only in names.

        Ports are numbered in the order of their first links.
        """
        _, first, port = np.unique(self.link_port, return_index=True, return_inverse=True)
        ends = (self.host_of, self.src, self.dst, self.link_port_start, first[port])
        costs = (self.alpha_s, self.beta_s_per_byte, self.held_s_per_byte)
        return tuple(column.tobytes() for column in (*ends, *costs))

    def hold_s(self, chunk_bytes: int) -> Floats:
        """Return the seconds for which one chunk holds each link.

        On a network that does not queue, the chunk holds the link's ports for the same time.
        """
        held = self.beta_s_per_byte * chunk_bytes
        return floats(held + self.alpha_s if self.hold_alpha else held)

    def port_hold_s(self, chunk_bytes: int) -> Floats:
        """Return the seconds for which one chunk over its link holds the port, per entry of ``link_port``."""
        held = self.held_s_per_byte * chunk_bytes
        return floats(held + self.alpha_s[self.port_user] if self.hold_alpha else held)

    def held_s(self, chunk_bytes: int) -> Floats:
        """Return the seconds for which one chunk holds each resource, in the order of ``link_resources``."""
        return floats(
            np.insert(self.port_hold_s(chunk_bytes), self.link_port_start[:-1], self.hold_s(chunk_bytes))
        )

    def busy_s(self, links: Indices, chunk_bytes: int) -> Floats:
        """Return the seconds for which sends over ``links`` hold each resource, as in ``link_resources``."""
        start, resource = self.link_resources
        uses = np.repeat(np.bincount(links, minlength=self.links), np.diff(start))
        held_s = uses * self.held_s(chunk_bytes)
        return floats(np.bincount(resource, held_s, self.links + len(self.ports)))

    def slowed(self, load: Floats) -> Network:
        """Return the network with each link's time per byte raised by the largest load of its resources.

        A load of 1 doubles the time.
        """
        start, resource = self.link_resources
        busiest = np.maximum.reduceat(load[resource], start[:-1])
        return replace(self, beta_s_per_byte=floats(self.beta_s_per_byte * (1.0 + busiest)))

    def travel_s(self, chunk_bytes: int) -> Floats:
        """Return the seconds from the start of a send to its arrival, for each link."""
        return floats(self.alpha_s + self.beta_s_per_byte * chunk_bytes)

    def links_of(self, pairs: Collection[tuple[int, int]]) -> Indices:
        """Return the rows of all links that join any of the pairs (src, dst)."""
        wanted = np.array([src * self.ranks + dst for src, dst in pairs], dtype=np.int64)
        return np.flatnonzero(np.isin(self.src.astype(np.int64) * self.ranks + self.dst, wanted))

    def ports_of(self, link: int) -> Ints:
        return self.link_port[self.link_port_start[link] : self.link_port_start[link + 1]]

    def ports_along(self, links: Indices) -> tuple[Indices, Indices]:
        """Return (row, port): every port that ``links[row]`` uses, row by row."""
        counts = np.diff(self.link_port_start)[links]
        return np.repeat(np.arange(len(links)), counts), self.link_port[self.port_entries(links)]

    def port_entries(self, links: Indices) -> Indices:
        """Return the rows of ``link_port`` that belong to ``links``, in the order of ``ports_along``."""
        return spans(self.link_port_start[:-1][links], np.diff(self.link_port_start)[links])

    def as_links(self) -> list[Link]:
        """Return the links in the form that ``build`` takes."""
        return [
            Link(
                int(self.src[row]),
                int(self.dst[row]),
                float(self.alpha_s[row]),
                float(self.beta_s_per_byte[row]),
                tuple(self.ports[port] for port in self.ports_of(row)),
            )
            for row in range(self.links)
        ]

    def resources_of(self, link: int) -> list[int]:
        """Return the resources that a send over ``link`` holds, numbered as in ``link_resources``."""
        return [link, *(self.links + self.ports_of(link)).tolist()]

    def transposed(self) -> Network:
        """Return the network with every link reversed.

        An all_gather there, reversed in time, is a reduce_scatter on this network (TACOS Sec. IV).
        """
        return replace(self, src=self.dst, dst=self.src)

    def opposite_links(self) -> Indices | None:
        """Return, for each link, the opposite link with the same cost.

        Return None if reversing all links changes more than the numbers of links and ports.
        """
        forward = np.lexsort((self.beta_s_per_byte, self.alpha_s, self.dst, self.src))
        backward = np.lexsort((self.beta_s_per_byte, self.alpha_s, self.src, self.dst))
        counts = np.diff(self.link_port_start)
        columns = (self.alpha_s, self.beta_s_per_byte, counts)
        same = all(np.array_equal(column[forward], column[backward]) for column in columns)
        ends = np.array_equal(self.src[forward], self.dst[backward]) and np.array_equal(
            self.dst[forward], self.src[backward]
        )
        if not (same and ends):
            return None
        opposite = np.empty(self.links, np.int64)
        opposite[forward] = backward
        # A reversed link uses its ports in the opposite order.
        first = self.link_port[spans(self.link_port_start[:-1], counts)]
        rising = spans(np.zeros_like(counts), counts)
        second = self.link_port[np.repeat(self.link_port_start[1:][opposite] - 1, counts) - rising]
        pairs = len(np.unique(first.astype(np.int64) * max(1, len(self.ports)) + second))
        one_to_one = pairs == len(np.unique(first)) == len(np.unique(second))
        return opposite if one_to_one else None

    def problems(self) -> list[str]:
        """Return every inconsistency between the columns, as ``path: what is wrong``."""
        found = [
            f"{name}: expected {self.links} values, as many as src, found {len(getattr(self, name))}"
            for name in ("dst", "alpha_s", "beta_s_per_byte")
            if len(getattr(self, name)) != self.links
        ]
        if len(self.link_port_start) != self.links + 1:
            found.append(
                f"link_port_start: expected {self.links + 1} values, found {len(self.link_port_start)}"
            )
        if found:
            return found
        for at, memory in enumerate(self.memory):
            found += [f"memory[{at}].{problem}" for problem in memory.problems()]
        for name in ("src", "dst"):
            found += _outside(name, getattr(self, name), self.ranks, "rank")
        found += _outside("link_port", self.link_port, len(self.ports), "port")
        if len(self.port_beta_s_per_byte) not in (0, len(self.ports)):
            wanted = f"no values or {len(self.ports)} like ports"
            found.append(f"port_beta_s_per_byte: expected {wanted}, found {len(self.port_beta_s_per_byte)}")
        port_beta = self.port_beta_s_per_byte
        low, high = _BETA_S_PER_BYTE
        for port in np.flatnonzero(~((port_beta == 0) | ((port_beta >= low) & (port_beta <= high))))[:5]:
            found.append(f"port_beta_s_per_byte[{port}]: expected 0 or a number > 0, found {port_beta[port]}")
        start = self.link_port_start
        if start[0] != 0 or start[-1] != len(self.link_port) or (np.diff(start) < 0).any():
            found.append(f"link_port_start: expected to rise from 0 to {len(self.link_port)}")
        for row in np.flatnonzero(self.src == self.dst)[:5]:
            found.append(f"dst[{row}]: link {row} leads from rank {self.src[row]} to itself")
        for name, least, low, high in (
            ("alpha_s", "≥ 0", 0.0, _MOST_ALPHA_S),
            ("beta_s_per_byte", "> 0", *_BETA_S_PER_BYTE),
        ):
            column = getattr(self, name)
            for row in np.flatnonzero(~((column >= low) & (column <= high)))[:5]:
                wanted = f"a number {least}, from {low:g} to {high:g}"
                found.append(f"{name}[{row}]: expected {wanted}, found {column[row]}")
        return found or self._repeated_ports() or self._wrong_multimem() or self._too_far_apart()

    def _wrong_multimem(self) -> list[str]:
        """Return a finding if switches cannot sum and copy as `Network.multimem_s_per_byte` says."""
        multimem = self.multimem_s_per_byte
        if multimem == 0:
            return []
        least = float(self.beta_s_per_byte[self.within_host].min(initial=np.inf))
        if self.hold_alpha or self.queues or not least <= multimem < np.inf:
            wanted = "no queues, alpha that holds no link, and at least the least beta within a host"
            return [f"multimem_s_per_byte: expected 0, or {wanted}, found {multimem}"]
        return []

    def _too_far_apart(self) -> list[str]:
        """Return a finding if the slowest link is so slow that rounding would hide the fastest one's time."""
        for size in _SIZES_BYTES if self.links else ():
            travel_s = self.travel_s(size)
            fast, slow = int(travel_s.argmin()), int(travel_s.argmax())
            if travel_s[slow] > _MOST_SPREAD * travel_s[fast]:
                found = f"{travel_s[slow]:g} s for {size} bytes, {travel_s[fast]:g} s over link {fast}"
                wanted = f"no link more than {_MOST_SPREAD:g} times slower than another"
                return [f"beta_s_per_byte[{slow}]: expected {wanted}, found {found}"]
        return []

    def _repeated_ports(self) -> list[str]:
        ports = max(1, len(self.ports))
        named, uses = np.unique(self.port_user.astype(np.int64) * ports + self.link_port, return_counts=True)
        twice = [divmod(int(one), ports) for one in named[uses > 1][:5]]
        return [f"link_port: link {link} names port {port} twice" for link, port in twice]


@gc_paused()
def build(name: str, hosts: Sequence[str], links: Iterable[Link], *, hold_alpha: bool = False) -> Network:
    """Return a network from its links; ports are numbered in the order in which links first name them."""
    table = list(links)
    port_number: dict[str, int] = {}
    # A link that names a port twice uses it once.
    per_link = [
        [port_number.setdefault(port, len(port_number)) for port in dict.fromkeys(link.ports)]
        for link in table
    ]
    return Network(
        name=name,
        hosts=tuple(hosts),
        src=ints([link.src for link in table]),
        dst=ints([link.dst for link in table]),
        alpha_s=floats([link.alpha_s for link in table]),
        beta_s_per_byte=floats([link.beta_s_per_byte for link in table]),
        ports=tuple(port_number),
        link_port_start=ints(np.cumsum([0, *map(len, per_link)])),
        link_port=ints([port for ports in per_link for port in ports]),
        hold_alpha=hold_alpha,
    )


def grouped(keys: Indices, groups: int) -> tuple[Ints, Ints]:
    """Return (start, rows): rows with key g, in order, are ``rows[start[g]:start[g+1]]``."""
    order = np.argsort(keys, kind="stable")
    counts = np.bincount(keys, minlength=groups)
    return ints(offsets(counts)), ints(order)


def _outside(name: str, column: Ints, limit: int, noun: str) -> list[str]:
    rows = np.flatnonzero((column < 0) | (column >= limit))[:5]
    return [f"{name}[{row}]: there is no {noun} {column[row]}" for row in rows]


def fastest_links(
    network: Network, chunk_bytes: int, pairs: Collection[tuple[int, int]] | None = None
) -> dict[tuple[int, int], int]:
    """Return, for each (src, dst) that a link joins, the row of the link that delivers a chunk first.

    If ``pairs`` is given, only these pairs are looked up.
    """
    rows = np.arange(network.links) if pairs is None else network.links_of(pairs)
    rows = rows[
        cheapest_of_parallel(
            network.ranks, network.src[rows], network.dst[rows], network.travel_s(chunk_bytes)[rows]
        )
    ]
    ends = zip(network.src[rows].tolist(), network.dst[rows].tolist(), strict=True)
    return dict(zip(ends, rows.tolist(), strict=True))


def cheapest_of_parallel(nodes: int, src: Indices, dst: Indices, cost: Floats) -> Indices:
    """Return the row of the cheapest edge of each pair, ordered by (src, dst); the last row wins a tie."""
    pair = src.astype(np.int64) * nodes + dst
    rows = np.lexsort((-np.arange(len(pair)), cost, pair))
    return rows[np.diff(pair[rows], prepend=-1) > 0]
