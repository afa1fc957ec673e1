"""Training that goes on with late and lost ranks (AdapCC, Sec. IV-C): a hook for DDP, a sampler, all_to_all.

In: a model that DistributedDataParallel wraps and the store that its ranks met through, or a session that is
there already. Out: gradients that an adaptive session reduced, and batches that are divided among the ranks
that are left. Read `elastic_sampler` (needs no torch), then `sessions`, `adaptive_hook` and `all_to_all`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
