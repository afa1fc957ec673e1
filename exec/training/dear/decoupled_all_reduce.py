"""An all_reduce in two halves, a reduce_scatter and an all_gather, on any backend (DeAR, Sec. III).

NCCL has a reduce_scatter of its own, and so has ccctl for sizes that it does not pass to gloo. Gloo's
reduce_scatter moves as much data as an all_reduce (measured by the bytes on its sockets). On gloo and other
backends, blocks are therefore exchanged by all_to_all and summed here, in pieces of at most 4 MiB, because
larger pieces take longer per byte.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from exec.training.backend import LEAST_BYTES

__all__ = ["Halves", "ShardedRow"]

# The least bytes for which a backend's own reduce_scatter is used.
_NATIVE_FROM = {"ccctl": LEAST_BYTES, "nccl": 0}
_PIECE_BYTES = 4 << 20


class Halves:
    """The reduce_scatter and the all_gather of ``group`` for tensors on one kind of device."""

    def __init__(self, group: Any, device: Any) -> None:
        self.group = group if group is not None else dist.group.WORLD
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        self._native_from = _NATIVE_FROM.get(_backend(self.group, device.type), math.inf)

    def lengths(self, count: int, itemsize: int) -> list[int]:
        """Return the lengths of a row's pieces: multiples of the group's size, in sum at least ``count``."""
        whole = -(-count // self.size) * self.size
        if self._is_native(whole * itemsize):
            return [whole]
        most = max(1, _PIECE_BYTES // itemsize // self.size) * self.size
        return [most] * (whole // most) + ([whole % most] if whole % most else [])

    def exchange(self, row: Any) -> ShardedRow:
        """Return the communication of ``row``, whose length is the sum of `lengths`."""
        native = self._is_native(row.numel() * row.element_size())
        return (_Native if native else _Summed)(self, row)

    def _is_native(self, row_bytes: int) -> bool:
        """Return whether the backend's reduce_scatter takes a row of this size."""
        return row_bytes >= self._native_from


class ShardedRow(ABC):
    """A flat tensor that is reduced and gathered; ``shards`` hold this rank's block of each piece."""

    def __init__(self, halves: Halves, row: Any) -> None:
        self._group, self._size, self._rank = halves.group, halves.size, halves.rank
        self.row = row
        self.pieces = row.split(halves.lengths(row.numel(), row.element_size()))
        self.shards = [torch.empty_like(piece[: len(piece) // self._size]) for piece in self.pieces]
        self._works: list[Any] = []

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """The place of each shard in the row: (first element, end)."""
        found, at = [], 0
        for piece, shard in zip(self.pieces, self.shards, strict=True):
            first = at + self._rank * len(shard)
            found.append((first, first + len(shard)))
            at += len(piece)
        return found

    @abstractmethod
    def reduce_scatter(self) -> None:
        """Start the reduce_scatter: sum the row over all ranks into their shards."""

    def poll(self) -> bool:
        """Sum arrived data without waiting; return whether nothing is left to sum."""
        return True

    def reduced(self) -> None:
        """Wait until the shards hold sums."""
        self._wait()

    def all_gather(self) -> None:
        """Start the all_gather of all ranks' shards into the row."""
        gather = _named("all_gather_single", "all_gather_into_tensor")
        self._works = [
            gather(piece, shard, group=self._group, async_op=True)
            for piece, shard in zip(self.pieces, self.shards, strict=True)
        ]

    def gathered(self) -> None:
        """Wait until the row holds the shards of all ranks."""
        self._wait()

    def _wait(self) -> None:
        works, self._works = self._works, []
        for work in works:
            work.wait()


class _Native(ShardedRow):
    def reduce_scatter(self) -> None:
        scatter = _named("reduce_scatter_single", "reduce_scatter_tensor")
        self._works = [
            scatter(shard, piece, group=self._group, async_op=True)
            for piece, shard in zip(self.pieces, self.shards, strict=True)
        ]


class _Summed(ShardedRow):
    """A row whose blocks are exchanged by all_to_all, then summed in the order of ranks."""

    def __init__(self, halves: Halves, row: Any) -> None:
        super().__init__(halves, row)
        self._received = [torch.empty_like(piece) for piece in self.pieces]
        self._summed = 0

    def reduce_scatter(self) -> None:
        self._summed = 0
        self._works = [
            dist.all_to_all_single(into, piece, group=self._group, async_op=True)
            for into, piece in zip(self._received, self.pieces, strict=True)
        ]

    def poll(self) -> bool:
        while self._summed < len(self._works) and self._works[self._summed].is_completed():
            self._sum_next()
        return self._summed == len(self._works)

    def reduced(self) -> None:
        while self._summed < len(self._works):
            self._sum_next()
        self._works = []

    def _sum_next(self) -> None:
        at = self._summed
        self._works[at].wait()
        blocks, shard = self._received[at].chunk(self._size), self.shards[at]
        _sum(blocks, shard)
        self._summed += 1


def _sum(blocks: Sequence[Any], into: Any) -> None:
    if len(blocks) == 1:
        into.copy_(blocks[0])
        return
    torch.add(blocks[0], blocks[1], out=into)
    for block in blocks[2:]:
        into.add_(block)


def _named(new: str, old: str) -> Any:
    """Return a collective of torch.distributed by its name since PyTorch 2.12, or by its earlier name."""
    return getattr(dist, new, None) or getattr(dist, old)


def _backend(group: Any, device: str) -> str:
    """Return the name of the backend of ``group`` for a kind of device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = [part.partition(":") for part in dist.get_backend_config(group).split(",")]
    return next((name or kind for kind, _, name in parts if not name or kind == device), "")
