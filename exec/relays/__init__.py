"""Relays: who waits for whom, and what a collective does without those that are late (AdapCC, Sec. IV-C).

In: when workers became ready, and what their collective costs. Out: decisions to wait or to go, and results
that are put together from the phases.

Read `ski_rental`, the rule; `buy_cost` with `late_bases`, what going costs; `phase_buffers`, results from
phases; `late_chunks`, what joins one; `arrivals` and `policies`, the rule replayed beside others.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
