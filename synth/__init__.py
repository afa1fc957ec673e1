"""Synthesis: networks, collectives, schedules, programs, and the proofs that they are right.

In: a `Network` (by name, measured by a profile, or nominal from a topology) and a collective. Out: a proven
`Schedule` with its lower bounds, a `Selection` of schedules by size, or a proven `Program` for executors.

Read the artifacts first: `network`, `collective`, `schedules` and `program`. Then read `stages`, the four
functions over them, `portfolio` (it tries `methods`), `check` (it proves results independently),
`bounds`, `simulation` and `compiler`. The methods use `tree_packing`, `routing`, `scheduling`, `adapcc`,
`tacos_ilp`, `milp` and `kernels`. `lang` is the chunk language of GC3, `msccl` its exchange format.
`published` has methods of other systems to compare with.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
