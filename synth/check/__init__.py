"""The checker: whether a schedule or a program does what its collective asks, for every chunk.

In: a schedule or program from any source. Out: a verdict with the place of each flaw. The checker trusts no
maker and shares no code with one: it computes times, waits and the contents of slots anew. For schedules of
all kinds, read `schedule`, then `times`, `linear_pass` and `contributions`; for a range of sizes, read
`size_range`. For programs, read `program`, then `slots`, `waits`, `well_formed`, `symbolic_values` and
`races`. For groups, read `groups`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
