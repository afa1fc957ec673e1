"""DeAR: each all_reduce in two halves, one behind the backward pass and one behind the next forward pass.

In: an optimizer of torch, a model, and which tensors are fused (a `synth.fusion.plan.FusionPlan` or a
size). Out: a `DistributedOptimizer` that trains as DistributedDataParallel does; and, by `capture`, the
model artifact that `synth.fusion` plans for.

Read `elementwise` (which optimizers), `bucket_assignment` (tensors to buckets), `decoupled_all_reduce` (how a
reduce_scatter is done on which backend), `bucket`, `backpipe` and `feedpipe`, the paper's two, `clipping`,
`bucket_tuning`, and `optimizer`, which joins them; then `model_capture`. Importing this page does not import
torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exec.training.dear.model_capture import capture
    from exec.training.dear.optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer", "capture"]

_MODULES = {"DistributedOptimizer": "optimizer", "capture": "model_capture"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
