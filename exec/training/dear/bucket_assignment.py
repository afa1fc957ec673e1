"""Assignment of parameters to buckets: by a plan, or neighbouring layers up to a number of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from probes.base import UsageError, floats, ints, longs, quoted
from synth.fusion import Bucket, FusionPlan, Model, by_size, by_tensor

__all__ = ["DEFAULT_BYTES", "Plan", "buckets_of"]

# The default bucket size of DeAR (Sec. IV-B) and of DDP.
DEFAULT_BYTES = 25 << 20
Plan = FusionPlan | int | None
# The most tensors that a message names.
_MOST_TOLD = 5


def buckets_of(named: Sequence[tuple[str, Any]], plan: Plan) -> list[list[Any]]:
    """Return the parameters of ``named`` (in forward order) by bucket; bucket 0 is ready first.

    ``plan`` is a fusion plan or a number of bytes, up to which neighbouring layers share a bucket (0: each
    parameter has its own bucket; None: 25 MiB). Tensors of different types or devices are never fused. Raises
    UsageError if a plan is for another model.
    """
    if isinstance(plan, FusionPlan):
        groups = _planned(named, plan)
    else:
        size = DEFAULT_BYTES if plan is None else plan
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise UsageError(f"plan: expected a fusion plan or a number of bytes, found {quoted(str(size))}")
        groups = [
            [parameter for _, parameter in named[run.first : run.end]] for run in _by_layer_size(named, size)
        ]
    return [alike for group in groups for alike in _by_type(group)]


def _by_layer_size(named: Sequence[tuple[str, Any]], size_bytes: int) -> list[Bucket]:
    if not named:
        return []
    layers = [name.rpartition(".")[0] for name, _ in named]
    number, numbers = 0, []
    for at, layer in enumerate(layers):
        number += at > 0 and layer != layers[at - 1]
        numbers.append(number)
    none = floats([0.0] * (number + 1))
    model = Model(
        name="",
        layers=tuple(str(each) for each in range(number + 1)),
        forward_s=none,
        backward_s=none,
        tensors=tuple(name for name, _ in named),
        tensor_layer=ints(numbers),
        tensor_bytes=longs([parameter.numel() * parameter.element_size() for _, parameter in named]),
    )
    return by_size(model, size_bytes) if size_bytes else by_tensor(model)


def _planned(named: Sequence[tuple[str, Any]], plan: FusionPlan) -> list[list[Any]]:
    parameters = dict(named)
    missing = [name for name in parameters if name not in set(plan.tensors)]
    unknown = [name for name in plan.tensors if name not in parameters]
    for names, problem in ((missing, "the plan lacks"), (unknown, "the optimizer lacks")):
        if names:
            listed = ", ".join(quoted(name) for name in names[:_MOST_TOLD])
            raise UsageError(
                f"plan: {problem} {listed}{' and others' if len(names) > _MOST_TOLD else ''}",
                hint="Make a plan of this model: ccctl.torch.capture, then ccctl training fusion.",
            )
    groups: list[list[Any]] = [[] for _ in range(plan.buckets)]
    rows = zip(plan.tensors, plan.tensor_bytes.tolist(), plan.bucket.tolist(), strict=True)
    for name, size, bucket in rows:
        found = parameters[name].numel() * parameters[name].element_size()
        if found != size:
            raise UsageError(f"plan: expected {size} bytes of {quoted(name)}, found {found}")
        groups[bucket].append(parameters[name])
    return groups


def _by_type(group: list[Any]) -> list[list[Any]]:
    found: dict[tuple[Any, Any], list[Any]] = {}
    for parameter in group:
        found.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    return list(found.values())
