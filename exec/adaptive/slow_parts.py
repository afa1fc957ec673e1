"""Names what has become slow: a host most of whose links lost bandwidth, else single links between hosts.

What links carry now is compared with what they can carry, by the rules of a watch (`probes.profiling`). A
name is given, or taken back, when two measurements in a row agree on it. A part that is named stays so until
it is half way back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from probes.base import floats, ints
from probes.link_costs import Links, Profile, ProfiledRank
from probes.profiling import Change, begun, judged
from synth.network import Network

__all__ = ["Findings", "Slow", "SlowParts", "profile_of"]

# A link that lost less of its bandwidth is within what one quick measurement may be off.
_SHARE = 0.15
# Measurements in a row that disagree are given up: the links change faster than they can be named.
_MOST_DOUBTS = 4

Key = tuple[str, ...]


@dataclass(frozen=True)
class Slow:
    """A host, by its name, that ``sends``, ``receives`` or does both slowly, or a link from one to another.

    One name is a host, two are a link, none is everything. It is ``factor`` times slower than it can be.
    """

    hosts: tuple[str, ...]
    way: Literal["sends", "receives", "both"]
    factor: float


@dataclass(frozen=True)
class Findings:
    """What is slow from now on, what no longer is, and whether a measurement more is needed to be sure."""

    slow: tuple[Slow, ...]
    recovered: tuple[Slow, ...]
    doubtful: bool


class SlowParts:
    """Compares measurements with ``capability``, whose ranks are those that are measured."""

    def __init__(self, capability: Network) -> None:
        self._baseline = profile_of(capability)
        self._history = begun(self._baseline)
        self._named: dict[Key, tuple[Slow, tuple[int, ...]]] = {}
        self._suspected: frozenset[Key] = frozenset()
        self._doubts = 0

    @property
    def named(self) -> tuple[Slow, ...]:
        """What counts as slow."""
        return tuple(slow for slow, _ in self._named.values())

    def judge(self, now: Network, at_s: float) -> Findings:
        """Take a measurement of the same links, made at ``at_s`` (seconds since 1970)."""
        if not len(self._baseline.links.src):
            return Findings((), (), doubtful=False)
        verdict = judged(self._history, self._baseline, profile_of(now), at_s, _SHARE)
        hosts = [entry.host for entry in self._baseline.ranks]
        changes = [one.change for one in verdict.standing if one.change.quantity == "bandwidth"]
        standing = _by_part(changes, hosts)
        moved = frozenset(standing) ^ frozenset(self._named)
        sure, self._suspected = moved & self._suspected, moved - self._suspected
        self._doubts = self._doubts + 1 if self._suspected else 0
        slow = [standing[key][0] for key in standing if key in sure]
        recovered = [self._named.pop(key)[0] for key in tuple(self._named) if key in sure]
        for key, found in standing.items():
            if key in sure or key in self._named:
                self._named[key] = found
        told = np.zeros(len(self._baseline.links.src))
        for _, rows in self._named.values():
            told[list(rows)] = at_s
        self._history = replace(verdict.history, bandwidth_since_s=floats(told), events=())
        doubtful = 0 < self._doubts < _MOST_DOUBTS
        return Findings(tuple(slow), tuple(recovered), doubtful)


def profile_of(network: Network) -> Profile:
    """The links between the first ranks of the hosts of ``network``, as a profile of the hosts."""
    first: dict[str, int] = {}
    for rank, host in enumerate(network.hosts):
        first.setdefault(host, rank)
    number = {rank: at for at, rank in enumerate(first.values())}
    ends = list(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    rows = [row for row, (src, dst) in enumerate(ends) if src in number and dst in number]
    alpha, beta = floats(network.alpha_s[rows]), floats(network.beta_s_per_byte[rows])
    links = Links(
        src=ints([number[ends[row][0]] for row in rows]),
        dst=ints([number[ends[row][1]] for row in rows]),
        alpha_s=alpha,
        alpha_median_s=alpha,
        alpha_p90_s=alpha,
        beta_s_per_byte=beta,
        beta_median_s_per_byte=beta,
        beta_p90_s_per_byte=beta,
        beta_low_s_per_byte=beta,
        beta_high_s_per_byte=beta,
        residual=floats(np.zeros(len(rows))),
        samples=ints(np.ones(len(rows))),
        flags=("",) * len(rows),
    )
    ranks = tuple(ProfiledRank(at, host) for at, host in enumerate(first))
    return Profile(ranks, links, (), "mpi", "", 0.0, 0)


def _by_part(changes: Sequence[Change], hosts: Sequence[str]) -> dict[Key, tuple[Slow, tuple[int, ...]]]:
    """What changed, and the rows of its links, by part; a host that sends and receives slowly is one."""
    found: dict[Key, tuple[Slow, tuple[int, ...]]] = {}
    for change in changes:
        slow = _slow(change, hosts)
        key, rows = slow.hosts, change.rows
        if key in found:
            before, others = found[key]
            slow = replace(slow, way="both", factor=max(slow.factor, before.factor))
            rows = (*others, *rows)
        found[key] = (slow, rows)
    return found


def _slow(change: Change, hosts: Sequence[str]) -> Slow:
    senders, receivers = ({hosts[pair[end]] for pair in change.links} for end in (0, 1))
    if len(change.links) == 1:
        return Slow((*senders, *receivers), "sends", change.times)
    if len(senders) == 1:
        return Slow((*senders,), "sends", change.times)
    if len(receivers) == 1:
        return Slow((*receivers,), "receives", change.times)
    return Slow((), "both", change.times)
