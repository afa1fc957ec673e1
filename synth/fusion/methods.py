"""Simulated schedules of an iteration: WFBP, DDP, MG-WFBP, Horovod, ByteScheduler and DeAR.

An iteration lasts from the start of one backward pass to the start of the next. At that moment all
communication of the iteration is complete, whatever the method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probes.base import UsageError, ints, meant, quoted
from synth.fusion.buckets import (
    Bucket,
    by_count,
    by_cycle,
    by_layer,
    by_size,
    by_tensor,
    by_torch,
    layer_of,
    merged,
    size_of,
)
from synth.fusion.costs import RingCosts
from synth.fusion.model import Model
from synth.fusion.plan import FusionPlan
from synth.fusion.timeline import (
    ALL_GATHER,
    ALL_REDUCE,
    BACKWARD,
    FORWARD,
    REDUCE_SCATTER,
    TimelineTask,
    simulate,
)

__all__ = ["DEFAULT_BUFFER_BYTES", "METHODS", "Overheads", "fusion_plan"]

_MIB = 1 << 20
# Default buffer size of each method; 0: the method has no buffer. For ddp and horovod it is the default of
# PyTorch and Horovod, for bytescheduler the size of a partition.
DEFAULT_BUFFER_BYTES = {
    "wfbp": 0,
    "ddp": 25 * _MIB,
    "mg-wfbp": 0,
    "horovod": 64 * _MIB,
    "bytescheduler": 4 * _MIB,
    "dear": 25 * _MIB,
    "dear-nl": 0,
    "dear-backpipe": 25 * _MIB,
    "dear-feedpipe": 25 * _MIB,
}
METHODS = tuple(DEFAULT_BUFFER_BYTES)
# DeAR-NL merges four layers (DeAR, Sec. VI-G).
_NEARBY_LAYERS = 4
# ByteScheduler's partitions are enlarged if a model would have more than this.
_MOST_PARTS = 100_000


@dataclass(frozen=True)
class Overheads:
    """Costs of methods besides collectives.

    Horovod looks for ready tensors every ``cycle_s``. ByteScheduler's ranks agree on every part before it is
    sent, which takes ``negotiation_s`` (None: computed from the network's latency). DDP's first bucket has
    ``first_bytes``.
    """

    cycle_s: float = 5e-3
    negotiation_s: float | None = None
    first_bytes: int = _MIB


def fusion_plan(
    model: Model,
    costs: RingCosts,
    method: str = "dear",
    buffer_bytes: int = 0,
    overheads: Overheads | None = None,
) -> FusionPlan:
    """Simulate an iteration of ``model`` by ``method``; ``buffer_bytes`` 0: the method's default.

    ``wfbp`` all_reduces layer by layer during the backward pass; ``ddp``, ``mg-wfbp`` and ``horovod`` do so
    bucket by bucket. ``bytescheduler`` cuts tensors into parts, and sends first what the next forward pass
    needs first. ``dear`` reduce_scatters during the backward pass and all_gathers during the forward pass;
    ``dear-nl`` does so four layers at a time, ``dear-backpipe`` overlaps only the reduce_scatters, and
    ``dear-feedpipe`` only the all_gathers. Raises UsageError for another method.
    """
    if method not in METHODS:
        raise UsageError(
            f": expected one of {', '.join(METHODS)}, found {quoted(method)}",
            hint=meant(method, METHODS),
            argument="method",
        )
    extra = overheads or Overheads()
    buffer = buffer_bytes or DEFAULT_BUFFER_BYTES[method]
    buckets = _buckets(model, costs, method, buffer, extra)
    tasks = _backward(model)
    if method == "bytescheduler":
        tasks += _by_priority(model, costs, buckets, buffer, extra, len(tasks))
    elif method.startswith("dear"):
        tasks += _decoupled(model, costs, buckets, method, len(tasks))
    else:
        tasks += _all_reduced(model, costs, buckets, len(tasks))
    timeline = simulate(tasks)
    number = np.repeat(np.arange(len(buckets)), [one.end - one.first for one in buckets])
    return FusionPlan(
        model=model.name,
        method=method,
        ranks=costs.ranks,
        alpha_s=costs.alpha_s,
        beta_s_per_byte=costs.beta_s_per_byte,
        buffer_bytes=buffer if DEFAULT_BUFFER_BYTES[method] else 0,
        iteration_s=timeline.time_s,
        tensors=model.tensors,
        tensor_bytes=model.tensor_bytes,
        bucket=ints(number[::-1]),
        timeline=timeline,
    )


def _buckets(
    model: Model, costs: RingCosts, method: str, buffer_bytes: int, overheads: Overheads
) -> list[Bucket]:
    if method == "ddp":
        return by_torch(model, buffer_bytes, min(buffer_bytes, overheads.first_bytes))
    if method == "horovod":
        return by_cycle(model, buffer_bytes, overheads.cycle_s)
    if method == "mg-wfbp":
        return merged(model, costs)
    if method == "bytescheduler":
        return by_tensor(model)
    if method == "dear-nl":
        return by_count(model, _NEARBY_LAYERS)
    return by_layer(model) if method == "wfbp" else by_size(model, buffer_bytes)


def _backward(model: Model) -> list[TimelineTask]:
    """Return the tasks of the backward pass; task n belongs to the n-th layer from the end."""
    layers = range(len(model.layers))
    return [
        TimelineTask(BACKWARD, layer, float(model.backward_s[layer]), (at - 1,) if at else ())
        for at, layer in enumerate(reversed(layers))
    ]


def _done(model: Model, bucket: Bucket) -> int:
    """Return the task of the backward pass after which all gradients of a bucket are complete."""
    return len(model.layers) - 1 - layer_of(model, bucket)


def _forward(
    model: Model, first: int, waits: dict[int, list[int]], barrier: Sequence[int]
) -> list[TimelineTask]:
    """Return the forward pass, numbered from ``first``; ``waits`` maps a layer to tasks it waits for."""
    before = [len(model.layers) - 1, *barrier]
    tasks = []
    for layer, seconds in enumerate(model.forward_s.tolist()):
        tasks.append(TimelineTask(FORWARD, layer, seconds, (*before, *waits.get(layer, ()))))
        before = [first + layer]
    return tasks


def _all_reduced(model: Model, costs: RingCosts, buckets: list[Bucket], first: int) -> list[TimelineTask]:
    """Return an all_reduce per bucket, in backward order, and a forward pass that waits for all of them."""
    tasks = [
        TimelineTask(
            ALL_REDUCE, at, costs.all_reduce_s(size_of(model, one)), (_done(model, one),), at, one.release_s
        )
        for at, one in enumerate(buckets)
    ]
    return tasks + _forward(model, first + len(tasks), {}, range(first, first + len(tasks)))


def _decoupled(
    model: Model, costs: RingCosts, buckets: list[Bucket], method: str, first: int
) -> list[TimelineTask]:
    """Return the tasks of BackPipe and FeedPipe (DeAR, Sec. III-B), overlapped as the method says."""
    count, last_layer = len(buckets), len(model.layers) - 1
    tasks = []
    for at, one in enumerate(buckets):
        after = last_layer if method == "dear-feedpipe" else _done(model, one)
        tasks.append(
            TimelineTask(REDUCE_SCATTER, at, costs.reduce_scatter_s(size_of(model, one)), (after,), at)
        )
    scattered = tuple(range(first, first + count))
    # Hooks of the forward pass start the all_gathers, so the backward pass has ended before.
    begin = (*scattered[-1:], last_layer)
    waits: dict[int, list[int]] = {}
    for place, (at, one) in enumerate(reversed(list(enumerate(buckets)))):
        gather = first + count + place
        tasks.append(
            TimelineTask(ALL_GATHER, at, costs.all_gather_s(size_of(model, one)), begin, count + place)
        )
        waits.setdefault(0 if method == "dear-backpipe" else layer_of(model, one), []).append(gather)
    return tasks + _forward(model, first + len(tasks), waits, scattered[-1:])


def _by_priority(
    model: Model,
    costs: RingCosts,
    buckets: list[Bucket],
    part_bytes: int,
    overheads: Overheads,
    first: int,
) -> list[TimelineTask]:
    """Return all_reduces of parts of tensors, lowest layer first, each preceded by a negotiation."""
    part_bytes = max(part_bytes, model.total_bytes // _MOST_PARTS)
    negotiation_s = costs.negotiation_s if overheads.negotiation_s is None else overheads.negotiation_s
    tasks: list[TimelineTask] = []
    waits: dict[int, list[int]] = {}
    for at, one in enumerate(buckets):
        size, layer = size_of(model, one), layer_of(model, one)
        for begin in range(0, size, part_bytes):
            waits.setdefault(layer, []).append(first + len(tasks))
            seconds = negotiation_s + costs.all_reduce_s(min(part_bytes, size - begin))
            tasks.append(TimelineTask(ALL_REDUCE, at, seconds, (_done(model, one),), one.first))
    return tasks + _forward(model, first + len(tasks), waits, ())
