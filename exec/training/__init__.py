"""Code for ranks that train with PyTorch.

- `backend`: the process group of `init_process_group("ccctl")`.
- `dear`: an optimizer that overlaps communication with both passes.
- `ds_sync`: a wrapper that averages parameters within changing groups.
- `hooks`: DDP that goes on with late and lost ranks.
- `redistribution`: DTensors that move to another layout or other ranks, all by one plan.
- `workloads`: small training runs, which can also use the methods of `exec.published`.

This module imports no torch.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
