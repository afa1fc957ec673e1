"""Collectives: the ranks that hold each chunk at first and in the end, and whether it is reduced.

A chunk is the unit that moves; its number is unique within the collective. Its ``sources`` are the ranks
that hold it at first. If the chunk is ``reduced``, each source holds its own contribution; otherwise all hold
the same copy. Its ``targets`` are the ranks that must hold it at the end, with every contribution exactly
once.

| collective      | C chunks, k of them     | source of chunk c | wanted at        |
|-----------------|-------------------------|-------------------|------------------|
| all_gather      | per rank: C = N·k       | c // k            | every rank       |
| reduce_scatter  | per rank: C = N·k       | every rank        | c // k           |
| all_reduce      | in all: C = k           | every rank        | every rank       |
| broadcast       | in all: C = k           | root              | every rank       |
| reduce          | in all: C = k           | every rank        | root             |
| scatter         | per rank: C = N·k       | root              | c // k           |
| gather          | per rank: C = N·k       | c // k            | root             |
| all_to_all      | per pair: C = N·N·k     | c // (N·k)        | (c // k) mod N   |
| all_to_next     | per rank: C = (N − 1)·k | c // k            | c // k + 1       |

If only some ranks of the network are ``members``, N counts the members, and the table's numbers are positions
among them. Other ranks may relay, but are neither source nor target. ``custom`` lists the sets of every
chunk. An uneven all_gather, reduce_scatter, scatter, gather or all_to_all, MPI's v-collectives, is a custom
collective whose ``UnevenBlocks`` say how large the data of each rank or pair is. A custom collective may have
blocks of its own, each with its size, sources and targets (`of_blocks`). ``several`` is two or more
collectives at once; their chunks are numbered consecutively.

With the sum order "aligned", every sum is added up along the aligned tree, which depends only on the number
of sources. The leaves of the tree are the sources, rising. A tree over n leaves adds the sum of the first m
to the sum of the others, where m is the largest power of two below n (as in the Merkle tree of RFC 6962). Two
summands may be swapped, as a + b and b + a are the same number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Literal, get_args

import numpy as np

from probes.base import (
    Bytes,
    Indices,
    Ints,
    Longs,
    Mask,
    UsageError,
    bytes_of,
    ints,
    longs,
    meant,
    offsets,
    quoted,
)
from synth.rank_sets import RankSets, each, every, joined

__all__ = [
    "KINDS",
    "MOST_CHUNKS",
    "MOST_RANKS",
    "REDUCING",
    "ROOTED",
    "UNEVEN_KINDS",
    "Collective",
    "Custom",
    "Kind",
    "SumOrder",
    "UnevenBlocks",
    "collective",
    "custom",
    "kind_of",
    "of_blocks",
    "several",
    "uneven",
]

Kind = Literal[
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "all_to_all",
    "all_to_next",
    "custom",
    "several",
]
# The order in which the contributions to a chunk are added up: any order, or the aligned tree's.
SumOrder = Literal["any", "aligned"]
KINDS: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind not in ("custom", "several"))
# Larger collectives are refused before their arrays fill the memory.
MOST_RANKS = 1 << 16
MOST_CHUNKS = 1 << 26
# Names that MPI and PyTorch users write.
_OTHER_NAMES: dict[str, Kind] = {
    "bcast": "broadcast",
    "a2a": "all_to_all",
    "all2all": "all_to_all",
    "ag": "all_gather",
    "ar": "all_reduce",
    "rs": "reduce_scatter",
}
# Names, mostly of nccl-tests, that have no collective here, and a hint at the nearest one.
_NEAREST: dict[str, str] = {
    "sendrecv": "all_to_next is nearest: each rank sends to the next, and the last to none",
    "hypercube": "it is an all_gather in rounds of doubling distance: write all_gather",
    "alltoallv": "it is an all_to_all with a count for each pair of ranks",
    "barrier": "an all_reduce of a few bytes takes as long",
}
REDUCING = ("reduce_scatter", "all_reduce", "reduce")
ROOTED = ("broadcast", "reduce", "scatter", "gather")
_PER_MEMBER = ("all_gather", "reduce_scatter", "scatter", "gather")
# The collectives that may be uneven: their data consists of a block for each rank or pair.
UNEVEN_KINDS: tuple[Kind, ...] = ("all_gather", "reduce_scatter", "scatter", "gather", "all_to_all")
# Collectives whose input and output hold the same chunks at the same positions, so they may share memory.
_IN_PLACE = (*_PER_MEMBER, "all_reduce", "broadcast", "reduce")

_REVERSALS: dict[Kind, Kind] = {"reduce_scatter": "all_gather", "reduce": "broadcast"}

_Owner = Callable[[Indices, int, int], Indices]
_SOURCES: dict[str, _Owner] = {
    "all_gather": lambda chunk, share, members: chunk // share,
    "gather": lambda chunk, share, members: chunk // share,
    "all_to_all": lambda chunk, share, members: chunk // (members * share),
    "all_to_next": lambda chunk, share, members: chunk // share,
}
_TARGETS: dict[str, _Owner] = {
    "reduce_scatter": lambda chunk, share, members: chunk // share,
    "scatter": lambda chunk, share, members: chunk // share,
    "all_to_all": lambda chunk, share, members: (chunk // share) % members,
    "all_to_next": lambda chunk, share, members: chunk // share + 1,
}


@dataclass(frozen=True, eq=False)
class UnevenBlocks:
    """The data of an uneven collective of ``kind``.

    Block b has ``size_bytes[b]`` bytes in ``chunks[b]`` chunks. There is one block for each rank, or for each
    pair in an all_to_all of N ranks: block i·N + j goes from rank i to rank j. With kind custom, the sets of
    the chunks say which ranks hold and want each block. The chunks of a block are consecutive and about
    equal. A block without data has no chunk.
    """

    kind: Kind
    root: int
    chunks: Ints
    size_bytes: Longs

    @property
    def largest_bytes(self) -> int:
        return int(self.size_bytes.max())

    def of_chunk(self) -> Indices:
        """Return the block of each chunk."""
        return np.repeat(np.arange(len(self.chunks)), self.chunks)

    def same_data(self, other: UnevenBlocks) -> bool:
        """Return whether both move the same bytes between the same ranks."""
        return (self.kind, self.root) == (other.kind, other.root) and np.array_equal(
            self.size_bytes, other.size_bytes
        )

    def sets(self, ranks: int) -> tuple[RankSets, RankSets]:
        """Return the sources and the targets of each chunk, as the kind says."""
        block = self.of_chunk()
        everyone, root = every(np.arange(ranks), len(block)), every(np.array([self.root]), len(block))
        if self.kind == "all_to_all":
            return each(block // ranks, ranks), each(block % ranks, ranks)
        owners = each(block, ranks)
        return {
            "all_gather": (owners, everyone),
            "reduce_scatter": (everyone, owners),
            "scatter": (root, owners),
            "gather": (owners, root),
        }[self.kind]

    def problems(self, ranks: int, chunks: int) -> list[str]:
        if self.kind not in (*UNEVEN_KINDS, "custom"):
            return [f"kind: expected one of {', '.join(UNEVEN_KINDS)} or custom, found {self.kind}"]
        expected = {"all_to_all": ranks**2, "custom": len(self.size_bytes)}.get(self.kind, ranks)
        found = [
            f"{name}: expected {expected} values, found {len(getattr(self, name))}"
            for name in ("chunks", "size_bytes")
            if len(getattr(self, name)) != expected
        ]
        if found:
            return found
        if not 0 <= self.root < ranks:
            found.append(f"root: there is no rank {self.root}")
        if (self.size_bytes < 0).any():
            found.append("size_bytes: expected no number below 0")
        if (self.chunks < 0).any() or ((self.chunks > 0) != (self.size_bytes > 0)).any():
            found.append("chunks: expected at least 1 for a block with data, and 0 for a block without")
        elif int(self.chunks.sum()) != chunks:
            found.append(f"chunks: expected {chunks} in all, found {int(self.chunks.sum())}")
        return found


@dataclass(frozen=True, eq=False)
class Custom:
    """The sets of a custom collective: group ``source[c]`` holds chunk c, group ``target[c]`` must get it.

    Group g is the ranks ``group_rank[group_start[g] : group_start[g + 1]]``; ``reduced`` is 1 where the
    sources of a chunk contribute to a sum. ``blocks`` are the blocks of an uneven collective or of a
    redistribution, else None.
    """

    source: Ints
    target: Ints
    reduced: Bytes
    group_start: Ints
    group_rank: Ints
    blocks: UnevenBlocks | None = None

    def cut(self, parts: int) -> Custom:
        """Return the same sets with every chunk cut into ``parts`` adjacent chunks."""
        blocks = self.blocks
        return replace(
            self,
            source=ints(np.repeat(self.source, parts)),
            target=ints(np.repeat(self.target, parts)),
            reduced=bytes_of(np.repeat(self.reduced, parts)),
            blocks=blocks and replace(blocks, chunks=ints(blocks.chunks * parts)),
        )

    def problems(self, ranks: int, chunks: int) -> list[str]:
        found = [
            f"{name}: expected {chunks} values, one a chunk, found {len(getattr(self, name))}"
            for name in ("source", "target", "reduced")
            if len(getattr(self, name)) != chunks
        ]
        start, groups = self.group_start, len(self.group_start) - 1
        if groups < 0 or start[0] != 0 or start[-1] != len(self.group_rank) or (np.diff(start) < 1).any():
            found.append(f"group_start: expected to rise from 0 to {len(self.group_rank)}")
        limits = {"source": groups, "target": groups, "reduced": 2, "group_rank": ranks}
        for name, limit in limits.items():
            column = getattr(self, name)
            rows = np.flatnonzero((column < 0) | (column >= limit))[:5]
            found += [f"{name}[{row}]: expected 0 … {limit - 1}, found {column[row]}" for row in rows]
        return found or self._not_rising() or self._contradicts_blocks(ranks, chunks)

    def _contradicts_blocks(self, ranks: int, chunks: int) -> list[str]:
        """Return a finding for each column that differs from the one that the blocks' kind implies."""
        if self.blocks is None:
            return []
        if found := self.blocks.problems(ranks, chunks):
            return [f"blocks.{problem}" for problem in found]
        found = []
        if self.blocks.kind == "custom":
            return self._not_uniform(self.blocks)
        for name, expected in zip(("source", "target"), self.blocks.sets(ranks), strict=True):
            stored = RankSets(getattr(self, name), self.group_start, self.group_rank)
            if any(
                stored.of(chunk).tolist() != expected.of(chunk).tolist()
                for chunk in _changes(stored, expected)
            ):
                found.append(f"{name}: differs from that of an uneven {self.blocks.kind}")
        if (self.reduced > 0).any() != (self.blocks.kind in REDUCING) or len(set(self.reduced.tolist())) > 1:
            found.append(f"reduced: differs from that of an uneven {self.blocks.kind}")
        return found

    def _not_uniform(self, blocks: UnevenBlocks) -> list[str]:
        """Return a finding for each column that differs between two chunks of one block."""
        within = np.diff(blocks.of_chunk(), prepend=-1) == 0
        # Two groups of a file may be the same ranks.
        first: dict[bytes, int] = {}
        start = self.group_start.tolist()
        group = [
            first.setdefault(self.group_rank[low:high].tobytes(), number)
            for number, (low, high) in enumerate(pairwise(start))
        ]
        columns = {name: ints(group)[getattr(self, name)] for name in ("source", "target")}
        columns["reduced"] = self.reduced
        return [
            f"{name}: expected the same for all chunks of a block"
            for name, column in columns.items()
            if (within & (np.diff(column, prepend=-1) != 0)).any()
        ]

    def _not_rising(self) -> list[str]:
        """Return a finding for each rank that does not exceed the rank before it in its group."""
        rises = np.diff(self.group_rank) > 0
        # Each group starts anew: its first rank need not exceed the last rank of the group before.
        rises[self.group_start[1:-1] - 1] = True
        return [
            f"group_rank[{row + 1}]: expected more than {self.group_rank[row]}, the rank before it in its "
            f"group, found {self.group_rank[row + 1]}"
            for row in np.flatnonzero(~rises)[:5]
        ]


