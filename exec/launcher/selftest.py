"""The smallest tasks for a world of ranks: gathering greetings, and learning which rank is lost."""

from __future__ import annotations

import os
import queue
import signal
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from probes.live import library_name

if TYPE_CHECKING:
    from exec.launcher.protocol import Lost
    from exec.launcher.worker import Reporter
    from probes.base import Progress

__all__ = ["Greetings", "hello", "survivors"]


@dataclass(frozen=True)
class Greetings:
    """The host of each rank in rank order, and the MPI library that carried the greetings."""

    hosts: tuple[str, ...]
    library: str


def hello(comm: Any, arguments: None, progress: Progress) -> Greetings:
    """Gather the host of every rank on every rank of ``comm``, an mpi4py communicator."""
    progress.waiting(-1, "greeting")
    hosts = comm.allgather(socket.gethostname())
    return Greetings(tuple(hosts), library_name())


def survivors(comm: Any, arguments: None, progress: Reporter) -> tuple[int, ...]:
    """Kill rank 1, and return the ranks that are left."""
    if comm.Get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    lost: queue.SimpleQueue[Lost] = queue.SimpleQueue()
    progress.on_lost(lost.put)
    gone = lost.get().rank
    return tuple(rank for rank in range(comm.Get_size()) if rank != gone)
