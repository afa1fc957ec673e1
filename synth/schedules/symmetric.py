"""A symmetric schedule: a schedule on a symmetric network that lists one send of each orbit.

**Translations.** A symmetric network (`synth.networks.symmetric`) has a group of translations: permutations
of its ranks that map links to links of the same cost and ports to ports. On a ring or a torus they are the
rotations. Only the identity maps any rank, link or port to itself. A translation also maps the chunks of a
rank to the corresponding chunks of the rank's image, and a send (chunk, link) to the send of the mapped chunk
over the mapped link. The image of an object is its *translate*.

**Orbits.** An orbit is all translates of one rank, link, port, chunk or send; it has as many members as there
are translations. A symmetric schedule *lists* one send of each orbit of sends. The other translates are
*implied*; each starts when its listed send does. On a torus of 65,536 ranks all ranks are one orbit: an
all_gather has 4·10⁹ sends, and only the 65,535 sends of rank 0's chunk are listed.

**Quotient.** Each link of an orbit carries exactly one translate of each listed send over that orbit, and so
does each port. So all links of an orbit are held at the same times, namely while a listed send over the orbit
holds its link. The *quotient* is the plain schedule of the listed sends on a network in which the links of an
orbit share one port and the ports of an orbit are one port. If it is correct, so is the whole schedule, and
both take the same time. So the checker and the simulator use only the quotient:

- Translations map the network and the collective to themselves, by construction: a symmetric network stores
  one link of each orbit, and translation makes all others.
- If the listed sends exclude each other on the quotient's ports, all translates do on every link and port.
- The ranks that a chunk reaches, and its contributions, depend on the sends of that chunk alone. If the
  listed chunk arrives where the collective wants it, so do its translates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from probes.base import Bytes, Floats, Indices, Ints, bytes_of, ints
from synth.collective import Collective, custom
from synth.network import Network
from synth.networks import SymmetricNetwork
from synth.rank_sets import RankSets, each, every
from synth.schedules.protocol import RIGHT, Obligation, Workload
from synth.schedules.schedule import MOST_CHUNK_BYTES, Outcome, Race, Schedule, Timing

__all__ = ["SYMMETRIC", "SymmetricSchedule"]

# Collectives that every translation of the ranks leaves unchanged.
SYMMETRIC = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")


@dataclass(frozen=True, eq=False)
class SymmetricSchedule:
    """The listed sends as columns, in the order of their starts.

    Send ``row`` carries ``chunk[row]`` over the network's link ``link[row]`` translated by ``shift[row]``;
    ``op`` is COPY or REDUCE, as in a schedule. The listed chunks are those owned by the ranks in
    ``network.cells``, either as source or as owner of the sum. The chunks of the n-th of these ranks are
    numbered ``n · share + lap``, in an all_to_all ``(n · ranks + target) · share + lap``.
    """

    network: SymmetricNetwork
    collective: Collective
    chunk_bytes: int
    method: str
    seed: int
    chunk: Ints
    link: Ints
    shift: Ints
    op: Bytes
    outcome: Outcome | None = None

    kind: ClassVar[str] = "symmetric"
    noun: ClassVar[str] = "symmetric schedule"
    is_listed: ClassVar[bool] = False
    is_sized: ClassVar[bool] = True

    def listed_network(self) -> Network:
        """Return the network with all its links; raises UsageError if they are too many to list."""
        return self.network.expanded()

    @property
    def whole(self) -> Collective:
        return self.collective

    @property
    def race(self) -> Race | None:
        """None: symmetric schedules are not raced."""
        return None

    @property
    def facts(self) -> Mapping[str, float]:
        """The number of listed sends, and the number of translates of each."""
        return {"listed": len(self.chunk), "translations": self.network.translations}

    def remark(self, seconds: Callable[[float], str]) -> str:
        """Return in words how many sends are listed."""
        return f"symmetric: {len(self.chunk)} sends are listed; the others are the same with shifted ranks"

    @property
    def proof(self) -> str:
        does = f"{self.collective.label} on {self.network.ranks} ranks"
        copies = f"each with {self.network.translations - 1} shifted copies"
        return f"{len(self.chunk)} sends, {copies}, do {does}: {RIGHT}"

    def obligations(self, timing: Timing | None = None) -> Sequence[Obligation]:
        return [Obligation(self.quotient, timing)]

    @property
    def workload(self) -> Workload:
        """The whole collective, in chunks of any size."""
        return Workload(self.collective, self.chunk_bytes, fluid=True)

    @property
    def excerpt(self) -> Schedule | None:
        return self.quotient

    def timing(self, excerpt: Timing | None) -> Timing:
        """Return the times of the listed sends; translates start and arrive at the same times."""
        assert excerpt is not None
        return excerpt

    @property
    def sends(self) -> int:
        """The number of all sends, listed and implied."""
        return len(self.chunk) * self.network.translations

    @property
    def share(self) -> int:
        """The number of chunks that a rank owns; in an all_to_all, for each target rank."""
        if self.collective.kind == "all_reduce":
            return self.collective.chunks // self.network.ranks
        return self.collective.share

    @property
    def listed(self) -> Collective:
        """The collective of the listed chunks alone: which ranks hold, want and sum them."""
        network, kind = self.network, self.collective.kind
        ranks = network.ranks
        each_cell = np.arange(len(network.cells))
        owner = np.repeat(each_cell, self.share * (ranks if kind == "all_to_all" else 1))
        own = RankSets(ints(owner), ints(np.append(each_cell, len(each_cell))), ints(network.cells))
        all_ranks = every(np.arange(ranks), len(owner))
        reduced = np.full(len(owner), self.collective.reduces)
        if kind == "all_to_all":
            target = np.tile(np.repeat(np.arange(ranks), self.share), len(network.cells))
            return custom(ranks, own, each(target, ranks), reduced)
        sources = all_ranks if self.collective.reduces else own
        return custom(ranks, sources, own if kind == "reduce_scatter" else all_ranks, reduced)

    @cached_property
    def quotient(self) -> Schedule:
        """The listed sends as a plain schedule on a network with merged orbits (see the module)."""
        network = self.network
        key = self.link.astype(np.int64) * network.ranks + self.shift
        known, row = np.unique(key, return_inverse=True)
        link, shift = np.divmod(known, network.ranks)
        on = network.part(link, shift, together=True)
        return Schedule(
            on, self.listed, self.chunk_bytes, self.method, self.seed, self.chunk, ints(row), self.op
        )

    @property
    def busy_s(self) -> Floats:
        """The total seconds for which a link of each orbit is held, then a port of each orbit."""
        uses = np.bincount(self.link, minlength=len(self.network.src))
        held_s = uses * self.network.hold_s(self.chunk_bytes)
        ports_s = np.zeros(len(self.network.ports))
        user = np.repeat(np.arange(len(uses)), np.diff(self.network.link_port_start))
        np.add.at(ports_s, self.network.link_port, held_s[user])
        return np.concatenate([held_s, ports_s])

    def of_size(self, size_bytes: int) -> SymmetricSchedule:
        """Return the same sends, without an outcome, with chunks for ``size_bytes``, rounded up."""
        chunk_bytes = max(1, -(-size_bytes // self.collective.total_bytes(1)))
        return replace(self, chunk_bytes=chunk_bytes, outcome=None)

    def chunk_at(self, chunk: Indices, shift: Indices) -> Indices:
        """Return the numbers, in ``collective``, of listed chunks translated by ``shift``."""
        network, share, ranks = self.network, self.share, self.network.ranks
        rest, lap = np.divmod(np.asarray(chunk, np.int64), share)
        if self.collective.kind == "all_to_all":
            cell, target = np.divmod(rest, ranks)
            owner = network.moved(network.cells[cell], shift)
            return np.asarray((owner * ranks + network.moved(target, shift)) * share + lap)
        owner = network.moved(network.cells[rest], shift)
        # In an all_reduce, ranks own chunks in turn.
        return np.asarray(
            lap * ranks + owner if self.collective.kind == "all_reduce" else owner * share + lap
        )

    def implied(self) -> tuple[Ints, Ints, Ints, Bytes]:
        """Return (chunk, link, shift, op) of all sends in the order of their starts; O(sends)."""
        network, shifts = self.network, self.network.shifts
        row, by = np.repeat(np.arange(len(self.chunk)), len(shifts)), np.tile(shifts, len(self.chunk))
        chunk, shift = self.chunk_at(self.chunk[row], by), network.moved(self.shift[row], by)
        return ints(chunk), self.link[row], ints(shift), bytes_of(self.op[row])

    def expanded(self) -> Schedule:
        """Return the plain schedule of all sends, on the network of the links that it uses; O(all sends)."""
        network = self.network
        chunk, link, shift, op = self.implied()
        known, at = np.unique(link.astype(np.int64) * network.ranks + shift, return_inverse=True)
        on = network.part(*np.divmod(known, network.ranks))
        return Schedule(on, self.collective, self.chunk_bytes, self.method, self.seed, chunk, ints(at), op)

    def problems(self) -> list[str]:
        """Return every inconsistency, as ``path: what is wrong``; ``synth.check`` judges feasibility."""
        found = [f"network.{problem}" for problem in self.network.problems()]
        found += [f"collective.{problem}" for problem in self.collective.problems()]
        if found:
            return found
        kind, ranks = self.collective.kind, self.network.ranks
        if kind not in SYMMETRIC or self.collective.members:
            return [f"collective.kind: expected {', '.join(SYMMETRIC)} of all ranks, found {kind}"]
        if self.collective.ranks != ranks:
            return [f"collective.ranks: the network has {ranks}, the collective {self.collective.ranks}"]
        if self.collective.chunks % ranks or self.share < 1:
            return [f"collective.chunks: expected a multiple of {ranks}, found {self.collective.chunks}"]
        if not 1 <= self.chunk_bytes <= MOST_CHUNK_BYTES:
            found.append(f"chunk_bytes: expected 1 to {MOST_CHUNK_BYTES}, found {self.chunk_bytes}")
        chunks = self.collective.chunks // self.network.translations
        limits = (("chunk", chunks), ("link", len(self.network.src)), ("shift", ranks), ("op", 2))
        for name, limit in limits:
            column = getattr(self, name)
            if len(column) != len(self.chunk):
                found.append(f"{name}: expected {len(self.chunk)} values, as many as chunk")
            bad = ((column < 0) | (column >= limit)).nonzero()[0][:5]
            found += [f"{name}[{row}]: expected 0 … {limit - 1}, found {column[row]}" for row in bad]
        off = np.flatnonzero(self.network.shift_of(self.shift) != self.shift)[:5]
        found += [f"shift[{row}]: expected a shift along the axes, found {self.shift[row]}" for row in off]
        return found + [f"outcome.{problem}" for problem in (self.outcome.problems() if self.outcome else ())]
