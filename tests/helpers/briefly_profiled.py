"""Profiles of more ranks than cores: each link briefly, and memory only within the innermost caches."""

from probes.live import memory_timing
from probes.profiling import options, phases
from probes.profiling.task import profile
from probes.sampling import Dose


def profiled(comm, effort, progress):
    """Return the profile on rank 0.

    Tests of `memory_timing` measure all sizes, and tests of ``ccctl profile`` measure links again.
    """
    options._QUICK_DOSE = Dose(0.003, 0.006)
    phases._MORE_PASSES = phases._MORE_TIMES_ALONE = 0
    memory_timing.SIZES_BYTES = memory_timing.SIZES_BYTES[:2]
    return profile(comm, effort, progress)
