"""Relays: what each rank does in a collective in which only some ranks have data (AdapCC, Sec. IV-C).

In: a schedule whose chunks are trees or paths, and the ranks that are ready. Out: the behavior tuple of each
rank, and the schedules of phase 1 (the ready ranks) and phase 2 (those that came late). Together they give
what the whole schedule gives. All of it is deterministic: ranks that ask alike get the same bytes.

Read `chunk_trees`, the trees of a schedule; `behavior`, the tuples; `partial`, the schedules that they leave,
with `tree_choice`; and `pieces`, finer chunks.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
