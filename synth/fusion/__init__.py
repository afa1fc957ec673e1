"""Fusion: buckets for the gradients of a training step, and the time to communicate each (DeAR).

In: a `Model` (its tensors in forward order, seconds of each layer) and the costs of collectives on a network.
Out: a `FusionPlan` for each method of overlap (the bucket of every tensor, the timeline of processor and
network, the time of an iteration), and the best buffer size.

Read `model`; `costs`, the paper's equations, and `network_costs`; `buckets`, which tensors are fused;
`timeline`, the simulator of two resources; `methods`, the schedules that are compared; `plan`, the artifact;
then `gaussian_process` and `tuning`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
