"""Links between ranks, timed by messages of the process group that trains."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from exec.training.ds_sync.communication import gathered
from exec.training.ds_sync.slow_links import Cost, Pair

__all__ = ["timed_on"]

_SIZE_BYTES = 512 << 10
_TRIES = 5
# Of a time that a clock cannot tell from none.
_LEAST_S = 1e-9


def timed_on(device: Any) -> Any:
    """A function that times pairs of ranks with messages on ``device``, as `links.Time` has it."""
    empty = torch.zeros(1, dtype=torch.uint8, device=device)
    full = torch.zeros(_SIZE_BYTES, dtype=torch.uint8, device=device)

    def time_pairs(pairs: Sequence[Pair]) -> Mapping[Pair, Cost]:
        rank = dist.get_rank()
        cost: Cost | None = None
        own = next((pair for pair in pairs if rank in pair), None)
        if own is not None:
            # The first brings both together, and connects them.
            _there_and_back(empty, own)
            alpha_s = min(_there_and_back(empty, own) for _ in range(_TRIES)) / 2
            whole_s = min(_there_and_back(full, own) for _ in range(_TRIES)) / 2
            cost = (alpha_s, max(whole_s - alpha_s, _LEAST_S) / _SIZE_BYTES)
        costs = gathered(cost)
        found = {}
        for low, high in pairs:
            # Each of both has timed the same messages.
            alphas_s, betas = zip(*(known for end in (low, high) if (known := costs[end])), strict=True)
            found[low, high] = (min(alphas_s), min(betas))
        return found

    return time_pairs


def _there_and_back(message: Any, pair: Pair) -> float:
    """Seconds of a message to the other rank and one back, one after the other."""
    low, high = pair
    started_s = time.perf_counter()
    for src, dst in ((low, high), (high, low)):
        if dist.get_rank() == src:
            dist.send(message, dst)
        else:
            dist.recv(message, src)
    if message.is_cuda:
        torch.cuda.synchronize(message.device)
    return time.perf_counter() - started_s
