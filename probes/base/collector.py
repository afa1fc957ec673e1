"""Work that makes many objects and no cycles, without the cyclic garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["uncollected"]


@contextmanager
def uncollected() -> Iterator[None]:
    """Switch the cyclic garbage collector off for a while, nested calls included.

    It looks at each new object several times, which took a third of the time to make and prove an execution
    plan of 160,000 operations.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
