"""The norm of all gradients, computed from each rank's part after reduce_scatter."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf
from typing import Any

import torch
import torch.distributed as dist

from exec.training.dear.bucket import GradientBucket

__all__ = ["clip_shards"]


def clip_shards(
    buckets: Sequence[GradientBucket],
    group: Any,
    max_norm: float,
    norm_type: float,
    error_if_nonfinite: bool,
) -> Any:
    """Scale the reduced gradients so that their norm is at most ``max_norm``; return the norm before.

    The norm is that of `torch.nn.utils.clip_grad_norm_`, but summed in double precision, by one all_reduce of
    one number.
    """
    shards = [shard for bucket in buckets for shard in bucket.shards if shard.numel()]
    device = buckets[0].exchange.row.device
    norms = [torch.linalg.vector_norm(each, norm_type, dtype=torch.float64).to(device) for each in shards]
    parts = torch.stack(norms) if norms else torch.zeros(1, dtype=torch.float64, device=device)
    if isinf(norm_type):
        total = parts.max()
        dist.all_reduce(total, dist.ReduceOp.MAX, group=group)
    else:
        total = parts.pow(norm_type).sum()
        dist.all_reduce(total, group=group)
        total = total.pow(1.0 / norm_type)
    if error_if_nonfinite and not total.isfinite():
        raise RuntimeError(f"the norm of the gradients, of order {norm_type:g}, is not finite")
    total = total.to(torch.float32)
    factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for each in shards:
        each.mul_(factor.to(each.device))
    return total
