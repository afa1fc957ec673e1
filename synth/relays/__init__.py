"""Relays: the role of each rank in a collective while only some ranks are ready (AdapCC, Sec. IV-C).

In: a schedule whose chunks travel along trees or paths, and the ranks that are ready. Out: the behavior tuple
of each rank, and the schedules of phase 1 (data of the ready ranks) and phase 2 (data of the late ranks).
Together the phases give the results of the whole schedule. The same input gives the same bytes on all ranks.

Read `chunk_trees`, the trees of a schedule; `behavior`, the tuples; `partial`, the schedules of the phases,
with `tree_choice`; and `pieces`, smaller chunks.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