@dataclass(frozen=True)
class Collective:
    """A precondition and a postcondition over (rank, chunk); ``chunks`` counts all chunks.

    ``ranks`` counts the ranks of the network; ``members`` are those that take part, rising (empty: all).
    ``custom`` is set only for kind custom and ``parts`` only for kind several; these two kinds have neither
    members nor a root.
    """

    kind: Kind
    ranks: int
    chunks: int
    root: int = 0
    members: tuple[int, ...] = ()
    parts: tuple[Collective, ...] = ()
    custom: Custom | None = None
    sum_order: SumOrder = "any"

    @property
    def reduces(self) -> bool:
        """Whether any chunk is reduced."""
        return self.kind in REDUCING or bool(self.reduced.any())

    @property
    def whole(self) -> bool:
        """Whether this is a collective of the module's table, over all ranks of the network."""
        return self.kind in KINDS and not self.members

    @property
    def in_place(self) -> bool:
        """Whether input and output may share memory."""
        return self.kind in _IN_PLACE

    @property
    def keeps_apart(self) -> bool:
        """Whether input and output can never share memory: their slots hold different chunks."""
        return self.kind in KINDS and not self.in_place

    @property
    def label(self) -> str:
        """The name for people: ``all_reduce``, or ``broadcast + all_reduce``."""
        if self.blocks is not None:
            return "redistribution" if self.blocks.kind == "custom" else f"uneven {self.blocks.kind}"
        return " + ".join(part.label for part in self.parts) if self.kind == "several" else self.kind

    @property
    def blocks(self) -> UnevenBlocks | None:
        """The blocks of an uneven collective or of a redistribution, else None."""
        return self.custom.blocks if self.custom is not None else None

    def buffer_bytes(self) -> Longs:
        """Return (2, ranks): the bytes of the input and of the output of each rank, from its blocks."""
        assert self.blocks is not None
        filled = self.blocks.chunks > 0
        first, size_bytes = offsets(self.blocks.chunks)[:-1][filled], self.blocks.size_bytes[filled]
        sides = (replace(sets, group=sets.group[first]) for sets in (self.sources, self.targets))
        return longs([side.mask(self.ranks) @ size_bytes for side in sides])

    @property
    def size(self) -> int:
        """The number of ranks that take part."""
        return len(self.members) or self.ranks

    @property
    def ranks_in_words(self) -> str:
        """The number of ranks that take part, in words: "8 ranks", "7 of 8 ranks"."""
        return f"{self.size} of {self.ranks} ranks" if self.size < self.ranks else f"{self.ranks} ranks"

    @property
    def share(self) -> int:
        """The k of the module's table: chunks per rank, pair or buffer; 1 for custom and several."""
        if self.kind in ("custom", "several"):
            return 1
        return self.chunks // max(1, _owners(self.kind, self.size))

    @cached_property
    def participants(self) -> Ints:
        """The ranks that take part, rising."""
        return ints(self.members or np.arange(self.ranks))

    @cached_property
    def sources(self) -> RankSets:
        """The ranks that hold (a contribution to) each chunk before the start."""
        if self.kind == "custom":
            assert self.custom is not None
            return RankSets(self.custom.source, self.custom.group_start, self.custom.group_rank)
        if self.kind == "several":
            return joined([part.sources for part in self.parts])
        at_root = self.kind in ("broadcast", "scatter")
        return self._sets(_SOURCES.get(self.kind), at_root=at_root)

    @cached_property
    def targets(self) -> RankSets:
        """The ranks that must hold each chunk, complete, at the end."""
        if self.kind == "custom":
            assert self.custom is not None
            return RankSets(self.custom.target, self.custom.group_start, self.custom.group_rank)
        if self.kind == "several":
            return joined([part.targets for part in self.parts])
        return self._sets(_TARGETS.get(self.kind), at_root=self.kind in ("reduce", "gather"))

    @cached_property
    def reduced(self) -> Mask:
        """Whether the sources' contributions to each chunk are added up."""
        if self.kind == "custom":
            assert self.custom is not None
            return np.asarray(self.custom.reduced > 0)
        if self.kind == "several":
            return np.concatenate([part.reduced for part in self.parts])
        return np.full(self.chunks, self.kind in REDUCING)

    def source_of(self) -> Ints:
        """Return for each chunk the only rank that holds it at first, or -1 if several do."""
        return _or_several(self.sources, self.kind in REDUCING)

    def target_of(self) -> Ints:
        """Return for each chunk the only rank that must hold it at the end, or -1 if several must."""
        return _or_several(self.targets, self.kind in ("all_gather", "all_reduce", "broadcast"))

    def owner_of(self) -> tuple[Indices, Indices]:
        """Return (owner, lap) of each chunk: its owner, and the number of that owner's chunks before it.

        The owner is the chunk's only target if the collective reduces, otherwise its only source. In an
        all_reduce, members own chunks in turn.
        """
        chunk = np.arange(self.chunks)
        if self.kind == "all_reduce":
            return self.participants[chunk % self.size], chunk // self.size
        owner = self.target_of() if self.reduces else self.source_of()
        if self.blocks is not None:
            return owner, chunk - offsets(self.blocks.chunks)[self.blocks.of_chunk()]
        return owner, chunk % self.share

    @property
    def reversal(self) -> Collective | None:
        """The collective whose schedules, reversed in time and direction, serve this one; else None.

        all_gather for reduce_scatter, broadcast for reduce.
        """
        kind = _REVERSALS.get(self.kind)
        return replace(self, kind=kind, sum_order="any") if kind else None

    def held(self) -> Mask:
        """Return a mask (ranks, chunks): whether a rank holds (a contribution to) a chunk at first."""
        return self.sources.mask(self.ranks)

    def wanted(self) -> Mask:
        """Return a mask (ranks, chunks): whether a rank must hold a chunk, complete, at the end."""
        return self.targets.mask(self.ranks)

    def input_slots(self, rank: int) -> Ints:
        """Return the slot of each chunk in ``rank``'s input buffer, or -1."""
        return _slots(self.sources.has(rank))

    def output_slots(self, rank: int) -> Ints:
        """Return the slot of each chunk in ``rank``'s output buffer, or -1.

        In an all_to_all, slots are ordered by source rank, as in MPI_Alltoall.
        """
        return _slots(self.targets.has(rank))

    def total_bytes(self, chunk_bytes: int) -> int:
        """Return the size as nccl-tests counts it: the larger of a rank's send and receive buffer.

        For kind several, it is the size of the largest part.
        """
        if self.kind == "several":
            return max(part.total_bytes(chunk_bytes) for part in self.parts)
        if self.kind == "custom":
            per_rank = [sets.per_rank(self.ranks).max() for sets in (self.sources, self.targets)]
            return int(max(per_rank)) * chunk_bytes
        pairs = {"all_to_all": self.size, "all_to_next": max(1, self.size - 1)}
        return self.chunks // pairs.get(self.kind, 1) * chunk_bytes

    def cut(self, parts: int) -> Collective:
        """Return the collective with every chunk cut into ``parts`` adjacent chunks of each buffer."""
        return replace(
            self,
            chunks=self.chunks * parts,
            parts=tuple(part.cut(parts) for part in self.parts),
            custom=self.custom and self.custom.cut(parts),
        )

    def same_but_for_chunks(self, other: Collective) -> bool:
        """Return whether both collectives move the same data, apart from the number of chunks."""
        one, two = (
            (each.kind, each.ranks, each.root, each.members, len(each.parts), each.sum_order)
            for each in (self, other)
        )
        if one != two:
            return False
        if self.kind == "several":
            return all(
                part.same_but_for_chunks(other_part)
                for part, other_part in zip(self.parts, other.parts, strict=True)
            )
        if self.blocks is not None and other.blocks is not None:
            sets = [[piece[1:] for piece in _pieces(each)] for each in (self, other)]
            return self.blocks.same_data(other.blocks) and sets[0] == sets[1]
        return self.kind != "custom" or _pieces(self) == _pieces(other)

    def problems(self) -> list[str]:
        if not 1 <= self.ranks <= MOST_RANKS:
            return [f"ranks: expected 1 to {MOST_RANKS}, found {self.ranks}"]
        if not 0 <= self.chunks <= MOST_CHUNKS:
            return [f"chunks: expected at most {MOST_CHUNKS}, found {self.chunks}"]
        if found := self._contradictions():
            return found
        if self.kind == "several":
            return self._problems_of_parts()
        if self.custom is not None:
            return [f"custom.{problem}" for problem in self.custom.problems(self.ranks, self.chunks)]
        rising = all(a < b for a, b in zip(self.members, self.members[1:], strict=False))
        if self.members and not (rising and self.members[0] >= 0 and self.members[-1] < self.ranks):
            found.append(f"members: expected rising numbers from 0 to {self.ranks - 1}")
        elif self.root not in self.participants:
            found.append(f"root: there is no rank {self.root}")
        owners = _owners(self.kind, self.size)
        if self.chunks < 1 or owners < 1 or self.chunks % owners:
            found.append(f"chunks: expected a positive multiple of {owners}, found {self.chunks}")
        return found

    def _contradictions(self) -> list[str]:
        """Return a finding for each field that is set but has no meaning for the kind."""
        found = []
        if self.kind == "custom" and self.custom is None:
            found.append("custom: missing, and kind custom needs it")
        if self.kind != "custom" and self.custom is not None:
            found.append(f"custom: expected none beside kind {self.kind}; only kind custom has it")
        if self.kind != "several" and self.parts:
            found.append(f"parts: expected none beside kind {self.kind}; only kind several has them")
        if self.kind not in KINDS and self.members:
            found.append(f"members: expected none beside kind {self.kind}, which says itself who takes part")
        if self.kind not in KINDS and self.root != 0:
            found.append(f"root: expected 0 beside kind {self.kind}, which has none, found {self.root}")
        if self.sum_order != "any" and (self.kind == "several" or self.kind not in (*REDUCING, "custom")):
            found.append(f"sum_order: expected any beside kind {self.kind}, found {self.sum_order}")
        return found

    def _problems_of_parts(self) -> list[str]:
        found = [
            f"parts[{at}].{problem}" for at, part in enumerate(self.parts) for problem in part.problems()
        ]
        if len(self.parts) < 2 or any(part.kind == "several" for part in self.parts):
            found.append("parts: expected two or more collectives, none of them several")
        if any(part.ranks != self.ranks for part in self.parts):
            found.append(f"parts: expected each on the network of {self.ranks} ranks")
        if sum(part.chunks for part in self.parts) != self.chunks:
            found.append(f"chunks: expected those of the parts together, found {self.chunks}")
        return found

    def _sets(self, owner: _Owner | None, *, at_root: bool) -> RankSets:
        if at_root:
            return every(np.array([self.root]), self.chunks)
        if owner is None:
            return every(self.participants, self.chunks)
        place = owner(np.arange(self.chunks), self.share, self.size)
        return each(self.participants[place], self.ranks)


