"""What a benchmark needs and nobody gave, kept for the next time: a profile of the ranks, schedules for it.

In: ranks, a collective, sizes. Out: what `ccctl bench` runs. It is kept by
`ccctl.artifacts.artifact_cache`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
