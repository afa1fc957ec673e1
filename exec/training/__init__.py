"""What runs on ranks that train with PyTorch.

`backend` is the process group that `init_process_group("ccctl")` makes, `dear` an optimizer that overlaps
communication with both passes, `ds_sync` the averaging of parameters within groups that change, `hooks` lets
DDP go on with late and lost ranks. `workloads` are small training runs, beside ways of `exec.published`.
This page imports no torch.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
