"""A symmetric schedule: the sends of one chunk of each orbit; all translates of a send start with it.

A translation takes a rank to another, so a chunk to that which the other rank owns, and a send to that of the
translated chunk over the translated link. Listed is one of each orbit. On 65,536 ranks an all_gather has
4·10⁹ sends and 65,535 rows.

Links and ports of an orbit are used alike, each by one translate of every listed send over the orbit. So what
holds of the *quotient*, the listed sends on a network in which the links of an orbit take turns, holds of the
whole: ``synth.check.symmetric`` proves it there, and replaying it gives the time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from probes.columns import Bytes, Floats, Indices, Ints, bytes_of, ints
from synth.collective import Collective, custom
from synth.networks.symmetric import SymmetricNetwork
from synth.rank_sets import RankSets, each, every
from synth.schedule import MOST_CHUNK_BYTES, Outcome, Schedule

__all__ = ["SYMMETRIC", "SymmetricSchedule"]

# Collectives that all translations of ranks keep the same.
SYMMETRIC = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")


@dataclass(frozen=True, eq=False)
class SymmetricSchedule:
    """Listed sends as columns, in the order they start: ``chunk`` over ``link``, an orbit's, at ``shift``.

    Listed are the chunks that the ranks in ``network.cells`` own, which are their sources or, where chunks
    are summed up, their owners: number ``cell · share + lap``, cells numbered through. Of an all_to_all it is
    ``(cell · ranks + target) · share + lap``. ``share`` is that of ``collective``; of an all_reduce the
    chunks of a rank. ``op`` is COPY or REDUCE, as in a schedule.
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

    @property
    def sends(self) -> int:
        """Sends of all orbits."""
        return len(self.chunk) * self.network.translations

    @property
    def share(self) -> int:
        """Chunks that a rank owns, of an all_to_all for one other rank."""
        if self.collective.kind == "all_reduce":
            return self.collective.chunks // self.network.ranks
        return self.collective.share

    @property
    def listed(self) -> Collective:
        """What is asked of the listed chunks alone."""
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
        """The listed sends as a plain schedule; links of an orbit share one port, and its ports are one."""
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
        """How long a link of each orbit is held in all, then a port of each."""
        uses = np.bincount(self.link, minlength=len(self.network.src))
        held_s = uses * self.network.hold_s(self.chunk_bytes)
        ports_s = np.zeros(len(self.network.ports))
        user = np.repeat(np.arange(len(uses)), np.diff(self.network.link_port_start))
        np.add.at(ports_s, self.network.link_port, held_s[user])
        return np.concatenate([held_s, ports_s])

    def of_size(self, size_bytes: int) -> SymmetricSchedule:
        """The same with chunks so large that the buffer is of ``size_bytes``; what it takes is not told."""
        chunk_bytes = max(1, -(-size_bytes // self.collective.total_bytes(1)))
        return replace(self, chunk_bytes=chunk_bytes, outcome=None)

    def chunk_at(self, chunk: Indices, shift: Indices) -> Indices:
        """The number, in ``collective``, of the translates of listed chunks."""
        network, share, ranks = self.network, self.share, self.network.ranks
        rest, lap = np.divmod(np.asarray(chunk, np.int64), share)
        if self.collective.kind == "all_to_all":
            cell, target = np.divmod(rest, ranks)
            owner = network.moved(network.cells[cell], shift)
            return np.asarray((owner * ranks + network.moved(target, shift)) * share + lap)
        owner = network.moved(network.cells[rest], shift)
        # Of an all_reduce the ranks own chunks in turn.
        return np.asarray(
            lap * ranks + owner if self.collective.kind == "all_reduce" else owner * share + lap
        )

    def expanded(self) -> Schedule:
        """The plain schedule of all sends, on the network of the links that it uses."""
        network, shifts = self.network, self.network.shifts
        row, by = np.repeat(np.arange(len(self.chunk)), len(shifts)), np.tile(shifts, len(self.chunk))
        link, shift = self.link[row], network.moved(self.shift[row], by)
        known, at = np.unique(link.astype(np.int64) * network.ranks + shift, return_inverse=True)
        return Schedule(
            network.part(*np.divmod(known, network.ranks)),
            self.collective,
            self.chunk_bytes,
            self.method,
            self.seed,
            ints(self.chunk_at(self.chunk[row], by)),
            ints(at),
            bytes_of(self.op[row]),
        )

    def problems(self) -> list[str]:
        """Every inconsistency, as ``path: what is wrong``; ``synth.check.symmetric`` judges feasibility."""
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
                found.append(f"{name}: expected {len(self.chunk)} values like chunk")
            bad = ((column < 0) | (column >= limit)).nonzero()[0][:5]
            found += [f"{name}[{row}]: expected 0 … {limit - 1}, found {column[row]}" for row in bad]
        off = np.flatnonzero(self.network.shift_of(self.shift) != self.shift)[:5]
        found += [f"shift[{row}]: expected a shift along the axes, found {self.shift[row]}" for row in off]
        return found + [f"outcome.{problem}" for problem in (self.outcome.problems() if self.outcome else ())]
