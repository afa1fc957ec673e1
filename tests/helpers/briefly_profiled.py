"""Profiles of ranks that share few cores: links as ever, memory only within the innermost caches."""

from probes.live import memory_timing
from probes.profiling.task import profile


def profiled(comm, effort, progress):
    """Return the profile on rank 0; tests of `memory_timing` measure all sizes."""
    memory_timing.SIZES_BYTES = memory_timing.SIZES_BYTES[:2]
    return profile(comm, effort, progress)
