"""One reading of each machine of a cluster: the first rank of a machine reads it, rank 0 collects all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from probes.base import Safekeeping

__all__ = ["read_each_machine"]

Reading = TypeVar("Reading")


def read_each_machine(
    comm: Any, machine: tuple[str, str], read: Callable[[], Reading], progress: Safekeeping, what: str
) -> list[Reading] | None:
    """Return the readings of all machines on rank 0, None on the other ranks; collective.

    ``machine`` identifies the machine of this rank, ``what`` names the readings while rank 0 waits for them.
    Each reading is also handed over as soon as it is ready, so that a lost host does not lose the others'.
    """
    progress.waiting(-1, "finding out which ranks share a host")
    machines = comm.allgather(machine)
    found = None
    if machines.index(machine) == comm.Get_rank():
        found = read()
        progress.partial(found)
    progress.waiting(-1, what)
    gathered: list[Reading | None] | None = comm.gather(found)
    return None if gathered is None else [reading for reading in gathered if reading is not None]
