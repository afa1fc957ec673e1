"""Symmetric networks: translations map links to links, and one link of each orbit is stored.

A rank is a number of several digits with bases ``sizes``, the lowest first. A translation adds a constant to
each digit along some ``axes``, modulo its base, and leaves the other digits alone. Translations map links to
links of the same cost, and ports to ports. The images of a link under all translations are its *orbit*, and
likewise for ports and ranks. Only the identity leaves a rank, a link or a port in place: the group of
translations acts freely. So a three-dimensional torus of 65,536 ranks stores six links.

A translation is written as its *shift*: the rank to which it maps rank 0. `synth.schedules.symmetric` has
orbits, and schedules on such networks. Symmetry and quotients of networks: Akers and Krishnamurthy, A
Group-Theoretic Model for Symmetric Interconnection Networks (1989).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, Ints, UsageError, floats, ints, offsets, spans
from synth.collective import MOST_RANKS
from synth.network import Link, Network, build
from synth.networks.dimensions import require_links

__all__ = ["OrbitLink", "SymmetricNetwork", "cell_table", "from_links"]


class OrbitLink(NamedTuple):
    """One link of an orbit; ``ports`` are (name of a port's orbit, shift of the port in it)."""

    src: int
    dst: int
    alpha_s: float
    beta_s_per_byte: float
    ports: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, eq=False)
