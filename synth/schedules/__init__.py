"""Schedules: who sends which chunk to whom when, in whatever form that takes the least to say.

In: a network and a collective. Out: one of the kinds, which all answer alike: `Schedule`, a table of all
sends; `PeriodicSchedule`, those of one period; `SymmetricSchedule`, one of each orbit; `Selection`, a table
for each range of sizes.

Read `schedule`, then `periodic`, `symmetric` and `selection`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
