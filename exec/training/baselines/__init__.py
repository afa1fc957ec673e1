"""Ways to synchronize replicas that others are compared with, each as its paper or library has it.

In: a model, its optimizer, torch.distributed. Out: objects that a training loop calls before the forward
pass, after the backward pass and at the end. Read `flat` (parameters as one tensor), then `horovod`,
`hierarchical`, `gossip` and `asp`.
"""
