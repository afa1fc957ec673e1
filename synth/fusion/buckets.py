"""Buckets: neighbouring tensors that are communicated together, in the order in which they become ready."""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import NamedTuple

import numpy as np

from synth.fusion.costs import RingCosts
from synth.fusion.model import Model

__all__ = [
    "Bucket",
    "by_count",
    "by_cycle",
    "by_layer",
    "by_size",
    "by_tensor",
    "by_torch",
    "layer_of",
    "merged",
    "size_of",
]


class Bucket(NamedTuple):
    """Tensors ``first`` to ``end`` - 1; communicated from ``release_s`` on, once all are ready."""

    first: int
    end: int
    release_s: float = 0.0


def layer_of(model: Model, bucket: Bucket) -> int:
    """Return a bucket's first layer: the layer's backward pass completes it, its forward pass needs it."""
    return int(model.tensor_layer[bucket.first])


def size_of(model: Model, bucket: Bucket) -> int:
    """Return the size of a bucket in bytes."""
    return int(model.tensor_bytes[bucket.first : bucket.end].sum())


def by_layer(model: Model) -> list[Bucket]:
    """Return a bucket for each layer that has tensors (WFBP)."""
    starts = np.flatnonzero(np.diff(model.tensor_layer, prepend=-1)).tolist()
    return [Bucket(first, end) for first, end in pairwise([*starts, len(model.tensors)])][::-1]


def by_tensor(model: Model) -> list[Bucket]:
    """Return a bucket for each tensor."""
    return [Bucket(first, first + 1) for first in reversed(range(len(model.tensors)))]


def by_count(model: Model, layers: int) -> list[Bucket]:
    """Return buckets of ``layers`` neighbouring layers each (DeAR-NL, Sec. VI-G)."""
    single = by_layer(model)
    groups = [single[at : at + layers] for at in range(0, len(single), layers)]
    return [Bucket(group[-1].first, group[0].end) for group in groups]


def by_size(model: Model, buffer_bytes: int) -> list[Bucket]:
    """Return buckets of neighbouring layers whose tensors together fit the buffer (DeAR, Sec. IV-B)."""
    return _filled(model, by_layer(model), buffer_bytes)


def by_torch(model: Model, buffer_bytes: int, first_bytes: int) -> list[Bucket]:
    """Return buckets that close once they reach the buffer's size; the first is smaller (PyTorch's DDP)."""
    found: list[Bucket] = []
    end, filled = len(model.tensors), 0
    for tensor in reversed(range(len(model.tensors))):
        filled += int(model.tensor_bytes[tensor])
        if tensor == 0 or filled >= (buffer_bytes if found else first_bytes):
            found.append(Bucket(tensor, end))
            end, filled = tensor, 0
    return found


def by_cycle(model: Model, buffer_bytes: int, cycle_s: float) -> list[Bucket]:
    """Return buckets of tensors that become ready in one cycle, filled up to a buffer (Horovod)."""
    found: list[Bucket] = []
    same: list[Bucket] = []
    now = -1
    for one in by_tensor(model):
        cycle = ceil(float(model.ready_s[layer_of(model, one)]) / cycle_s)
        if cycle != now:
            found += _filled(model, same, buffer_bytes)
            same, now = [], cycle
        same.append(one._replace(release_s=cycle * cycle_s))
    return found + _filled(model, same, buffer_bytes)


def merged(model: Model, costs: RingCosts) -> list[Bucket]:
    """Return buckets of layers; a bucket waits for a layer if that takes less than a start-up (MG-WFBP)."""
    found: list[Bucket] = []
    free_s = 0.0
    for one in by_layer(model):
        ready_s = float(model.ready_s[layer_of(model, one)])
        if found:
            last = found[-1]
            start_s = max(free_s, float(model.ready_s[layer_of(model, last)]))
            if max(0.0, ready_s - start_s) < costs.startup_s:
                found[-1] = Bucket(one.first, last.end)
                continue
            free_s = start_s + costs.all_reduce_s(size_of(model, last))
        found.append(one)
    return found


def _filled(model: Model, parts: list[Bucket], buffer_bytes: int) -> list[Bucket]:
    """Join neighbouring parts while they fit the buffer; a larger part becomes a bucket of its own."""
    found: list[Bucket] = []
    filled = 0
    for part in parts:
        size = size_of(model, part)
        if found and filled + size <= buffer_bytes:
            found[-1] = found[-1]._replace(first=part.first)
            filled += size
        else:
            found.append(part)
            filled = size
    return found
