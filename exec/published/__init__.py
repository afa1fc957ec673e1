"""Published training methods, implemented as in their papers and sources for comparison only.

`horovod`, `hierarchical`, `gossip` and `asp` synchronize the replicas of a model. In: a model, its
optimizer, torch.distributed. Out: objects that a training loop calls before the forward pass, after the
backward pass and at the end. `flat` converts parameters to one tensor and back. Training runs get these
classes only from `synchronizer`, by name. This module imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["synchronizer"]

_HOMES = {
    "asp": ("exec.published.asp", "Asp"),
    "gossip": ("exec.published.gossip", "Gossip"),
    "hierarchical": ("exec.published.hierarchical", "Hierarchical"),
    "horovod": ("exec.published.horovod", "Horovod"),
}


def synchronizer(mode: str) -> Any:
    """Import and return the class that synchronizes replicas in ``mode``."""
    module, name = _HOMES[mode]
    return getattr(import_module(module), name)
