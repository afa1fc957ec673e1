"""Fusion: when the gradients of a training step are communicated, and in which buckets (DeAR).

In: a `Model` (its tensors in forward order, seconds of each layer) and the costs of collectives on a network.
Out: for each method of overlapping them with computation a `FusionPlan`: the bucket of every tensor, what
the processor and the network do when, and the time of an iteration; and the buffer size that suits best.

Read `model`; `costs`, the paper's equations, and `network_costs`; `buckets`, which tensors are fused;
`timeline`, the simulator of two resources; `methods`, the schedules that are compared; `plan`, the artifact;
then `gaussian_process` and `tuning`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
