"""D-PSGD: each rank averages its parameters with its two neighbours on a ring (Lian et al. 2017, Alg. 1)."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from exec.published.flat import put, trainable, values

__all__ = ["Gossip"]


class Gossip:
    """An exchange of parameters with both neighbours during the computation of gradients.

    Gradients are computed at the parameters that the rank had before the exchange. The weights of the mixing
    matrix are 1/3 for the rank itself and each neighbour, or 1/2 each for two ranks. A rank sends its
    parameters to each neighbour once per iteration.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        rank, size = dist.get_rank(), dist.get_world_size()
        self._parameters = trainable(model)
        self._peers = sorted({(rank - 1) % size, (rank + 1) % size} - {rank})
        self._works: list[Any] = []
        self._own: Any = None
        self._theirs: list[Any] = []

    def before_forward(self) -> None:
        """Start sending the parameters and receiving those of the neighbours."""
        self._own = values(self._parameters)
        self._theirs = [torch.empty_like(self._own) for _ in self._peers]
        calls = [dist.P2POp(dist.isend, self._own, peer) for peer in self._peers]
        calls += [
            dist.P2POp(dist.irecv, row, peer) for row, peer in zip(self._theirs, self._peers, strict=True)
        ]
        self._works = dist.batch_isend_irecv(calls) if calls else []

    def after_backward(self) -> None:
        """Average the parameters with the neighbours'; the optimizer steps from the mean."""
        for work in self._works:
            work.wait()
        # Sum in the order of ranks, so that two ranks that mix the same parameters get the same bits.
        rank = dist.get_rank()
        rows = dict(zip((*self._peers, rank), (*self._theirs, self._own), strict=True))
        total = torch.zeros_like(self._own)
        for peer in sorted(rows):
            total += rows[peer]
        put(total / len(rows), self._parameters)

    def average_all(self) -> None:
        """Set every replica to the mean of all, which is the algorithm's result; collective."""
        row = values(self._parameters)
        dist.all_reduce(row)
        put(row / dist.get_world_size(), self._parameters)