class SymmetricNetwork:
    """One link of each orbit as columns; all others are its translates along ``axes``.

    ``src`` is a rank whose digits along the axes are 0. ``ports`` names the orbits of ports; each orbit has a
    port for each shift. Link e uses the ports of orbits ``link_port[n]`` at shifts ``link_port_at[n]``, n
    from ``link_port_start[e]`` to before ``link_port_start[e + 1]``. Rank r is on host ``r //
    ranks_per_host``.
    """

    name: str
    sizes: tuple[int, ...]
    axes: tuple[int, ...]
    ranks_per_host: int
    src: Ints
    dst: Ints
    alpha_s: Floats
    beta_s_per_byte: Floats
    ports: tuple[str, ...]
    link_port_start: Ints
    link_port: Ints
    link_port_at: Ints
    hold_alpha: bool = False

    @property
    def ranks(self) -> int:
        return math.prod(self.sizes)

    @property
    def translations(self) -> int:
        """The number of translations, and of ranks, links or ports in an orbit."""
        return math.prod(self.sizes[axis] for axis in self.axes)

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(f"n{rank // self.ranks_per_host}" for rank in range(self.ranks))

    @property
    def links(self) -> int:
        """The number of links of all orbits."""
        return len(self.src) * self.translations

    @property
    def strides(self) -> tuple[int, ...]:
        """The weight of each digit in the number of a rank."""
        return tuple(math.prod(self.sizes[:axis]) for axis in range(len(self.sizes)))

    @cached_property
    def shifts(self) -> Indices:
        """The shifts of all translations, rising."""
        return np.unique(self.shift_of(np.arange(self.ranks)))

    @cached_property
    def cells(self) -> Indices:
        """The rank of each orbit whose digits along the axes are 0, rising."""
        return np.unique(self.cell_of(np.arange(self.ranks)))

    def shift_of(self, rank: Indices) -> Indices:
        """Return each rank's shift: the translation that maps the orbit's rank in ``cells`` to it."""
        found = np.zeros_like(np.asarray(rank, np.int64))
        for axis in self.axes:
            found += rank // self.strides[axis] % self.sizes[axis] * self.strides[axis]
        return found

    def cell_of(self, rank: Indices) -> Indices:
        """Return the rank in ``cells`` of each rank's orbit."""
        return np.asarray(rank, np.int64) - self.shift_of(rank)

    def moved(self, rank: Indices, shift: Indices) -> Indices:
        """Return ranks, or shifts, translated by ``shift``; both are broadcast."""
        found = np.asarray(self.cell_of(rank) + 0 * np.asarray(shift, np.int64))
        for axis in self.axes:
            size, stride = self.sizes[axis], self.strides[axis]
            found += (rank // stride + shift // stride) % size * stride
        return found

    def back(self, shift: Indices) -> Indices:
        """Return the shift of the inverse translation."""
        found = np.zeros_like(np.asarray(shift, np.int64))
        for axis in self.axes:
            size, stride = self.sizes[axis], self.strides[axis]
            found += -(shift // stride) % size * stride
        return found

    def hold_s(self, chunk_bytes: int) -> Floats:
        """Return the seconds that one chunk keeps a link of each orbit, and its ports, busy."""
        held = self.beta_s_per_byte * chunk_bytes
        return floats(held + self.alpha_s if self.hold_alpha else held)

    def travel_s(self, chunk_bytes: int) -> Floats:
        """Return the seconds from the start of a send to its arrival, for each orbit of links."""
        return floats(self.alpha_s + self.beta_s_per_byte * chunk_bytes)

    def ports_of(self, link: int) -> Ints:
        return self.link_port[self.link_port_start[link] : self.link_port_start[link + 1]]

    def transposed(self) -> SymmetricNetwork:
        """Reverse every link; link e at shift h becomes link e at shift ``turned(e, h)``."""
        away = self.back(self.shift_of(self.dst))
        user = np.repeat(np.arange(len(self.src)), np.diff(self.link_port_start))
        return replace(
            self,
            src=ints(self.cell_of(self.dst)),
            dst=ints(self.moved(self.src, away)),
            link_port_at=ints(self.moved(self.link_port_at, away[user])),
        )

    def turned(self, link: Indices, shift: Indices) -> Indices:
        """Return the shift of the reversed link in the transposed network."""
        return self.moved(shift, self.shift_of(self.dst)[link])

    def part(self, link: Indices, shift: Indices, *, together: bool = False) -> Network:
        """Return the plain network of the links ``link`` translated by ``shift``.

        ``together`` merges orbits, for quotients: the links of an orbit share one more port, and all ports of
        an orbit are one port.
        """
        src, dst = self.moved(self.src[link], shift), self.moved(self.dst[link], shift)
        counts = np.diff(self.link_port_start)[link]
        entry = spans(self.link_port_start[:-1][link], counts)
        orbit, at = self.link_port[entry], self.link_port_at[entry]
        start = offsets(counts)
        if together:
            own = np.unique(link)
            names = (*self.ports, *(f"links like {self.src[e]}→{self.dst[e]}" for e in own.tolist()))
            port = np.insert(orbit.astype(np.int64), start[:-1], len(self.ports) + np.searchsorted(own, link))
            start = start + np.arange(len(start))
        else:
            known, port = np.unique(
                orbit.astype(np.int64) * self.ranks + self.moved(at, np.repeat(shift, counts)),
                return_inverse=True,
            )
            pairs = (divmod(one, self.ranks) for one in known.tolist())
            names = tuple(f"{self.ports[orbit]} at {at}" for orbit, at in pairs)
        return Network(
            name=self.name,
            hosts=self.hosts,
            src=ints(src),
            dst=ints(dst),
            alpha_s=floats(self.alpha_s[link]),
            beta_s_per_byte=floats(self.beta_s_per_byte[link]),
            ports=names,
            link_port_start=ints(start),
            link_port=ints(port),
            hold_alpha=self.hold_alpha,
        )

    def expanded(self) -> Network:
        """Return the plain network of all links; raise UsageError if they are too many."""
        require_links(self.name, self.links)
        return self.part(
            np.repeat(np.arange(len(self.src)), self.translations), np.tile(self.shifts, len(self.src))
        )

    def problems(self) -> list[str]:
        """Return every inconsistency between the columns, as ``path: problem``."""
        found = []
        if not self.sizes or min(self.sizes) < 1 or self.ranks < 2:
            return ["sizes: expected numbers ≥ 1 that multiply to 2 or more"]
        if self.ranks > MOST_RANKS:
            return [f"sizes: expected at most {MOST_RANKS} ranks, found {self.ranks}"]
        if list(self.axes) != sorted({axis for axis in self.axes if 0 <= axis < len(self.sizes)}):
            return [f"axes: expected rising numbers from 0 to {len(self.sizes) - 1}"]
        if self.ranks_per_host < 1:
            found.append(f"ranks_per_host: expected at least 1, found {self.ranks_per_host}")
        if len(self.link_port_at) != len(self.link_port):
            found.append(f"link_port_at: expected {len(self.link_port)} values, as many as link_port")
            return found
        for name in ("src", "dst", "link_port_at"):
            column = getattr(self, name)
            bad = np.flatnonzero((column < 0) | (column >= self.ranks))[:5]
            found += [f"{name}[{row}]: there is no rank {column[row]}" for row in bad]
        if found or len(self.dst) != len(self.src):
            return [*found, *([] if found else [f"dst: expected {len(self.src)} values, as many as src"])]
        for name, column, part in (
            ("src", self.src, self.cell_of),
            ("link_port_at", self.link_port_at, self.shift_of),
        ):
            bad = np.flatnonzero(part(column) != column)[:5]
            wanted = "digits 0 along the axes" if name == "src" else "a shift along the axes"
            found += [f"{name}[{row}]: expected {wanted}, found {column[row]}" for row in bad]
        return (
            found
            or Network(
                self.name,
                ("",) * self.ranks,
                self.src,
                self.dst,
                self.alpha_s,
                self.beta_s_per_byte,
                self.ports,
                self.link_port_start,
                self.link_port,
                self.hold_alpha,
            ).problems()
        )


def cell_table(sizes: Sequence[int], axes: Iterable[int]) -> Indices:
    """Return for each rank the rank of its orbit whose digits along the axes are 0."""
    rank = np.arange(math.prod(sizes))
    for axis in axes:
        stride = math.prod(sizes[:axis])
        rank -= rank // stride % sizes[axis] * stride
    return rank


def from_links(
    name: str,
    sizes: Iterable[int],
    axes: Iterable[int],
    links: Iterable[OrbitLink],
    *,
    ranks_per_host: int = 1,
    hold_alpha: bool = False,
) -> SymmetricNetwork:
    """Return a network from one link of each orbit; ports are numbered by the first use of their orbit."""
    table = list(links)
    plain = build(
        name,
        (),
        (Link(*link[:4], tuple(port for port, _ in link.ports)) for link in table),
        hold_alpha=hold_alpha,
    )
    for link in table:
        if len(dict(link.ports)) < len(link.ports):
            raise UsageError(f"network {name}: link {link.src} → {link.dst} uses two ports of one orbit")
    return SymmetricNetwork(
        name=name,
        sizes=tuple(sizes),
        axes=tuple(axes),
        ranks_per_host=ranks_per_host,
        src=plain.src,
        dst=plain.dst,
        alpha_s=plain.alpha_s,
        beta_s_per_byte=plain.beta_s_per_byte,
        ports=plain.ports,
        link_port_start=plain.link_port_start,
        link_port=plain.link_port,
        link_port_at=ints([at for link in table for _, at in link.ports]),
        hold_alpha=hold_alpha,
    )
