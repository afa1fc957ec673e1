"""DeAR: all_reduce in two halves, one during the backward pass, one during the next forward pass.

In: an optimizer of torch, a model, and the tensors to fuse (a `synth.fusion.plan.FusionPlan` or a size). Out:
a `DistributedOptimizer` that trains like DistributedDataParallel. `capture` makes the model artifact for
which `synth.fusion` plans.

Read `elementwise` (the supported optimizers), `bucket_assignment` (tensors to buckets),
`decoupled_all_reduce` (reduce_scatter on each backend), `bucket`, the paper's `backpipe` and `feedpipe`,
`clipping`, `bucket_tuning`, and `optimizer`, which combines them; then `model_capture`. This module imports
no torch.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
