"""Gossip on a dynamic exponential graph: each rank averages with the rank 1, 2, 4 … before it, in turn.

Gossip is a baseline of DS-Sync (Sec. V-A 1), on the graph of Assran et al. 2019 (SGP) with one peer an
iteration. The planner predicts its time (`synth.groups`, ``gossip_s``).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from exec.published.flat import put, trainable, values

__all__ = ["Gossip"]


class Gossip:
    """An exchange of parameters with one peer each way during the computation of gradients.

    In iteration k each rank sends its parameters to the rank 2^(k mod m) after it, where m is the number of
    powers of 2 below the number of ranks. Its new parameters are the mean of its own and the received ones.
    Gradients are computed at the parameters that the rank had before the exchange.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        size = dist.get_world_size()
        self._parameters = trainable(model)
        self._steps = [1 << power for power in range((size - 1).bit_length())]
        self._iteration = 0
        self._works: list[Any] = []
        self._own: Any = None
        self._theirs: Any = None

    def before_forward(self) -> None:
        """Start sending the parameters and receiving a peer's."""
        self._own = self._theirs = values(self._parameters)
        if not self._steps:
            return
        rank, size = dist.get_rank(), dist.get_world_size()
        step = self._steps[self._iteration % len(self._steps)]
        self._iteration += 1
        self._theirs = torch.empty_like(self._own)
        calls = [
            dist.P2POp(dist.isend, self._own, (rank + step) % size),
            dist.P2POp(dist.irecv, self._theirs, (rank - step) % size),
        ]
        self._works = dist.batch_isend_irecv(calls)

    def after_backward(self) -> None:
        """Average the parameters with the peer's; the optimizer steps from the mean."""
        for work in self._works:
            work.wait()
        put((self._own + self._theirs) / 2, self._parameters)

    def average_all(self) -> None:
        """Set every replica to the mean of all, which is the algorithm's result; collective."""
        row = values(self._parameters)
        dist.all_reduce(row)
        put(row / dist.get_world_size(), self._parameters)
