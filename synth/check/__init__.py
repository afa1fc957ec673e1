"""The checker: whether a schedule or a program does what its collective asks, for every chunk.

In: what any maker made. Out: a verdict with the place of each flaw. Nothing of the makers is believed, and no
code of theirs is used: what takes time, what waits and which slot holds what is computed here once more.
Schedules: `schedule`, then `times`, `linear_pass` and `contributions`; for any number of periods `periodic`,
for translates `symmetric`, for a range of sizes `size_range`. Programs: `program`, then `slots`, `waits`,
`well_formed`, `symbolic_values`, `races`. Groups: `groups`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
