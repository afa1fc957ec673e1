"""The backend of torch.distributed: collectives by planned schedules, or by gloo if that is faster.

In: a store that all ranks reach, tensors, and optionally a profile. Out: a process group. Read
`group_rendezvous` (how ranks find each other), `known_schedules` (cached schedules), `planned_collectives`
(collectives on arrays), `autotune` (the choice between a plan and gloo), then the modules that need torch:
`tensors`, `works` and `process_group`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
