"""Profiling: alpha and beta of every link, round-robin over MPI, as one task of all ranks.

In: `options`. Out: the profile artifact (`probes.link_costs`), its faults, its drift from a baseline, and
the verdict on one run in a history of runs. Read `options`, `task`, `phases`, `instances`, `declared`,
`findings`, `assemble`, `drift`, `history`, `watching`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
