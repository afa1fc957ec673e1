"""The backend of torch.distributed: collectives by planned schedules, or by gloo where that is faster.

In: a store that all ranks reach, tensors, and a profile if there is one. Out: a process group. Read
`rendezvous` (how ranks find each other), `known_schedules` (those that need no search), `planned_collectives`
(collectives on arrays), `autotune` (who is faster), then what needs torch: `tensors`, `works` and
`process_group`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
