"""The tasks of ranks that train; this module can be imported without torch."""

from __future__ import annotations

import importlib.util
import socket
from typing import Any

from exec.sockets import Group
from exec.training.workloads.request import TrainRequest
from probes.base import Safekeeping, UnavailableError, install

__all__ = ["elastic_task", "require_torch", "train_task"]


def require_torch() -> None:
    """Raise UnavailableError if torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise UnavailableError(
            f"torch is not installed on host {socket.gethostname()}, and training needs it",
            hint=install("torch"),
        )


def train_task(comm: Group, request: TrainRequest, progress: Safekeeping) -> Any:
    """Train once in each of the modes that need all ranks; return DDP's final parameters, if any."""
    require_torch()
    from exec.training.workloads.loop import train_all

    return train_all(comm, request, progress)


def elastic_task(comm: Group, request: TrainRequest, progress: Safekeeping) -> Any:
    """Train the model once in each of the modes that go on without lost ranks; return True."""
    require_torch()
    from exec.training.workloads.elastic_loop import train_elastic

    return train_elastic(comm, request, progress)
