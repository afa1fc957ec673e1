"""Collectives: who holds which chunk before, who must hold it after, and what is reduced.

A chunk is the unit that moves, numbered once for the whole collective. ``sources`` of a chunk are
the ranks that contribute to it (one for a copying collective, all of them for a reducing one);
``wanted`` says at which ranks it must end, carrying each source's contribution exactly once.

| collective      | chunks C, k of them | source of chunk c | wanted at        |
|-----------------|---------------------|-------------------|------------------|
| all_gather      | k a rank: C = N·k   | c // k            | every rank       |
| reduce_scatter  | k a rank: C = N·k   | every rank        | c // k           |
| all_reduce      | C = k a buffer      | every rank        | every rank       |
| broadcast       | C = k a buffer      | root              | every rank       |
| reduce          | C = k a buffer      | every rank        | root             |
| all_to_all      | k a pair: C = N·N·k | c // (N·k)        | (c // k) mod N   |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from probes.columns import Ints
from probes.errors import UsageError

__all__ = ["KINDS", "Collective", "Kind", "collective"]

Kind = Literal["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "all_to_all"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_REDUCING = ("reduce_scatter", "all_reduce", "reduce")


@dataclass(frozen=True)
class Collective:
    """A precondition and a postcondition over (rank, chunk); ``chunks`` counts all chunks."""

    kind: Kind
    ranks: int
    chunks: int
    root: int = 0

    @property
    def reduces(self) -> bool:
        return self.kind in _REDUCING

    @property
    def share(self) -> int:
        """Chunks per owner: per rank (all_gather, reduce_scatter), per pair (all_to_all), else all."""
        if self.kind in ("all_gather", "reduce_scatter"):
            return self.chunks // self.ranks
        if self.kind == "all_to_all":
            return self.chunks // self.ranks**2
        return self.chunks

    def source_of(self) -> Ints:
        """For each chunk the one rank that holds it at first, or -1 where every rank contributes."""
        chunk = np.arange(self.chunks, dtype=np.int32)
        if self.reduces:
            return np.full(self.chunks, -1, dtype=np.int32)
        if self.kind == "all_gather":
            return chunk // np.int32(self.share)
        if self.kind == "all_to_all":
            return chunk // np.int32(self.ranks * self.share)
        return np.full(self.chunks, self.root, dtype=np.int32)

    def target_of(self) -> Ints:
        """For each chunk the one rank that must end with it, or -1 where every rank must."""
        chunk = np.arange(self.chunks, dtype=np.int32)
        if self.kind == "reduce_scatter":
            return chunk // np.int32(self.share)
        if self.kind == "all_to_all":
            return (chunk // np.int32(self.share)) % np.int32(self.ranks)
        if self.kind == "reduce":
            return np.full(self.chunks, self.root, dtype=np.int32)
        return np.full(self.chunks, -1, dtype=np.int32)

    def held(self) -> NDArray[np.bool_]:
        """(ranks, chunks): who holds (a contribution to) each chunk before the start."""
        return _spread(self.source_of(), self.ranks)

    def wanted(self) -> NDArray[np.bool_]:
        """(ranks, chunks): who must hold each chunk, complete, at the end."""
        return _spread(self.target_of(), self.ranks)

    def input_slots(self, rank: int) -> Ints:
        """For each chunk its slot in ``rank``'s input buffer, or -1."""
        return _slots(self.source_of(), rank)

    def output_slots(self, rank: int) -> Ints:
        """For each chunk its slot in ``rank``'s output buffer, or -1.

        For all_to_all the slot is ordered by the source rank, as MPI_Alltoall has it.
        """
        return _slots(self.target_of(), rank)

    def total_bytes(self, chunk_bytes: int) -> int:
        """The size as nccl-tests counts it: the larger of a rank's send and receive buffer."""
        chunks = self.chunks // self.ranks if self.kind == "all_to_all" else self.chunks
        return chunks * chunk_bytes

    def problems(self) -> list[str]:
        found = []
        if self.ranks < 1:
            found.append(f"ranks: expected at least 1, found {self.ranks}")
        elif not 0 <= self.root < self.ranks:
            found.append(f"root: there is no rank {self.root}")
        unit = {"all_gather": self.ranks, "reduce_scatter": self.ranks, "all_to_all": self.ranks**2}
        every = unit.get(self.kind, 1)
        if self.chunks < 1 or self.chunks % max(every, 1):
            found.append(f"chunks: expected a positive multiple of {every}, found {self.chunks}")
        return found


def collective(kind: Kind, ranks: int, chunks_per_rank: int = 1, root: int = 0) -> Collective:
    """A collective in which each rank starts with ``chunks_per_rank`` chunks.

    For reduce_scatter and all_to_all a rank starts with a chunk for every rank, so there the count
    is rounded up to a multiple of the ranks. Raises UsageError where the request makes no sense.
    """
    if chunks_per_rank < 1:
        raise UsageError(f"--chunks: expected at least 1, found {chunks_per_rank}")
    if not 0 <= root < ranks:
        raise UsageError(f"--root: there is no rank {root} among {ranks}")
    rounded = -(-chunks_per_rank // ranks) * ranks
    chunks = {
        "all_gather": chunks_per_rank * ranks,
        "reduce_scatter": rounded,
        "all_to_all": rounded * ranks,
    }.get(kind, chunks_per_rank)
    return Collective(kind=kind, ranks=ranks, chunks=chunks, root=root)


def _spread(rank_of: Ints, ranks: int) -> NDArray[np.bool_]:
    everywhere = np.asarray(rank_of < 0)[None, :]
    return np.asarray((rank_of[None, :] == np.arange(ranks)[:, None]) | everywhere)


def _slots(rank_of: Ints, rank: int) -> Ints:
    here = (rank_of == rank) | (rank_of < 0)
    return np.where(here, np.cumsum(here) - 1, -1).astype(np.int32)
