"""Stragglers: which ranks wait for a late one, and how a collective goes on without it (AdapCC, Sec. IV-C).

In: the times at which workers became ready, and the cost of their collective. Out: decisions to wait for late
ranks or to go on without them, and results assembled from the two phases.

Read `ski_rental` (the rule), `buy_cost` and `late_base` (the cost of going on without late ranks),
`phase_buffers` (results merged from phases), `late_chunks` (late data that joins a running phase), `arrivals`
and `policies` (the rule and others replayed over recorded times).
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
