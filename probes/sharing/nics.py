"""Shared NICs: which ranks of a host lose bandwidth when both send, or both receive, at once."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from probes.sampling import Pair, Place
from probes.sharing.model import Share, is_of, nic_name
from probes.sharing.trials import ContentionTrials, Known, SpentError, Trial

__all__ = ["contradicted", "nic_shares"]


@dataclass
class _Nic:
    """Ranks of one host, in one direction, sorted into groups that share a NIC, one rank at a time."""

    host: str
    egress: bool
    waiting: list[int]
    groups: list[list[int]] = field(default_factory=list)
    compared: int = 0

    def learn(self, shared: bool) -> None:
        """Record whether the next rank shares a NIC with the group that it was compared with."""
        if not shared and self.compared + 1 < len(self.groups):
            self.compared += 1
            return
        rank = self.waiting.pop(0)
        if shared:
            self.groups[self.compared].append(rank)
        else:
            self.groups.append([rank])
        self.compared = 0


def nic_shares(known: Known, trials: ContentionTrials) -> list[Share]:
    """Find the NICs of hosts with several ranks; omits hosts whose trials ran out or were impossible.

    A host of k ranks on m NICs takes at most (k - 1)·m trials in each direction.
    """
    nics = [
        _Nic(host, egress, ranks[1:], [ranks[:1]])
        for host, ranks in known.ranks_of().items()
        if len(ranks) > 1
        for egress in (True, False)
    ]
    with contextlib.suppress(SpentError):
        _sort(nics, known, trials)
    return [share for nic in nics if not nic.waiting for share in _shares(nic, known)]


def contradicted(places: Sequence[Place], shares: Sequence[Share]) -> list[str]:
    """Return notes where measured NIC sharing differs from the topology, and what it costs.

    ``shares`` are measured by `nic_shares`, and take precedence.
    """
    found = []
    for host in dict.fromkeys(place.host for place in places if place.nic):
        declared: dict[str, list[int]] = {}
        for rank, place in enumerate(places):
            if place.host == host:
                declared.setdefault(place.nic, []).append(rank)
        for way, end, verb in (("egress", 0, "leave"), ("ingress", 1, "reach")):
            measured = [
                {pair[end] for pair in share.pairs}
                for share in shares
                if share.pairs and is_of(share.name, host, way)
            ]
            for one in measured:
                joined = [nic for nic, ranks in declared.items() if not one.isdisjoint(ranks)]
                if len(joined) > 1:
                    found.append(
                        f"{host}: {', '.join(joined)} are declared apart, but together carry no more than "
                        f"one: data that {verb} the host take {len(joined):.1f} times as long as declared"
                    )
            for nic, ranks in declared.items():
                if sum(not one.isdisjoint(ranks) for one in measured) > 1:
                    found.append(
                        f"{host}: ranks that share {nic} as declared do not slow each other down: "
                        f"their data {verb} the host by NICs of their own"
                    )
    return found


def _sort(nics: Sequence[_Nic], known: Known, trials: ContentionTrials) -> None:
    """Put every rank into a group, all hosts in parallel."""
    while True:
        asked = [(nic, _next(nic, known)) for nic in nics if nic.waiting]
        ready = [(nic, trial) for nic, trial in asked if trial is not None]
        if not ready:
            return
        # If trials run short, the first entries get them, so that these become complete.
        ready = ready[: max(trials.left, 1)]
        for (nic, _), shared in zip(ready, trials.shared([trial for _, trial in ready]), strict=True):
            nic.learn(shared)


def _next(nic: _Nic, known: Known) -> Trial | None:
    """Return a trial of the next rank beside a group member, with two different hosts at the far ends."""
    mine = _links(nic.groups[nic.compared][0], nic.egress, known)
    its = _links(nic.waiting[0], nic.egress, known)
    far = 1 if nic.egress else 0
    for one in mine:
        for other in its:
            if known.host(one[far]) != known.host(other[far]):
                return one, other
    return None


def _links(rank: int, egress: bool, known: Known) -> list[Pair]:
    """Return the measured links of a rank to other hosts, or from them, fastest first."""
    end = 0 if egress else 1
    found = [pair for pair in known.beta if pair[end] == rank and known.host(pair[0]) != known.host(pair[1])]
    return sorted(found, key=lambda pair: (known.beta[pair], pair))


def _shares(nic: _Nic, known: Known) -> list[Share]:
    way = "egress" if nic.egress else "ingress"
    several = len(nic.groups) > 1
    named = [
        Share(nic_name(nic.host, way, at if several else None), tuple(_pairs(group, nic.egress, known)))
        for at, group in enumerate(nic.groups)
    ]
    return [Share(nic_name(nic.host, way)), *named] if several else named


def _pairs(group: Sequence[int], egress: bool, known: Known) -> list[Pair]:
    return sorted(pair for rank in group for pair in _links(rank, egress, known))
