"""Schedules: which rank sends which chunk over which link, and when.

In: a network and a collective. Out: one of four kinds with the same interface: `Schedule`, a table of all
sends; `PeriodicSchedule`, the sends of one period; `SymmetricSchedule`, one send of each orbit under the
network's translations; `Selection`, a table for each range of sizes.

Read `schedule`, then `periodic`, `symmetric` and `selection`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
