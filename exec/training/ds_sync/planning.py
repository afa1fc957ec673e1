"""The groups of a job: planned for its network, and refused if replicas would never agree."""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass, replace

from probes.base import DataError, UsageError, plural
from synth.errors import NotApplicableError
from synth.groups import Groups, Planned, adjust_groups, disagreement, plan_groups
from synth.network import Link, Network, build

__all__ = ["TrainingJob", "adjusted", "equal_links", "planned_for", "require_agreement"]

_log = logging.getLogger(__name__)

# Costs of unknown links. They are equal for all links, so they do not influence the groups.
_ALPHA_S, _BETA_S_PER_BYTE = 50e-6, 1 / 1.25e9


@dataclass(frozen=True)
class TrainingJob:
    """The training job: the host of each rank, the bytes that ranks average, and the number of messages."""

    hosts: tuple[str, ...]
    size_bytes: int
    messages: int

    @property
    def ranks(self) -> int:
        return len(self.hosts)


def equal_links(job: TrainingJob) -> Network:
    """Return a network on which all links between ranks cost the same."""
    pairs = itertools.permutations(range(job.ranks), 2)
    links = (Link(src, dst, _ALPHA_S, _BETA_S_PER_BYTE) for src, dst in pairs)
    return build("equal links", job.hosts, links)


def planned_for(network: Network, job: TrainingJob) -> Groups:
    """Return the groups for ``job`` on ``network``; raises NotApplicableError as `plan_groups` does."""
    planned = plan_groups(network, job.size_bytes, layers=job.messages)
    for remark in planned.remarks:
        _log.warning("%s", remark)
    return planned.groups


def adjusted(first: Groups, now: Groups, network: Network) -> Planned:
    """Return groups for the newly measured ``network`` (DS-Sync, Sec. III-A, step 3).

    Return ``now`` if the slow racks and ranks are unchanged, ``first`` if they are those of ``first`` again.
    """
    planned = adjust_groups(now, network)
    found = planned.groups
    if planned.changed and (found.slow_racks, found.slow_ranks) == (first.slow_racks, first.slow_ranks):
        back = replace(first, network=network)
        return Planned(adjust_groups(back, network).groups, (), True)
    return planned


def require_agreement(groups: Groups, ranks: int) -> None:
    """Raise an error unless ``groups`` are valid, are for ``ranks`` ranks, and reach consensus (rho < 1)."""
    if problems := groups.problems():
        raise DataError("groups", problems)
    if groups.ranks != ranks:
        raise UsageError(
            f"groups: expected the {plural(ranks, 'rank')} of the job, found {plural(groups.ranks, 'rank')}",
            hint="Plan them for the network of this job.",
        )
    if wrong := disagreement(ranks, groups.iterations):
        raise NotApplicableError(
            f"groups: {wrong}", hint="ccctl training averaging without a pattern finds one that agrees."
        )
