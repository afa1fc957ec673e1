"""The smallest thing a world of ranks can do: every rank greets, every greeting arrives."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

from probes.progress import Progress

__all__ = ["Greetings", "hello"]


@dataclass(frozen=True)
class Greetings:
    """The host of each rank in rank order, and the MPI library that carried the greetings."""

    hosts: tuple[str, ...]
    library: str


def hello(comm: Any, arguments: None, progress: Progress) -> Greetings:
    """Gather the host of every rank on every rank of ``comm``, an mpi4py communicator."""
    from mpi4py import MPI

    progress.waiting(-1, "greeting")
    hosts = comm.allgather(socket.gethostname())
    library = MPI.Get_library_version().strip("\0 \n").splitlines()[0].split(",")[0]
    return Greetings(tuple(hosts), library)