def collective(
    kind: Kind, ranks: int, chunks_per_rank: int = 1, root: int = 0, members: Sequence[int] = ()
) -> Collective:
    """Return a collective of ``members`` (default: all) with ``chunks_per_rank`` chunks in each input.

    In reduce_scatter, scatter and all_to_all, an input holds chunks for every member, so the count is rounded
    up to a multiple of the members. Raises UsageError if the request makes no sense.
    """
    chosen = tuple(sorted(set(members))) if len(set(members)) != ranks else ()
    if chunks_per_rank < 1:
        raise UsageError(f": expected at least 1, found {chunks_per_rank}", argument="chunks")
    if not all(0 <= rank < ranks for rank in chosen):
        raise UsageError(
            f": expected numbers from 0 to {ranks - 1}, found {chosen[0]} … {chosen[-1]}", argument="ranks"
        )
    if not 0 <= root < ranks or (chosen and root not in chosen):
        raise UsageError(
            f": there is no rank {root} among {_named(chosen) if chosen else ranks}", argument="root"
        )
    size = len(chosen) or ranks
    if kind == "all_to_next" and size < 2:
        raise UsageError("all_to_next needs two ranks")
    rounded = -(-chunks_per_rank // size) * size
    chunks = {
        "all_gather": chunks_per_rank * size,
        "gather": chunks_per_rank * size,
        "reduce_scatter": rounded,
        "scatter": rounded,
        "all_to_all": rounded * size,
        "all_to_next": chunks_per_rank * (size - 1),
    }.get(kind, chunks_per_rank)
    if ranks > MOST_RANKS or chunks > MOST_CHUNKS:
        raise UsageError(
            f"{kind} of {chunks} chunks on {ranks} ranks: expected at most {MOST_CHUNKS} on {MOST_RANKS}"
        )
    return Collective(kind=kind, ranks=ranks, chunks=chunks, root=root, members=chosen)


def kind_of(word: str) -> Kind:
    """Return the collective that a word names.

    all_reduce, allreduce, AllReduce, all-reduce, MPI_Allreduce and ar all name all_reduce. Raises UsageError
    with the most similar name if the word is unknown.
    """
    # Drop the prefixes of MPI_Allreduce and ncclAllReduce, and the suffix of all_reduce_perf.
    plain = re.sub(r"^(mpi|nccl|rccl)|perf$", "", re.sub(r"[_\s-]", "", word.lower()))
    for kind in KINDS:
        if kind.replace("_", "") == plain:
            return kind
    if plain in _OTHER_NAMES:
        return _OTHER_NAMES[plain]
    close = _NEAREST.get(plain, "") or meant(word, KINDS)
    raise UsageError(
        f" {quoted(word)}: unknown collective",
        hint=f"{close + ('; ' if plain in _NEAREST else ' ') if close else ''}known: {', '.join(KINDS)}",
        argument="collective",
    )


def custom(ranks: int, sources: RankSets, targets: RankSets, reduced: Sequence[bool] | Mask) -> Collective:
    """Return the collective whose chunks have these sets.

    Raises UsageError with the first problem if they are inconsistent.
    """
    both = joined([sources, targets])
    chunks = len(sources.group)
    sets = Custom(
        source=ints(both.group[:chunks]),
        target=ints(both.group[chunks:]),
        reduced=bytes_of(reduced),
        group_start=both.start,
        group_rank=both.rank,
    )
    found = Collective("custom", ranks, chunks, custom=sets)
    if problems := found.problems():
        raise UsageError(f"custom collective: {problems[0]}")
    return found


def uneven(
    kind: Kind, ranks: int, size_bytes: Sequence[int] | Indices, chunk_bytes: int, root: int = 0
) -> Collective:
    """Return the collective whose blocks have these sizes, cut into chunks of at most ``chunk_bytes``.

    ``size_bytes`` has a value for each rank, in all_to_all one for each pair, by source and then target. In
    an all_to_all a rank may also send to itself, which takes no time on the network. Raises UsageError if
    ``kind`` has no blocks, if the number of sizes is wrong, or if there is no data at all.
    """
    if kind not in UNEVEN_KINDS:
        raise UsageError(
            f": {kind} has no blocks that could differ; expected one of {', '.join(UNEVEN_KINDS)}",
            argument="counts",
        )
    sizes = longs(size_bytes)
    expected = ranks**2 if kind == "all_to_all" else ranks
    if sizes.shape != (expected,):
        each_of = "pair of ranks" if kind == "all_to_all" else "rank"
        raise UsageError(
            f": expected {expected} sizes, one for each {each_of}, found {sizes.size}", argument="counts"
        )
    if (sizes < 0).any() or not sizes.any():
        raise UsageError(": expected sizes of at least 0, and one above 0", argument="counts")
    blocks = UnevenBlocks(kind, root, ints(-(-sizes // chunk_bytes)), sizes)
    chunks = int(blocks.chunks.sum())
    if chunks > MOST_CHUNKS:
        raise UsageError(f": expected at most {MOST_CHUNKS} chunks, found {chunks}", argument="counts")
    if not 0 <= root < ranks:
        raise UsageError(f": there is no rank {root} among {ranks}", argument="root")
    return _with_blocks(custom(ranks, *blocks.sets(ranks), np.full(chunks, kind in REDUCING)), blocks)


def of_blocks(
    ranks: int,
    size_bytes: Sequence[int],
    sources: RankSets,
    targets: RankSets,
    reduced: Sequence[bool] | Mask,
    chunk_bytes: int,
) -> Collective:
    """Return the custom collective of blocks, each with its size (above 0) and its ranks.

    Blocks are cut into chunks of at most ``chunk_bytes``. Raises UsageError if sets are inconsistent or the
    chunks too many.
    """
    sizes = longs(size_bytes)
    blocks = UnevenBlocks("custom", 0, ints(-(-sizes // chunk_bytes)), sizes)
    if not 0 < int(blocks.chunks.sum()) <= MOST_CHUNKS:
        raise UsageError(f": expected 1 to {MOST_CHUNKS} chunks, found {blocks.chunks.sum()}")
    of_chunk = blocks.of_chunk()
    held, wanted = (replace(sets, group=ints(sets.group[of_chunk])) for sets in (sources, targets))
    return _with_blocks(custom(ranks, held, wanted, np.asarray(reduced)[of_chunk]), blocks)


def _with_blocks(found: Collective, blocks: UnevenBlocks) -> Collective:
    assert found.custom is not None
    return replace(found, custom=replace(found.custom, blocks=blocks))


def several(parts: Sequence[Collective]) -> Collective:
    """Combine collectives that run at once on one network; return a single one unchanged."""
    if len(parts) == 1:
        return parts[0]
    chunks = sum(part.chunks for part in parts)
    return replace(Collective("several", parts[0].ranks, chunks), parts=tuple(parts))


def _owners(kind: str, size: int) -> int:
    if kind in _PER_MEMBER:
        return size
    return {"all_to_all": size**2, "all_to_next": size - 1}.get(kind, 1)


def _changes(*sets: RankSets) -> list[int]:
    """Return each chunk whose group differs from the previous chunk's group in any of ``sets``."""
    changes = np.any([np.diff(one.group, prepend=-1) != 0 for one in sets], axis=0)
    found: list[int] = np.flatnonzero(changes).tolist()
    return found


def _pieces(collective: Collective) -> list[tuple[Fraction, tuple[int, ...], tuple[int, ...], bool]]:
    """Return the runs of chunks with equal sets: (start, sources, targets, reduced).

    The start is a fraction of all chunks, so that finer chunks give the same result.
    """
    found: list[tuple[Fraction, tuple[int, ...], tuple[int, ...], bool]] = []
    for chunk, reduced in enumerate(collective.reduced.tolist()):
        sets = tuple(collective.sources.of(chunk).tolist()), tuple(collective.targets.of(chunk).tolist())
        if not found or found[-1][1:] != (*sets, reduced):
            found.append((Fraction(chunk, collective.chunks), *sets, reduced))
    return found


def _or_several(sets: RankSets, always: bool) -> Ints:
    """Return the only rank of each set, or -1; -1 for all sets if ``always``, even on a single rank."""
    return np.full(len(sets.group), -1, dtype=np.int32) if always else sets.only()


def _named(members: tuple[int, ...]) -> str:
    return ", ".join(map(str, members[:8])) + (" …" if len(members) > 8 else "")


def _slots(mask: Mask) -> Ints:
    return np.where(mask, np.cumsum(mask) - 1, -1).astype(np.int32)
