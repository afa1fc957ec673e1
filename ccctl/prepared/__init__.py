"""The profile and the schedules of a benchmark without artifacts, kept for later runs.

In: ranks, a collective, sizes. Out: the schedules that `ccctl bench` runs. `ccctl.artifacts.artifact_cache`
stores them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
