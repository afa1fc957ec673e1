"""An all-gather of bytes by point-to-point messages, independent of a group's collectives."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch

__all__ = ["MessageExchange"]

# The first tag of these messages, above those that scripts choose.
_FIRST_TAG = 0x7CCC0000
# Longest wait for the slowest rank, in effect unlimited: gloo closes a connection whose wait times out.
_PATIENCE = timedelta(days=7)


class MessageExchange:
    """An all-gather of bytes over ``gloo``, a process group; every rank must make the same calls."""

    def __init__(self, gloo: Any, rank: int, size: int) -> None:
        self._gloo, self._rank, self._size = gloo, rank, size
        self._tag = _FIRST_TAG

    def __call__(self, message: bytes) -> list[bytes]:
        """Return the bytes of every rank, in the order of ranks."""
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self._size)]
        self._swap(torch.tensor([len(message)]), lengths)
        heard = [torch.zeros(int(length), dtype=torch.uint8) for length in lengths]
        self._swap(torch.frombuffer(bytearray(message or b"\0"), dtype=torch.uint8)[: len(message)], heard)
        return [row.numpy().tobytes() for row in heard]

    def _swap(self, row: Any, heard: list[Any]) -> None:
        heard[self._rank] = row
        others = [rank for rank in range(self._size) if rank != self._rank]
        works = [self._gloo.recv([heard[rank]], rank, self._tag) for rank in others]
        works += [self._gloo.send([row], rank, self._tag) for rank in others]
        for work in works:
            work.wait(_PATIENCE)
        self._tag += 1
