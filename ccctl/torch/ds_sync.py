"""`ccctl.torch.DSSync`: groups from an artifact, from the profile of the cluster, or for equal links."""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from exec.training.ds_sync import DivideAndShuffle as Wrapper, equal_links, planned_for
from probes.base import plural

if TYPE_CHECKING:
    from exec.training.ds_sync import TrainingJob
    from synth.groups import Groups

__all__ = ["DSSync"]

_log = logging.getLogger(__name__)


class DSSync(Wrapper):
    """`DivideAndShuffle` of `exec.training.ds_sync`; ``groups`` may also be the path of an artifact.

    Without ``groups``, rank 0 plans them for the profile in ``CCCTL_PROFILE``, or else for links of equal
    cost, and logs which.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        groups: Groups | str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        if groups is None:
            super().__init__(model, optimizer, _planned, **options)
        elif isinstance(groups, (str, os.PathLike)):
            super().__init__(model, optimizer, partial(_read, os.fspath(groups)), **options)
        else:
            super().__init__(model, optimizer, groups, **options)


def _read(path: str, _job: TrainingJob) -> Groups:
    """Return the groups in an artifact; called on rank 0."""
    from ccctl.artifacts import codec

    found: Groups = codec.read(path, "groups").body
    return found


def _planned(job: TrainingJob) -> Groups:
    """Return groups for the profile, or for equal links; called on rank 0."""
    from ccctl.torch import _network

    path = os.environ.get("CCCTL_PROFILE", "")
    network = _network(path, list(range(job.ranks)), job.ranks)
    groups = planned_for(network or equal_links(job), job)
    known = f"the profile {path}" if network else "links that cost the same (CCCTL_PROFILE is not set)"
    _log.warning("DS-Sync: %s, %s, planned for %s", groups.pattern, plural(groups.period, "iteration"), known)
    return groups
