"""CPU affinity of a process to one NUMA node; memory that it then touches first is allocated on that node."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from probes.base import cpu_numbers

__all__ = ["bound_to"]


@contextmanager
def bound_to(cpus: str) -> Iterator[None]:
    """Run the block on these CPUs (the kernel's list form) as far as this process may use them; "" is any."""
    before = os.sched_getaffinity(0)
    wanted = set(cpu_numbers(cpus)) & before
    if wanted:
        os.sched_setaffinity(0, wanted)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
