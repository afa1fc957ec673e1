"""The interface for training scripts: the backend ``ccctl``, wrappers of models, optimizers and samplers.

PyTorch calls `register` by itself if ccctl is installed (entry points ``torch.backends``). If that is
switched off, ``import ccctl.torch`` registers the backend. This module can be imported without torch.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exec.training.backend import KnownSchedules
    from synth.network import Network
    from synth.schedules import Schedule

# The module of each name, imported on first use: each needs torch, which may itself be importing this module.
_WRAPPERS = {
    "AdaptiveHook": "exec.training.hooks.adaptive_hook",
    "DSSync": "ccctl.torch.ds_sync",
    "DistributedOptimizer": "exec.training.dear",
    "ElasticSampler": "exec.training.hooks.elastic_sampler",
    "adaptive_session": "exec.training.hooks.sessions",
    "all_to_all": "exec.training.hooks.all_to_all",
    "capture": "exec.training.dear",
    "redistribute": "exec.training.redistribution",
}

__all__ = ["register", *_WRAPPERS]

_log = logging.getLogger(__name__)
_UNSET = "Leave it unset, and links are measured."


def __getattr__(name: str) -> Any:
    if name in _WRAPPERS:
        return getattr(importlib.import_module(_WRAPPERS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register() -> None:
    """Register the backend and `ccctl://` with torch.distributed.

    Never raises an error, because ``import torch`` would fail with it.
    """
    try:
        import torch.distributed as dist

        if dist.is_available() and not hasattr(dist.Backend, "CCCTL"):
            dist.Backend.register_backend("ccctl", _create, extended_api=True, devices=["cpu"])
            dist.register_rendezvous_handler("ccctl", _meet)
    except Exception as error:  # An error of an entry point would break `import torch`.
        _log.debug("the backend ccctl is not registered: %s", error)


def _create(options: Any, backend_options: Any) -> Any:
    """Return the process group of one rank, with the settings in rank 0's environment.

    Raises UsageError on all ranks if these are wrong.
    """
    import torch.distributed as dist

    from ccctl.errors import UsageError
    from exec.training.backend import PREFERENCES, Settings, TorchGroup

    prefer = os.environ.get("CCCTL_PREFER", PREFERENCES[0])
    if prefer not in PREFERENCES:
        raise UsageError(f"CCCTL_PREFER: expected one of {', '.join(PREFERENCES)}, found {prefer!r}")
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    # The first group of a job has all its ranks.
    world = dist.get_world_size() if dist.is_initialized() else options.group_size
    network = partial(_network, os.environ.get("CCCTL_PROFILE", ""), ranks, world)
    settings = Settings(network, prefer, known=_known())
    return TorchGroup(options.store, options.group_rank, options.group_size, options.timeout, settings)


def _meet(url: str, **options: Any) -> Any:
    """Handle the rendezvous `ccctl://` of ranks that torchrun, mpirun or srun has started."""
    from exec.training.backend import meet

    return meet(url, **options)


@cache
def _known() -> KnownSchedules:
    """Return the cache of schedules, which all groups of this process share."""
    from exec.training.backend import KnownSchedules

    return KnownSchedules(_KeptSchedules())


class _KeptSchedules:
    """Schedules in this user's artifact cache, which is opened when rank 0 first needs it."""

    def read(self, key: Mapping[str, object]) -> Schedule | None:
        found = _artifacts().read("schedule", key)
        schedule: Schedule | None = found.artifact.body if found else None
        return schedule

    def keep(self, key: Mapping[str, object], schedule: Schedule) -> None:
        _artifacts().keep("schedule", key, schedule)


@cache
def _artifacts() -> Any:
    from ccctl.artifacts import ArtifactCache

    return ArtifactCache()


def _network(path: str, ranks: list[int], world: int) -> Network | None:
    """Return the network of ``ranks`` from the profile at ``path``; None without a path.

    Raises UsageError, with the path and the reason, if the profile cannot be read, or is not of a job of
    ``world`` ranks.
    """
    if not path:
        return None
    from ccctl.arguments import load_network
    from ccctl.errors import CcctlError, UsageError
    from probes.base import plural
    from synth.networks import restricted

    named = f"CCCTL_PROFILE={path}"
    if not Path(path).is_file():
        raise UsageError(f"{named}: there is no such file", hint=_UNSET)
    try:
        network, _ = load_network(path, None, None)
    except CcctlError as error:
        raise UsageError(f"{named}: {str(error).removeprefix(f'{path}: ')}", hint=_UNSET) from error
    if network.ranks != world:
        raise UsageError(
            f"{named}: it is of {plural(network.ranks, 'rank')}, the job has {world}", hint=_UNSET
        )
    return restricted(network, ranks)[0] if len(ranks) < network.ranks else network


register()
