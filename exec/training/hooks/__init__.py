"""Training that continues with late and lost ranks (AdapCC, Sec. IV-C): DDP hook, sampler, all_to_all.

In: a model in DistributedDataParallel and the store of its ranks, or an existing session. Out: gradients
reduced by an adaptive session, and batches divided among the remaining ranks. Read `elastic_sampler` (needs
no torch), then `sessions`, `adaptive_hook` and `all_to_all`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
