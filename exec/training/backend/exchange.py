"""An all-gather of bytes over messages between two ranks, which need no order among a group's collectives."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch

__all__ = ["MessageExchange"]

# Above the tags that scripts choose.
_FIRST_TAG = 0x7CCC0000
# The ranks wait for the last of them to come as far, however long that takes it; gloo, which ends a wait by
# closing the connection, must not.
_PATIENCE = timedelta(days=7)


class MessageExchange:
    """The ranks of ``gloo``, a process group, say something to all; every rank calls it as often."""

    def __init__(self, gloo: Any, rank: int, size: int) -> None:
        self._gloo, self._rank, self._size = gloo, rank, size
        self._tag = _FIRST_TAG

    def __call__(self, said: bytes) -> list[bytes]:
        """What every rank said, in the order of ranks."""
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self._size)]
        self._swap(torch.tensor([len(said)]), lengths)
        heard = [torch.zeros(int(length), dtype=torch.uint8) for length in lengths]
        self._swap(torch.frombuffer(bytearray(said or b"\0"), dtype=torch.uint8)[: len(said)], heard)
        return [one.numpy().tobytes() for one in heard]

    def _swap(self, own: Any, heard: list[Any]) -> None:
        heard[self._rank] = own
        others = [rank for rank in range(self._size) if rank != self._rank]
        works = [self._gloo.recv([heard[rank]], rank, self._tag) for rank in others]
        works += [self._gloo.send([own], rank, self._tag) for rank in others]
        for work in works:
            work.wait(_PATIENCE)
        self._tag += 1
