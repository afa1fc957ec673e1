"""Detection of slow parts of a network: hosts most of whose links lost bandwidth, or else single links.

Current link costs are compared with the links' capability, by the rules of a watch (`probes.profiling`). A
part is named, or cleared, when two measurements in a row agree. A named part stays named until it has
recovered half of its loss.
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

# The share of bandwidth whose loss makes a link slow; a smaller loss is within the error of one quick
# measurement.
_SHARE = 0.15
# After this many disagreeing measurements in a row, the links change too fast to be named.
_MOST_DOUBTS = 4

Key = tuple[str, ...]
Way = Literal["sends", "receives", "both"]


@dataclass(frozen=True)
class Slow:
    """A slow host that ``sends``, ``receives`` or does both slowly, or a slow link from one host to another.

    ``hosts`` holds one name for a host, two for a link, and none for the whole network. ``factor`` is how
    many times slower the part is than its capability.
    """

    hosts: tuple[str, ...]
    way: Way
    factor: float


@dataclass(frozen=True)
class Findings:
    """Parts newly slow, parts newly recovered, and whether one more measurement is needed to be sure."""

    slow: tuple[Slow, ...]
    recovered: tuple[Slow, ...]
    doubtful: bool


class SlowParts:
    """Comparison of measurements with ``capability``, which has the same ranks."""

    def __init__(self, capability: Network) -> None:
        self._baseline = profile_of(capability)
        self._history = begun(self._baseline)
        self._named: dict[Key, tuple[Slow, tuple[int, ...]]] = {}
        self._suspected: frozenset[Key] = frozenset()
        self._doubts = 0

    @property
    def named(self) -> tuple[Slow, ...]:
        """The parts that count as slow."""
        return tuple(slow for slow, _ in self._named.values())

    def judge(self, now: Network, at_s: float) -> Findings:
        """Judge a measurement of the same links, made at ``at_s`` (seconds since 1970)."""
        if not len(self._baseline.links.src):
            return Findings((), (), doubtful=False)
        verdict = judged(self._history, self._baseline, profile_of(now), at_s, _SHARE)
        hosts = [entry.host for entry in self._baseline.ranks]
        changes = [one.change for one in verdict.standing if one.change.quantity == "bandwidth"]
        standing = _by_part(changes, hosts)
        changed = frozenset(standing) ^ frozenset(self._named)
        confirmed, self._suspected = changed & self._suspected, changed - self._suspected
        self._doubts = self._doubts + 1 if self._suspected else 0
        slow = [standing[key][0] for key in standing if key in confirmed]
        recovered = [self._named.pop(key)[0] for key in tuple(self._named) if key in confirmed]
        for key, found in standing.items():
            if key in confirmed or key in self._named:
                self._named[key] = found
        named_since_s = np.zeros(len(self._baseline.links.src))
        for _, rows in self._named.values():
            named_since_s[list(rows)] = at_s
        self._history = replace(verdict.history, bandwidth_since_s=floats(named_since_s), events=())
        doubtful = 0 < self._doubts < _MOST_DOUBTS
        return Findings(tuple(slow), tuple(recovered), doubtful)


def profile_of(network: Network) -> Profile:
    """Return the links between the first ranks of the hosts of ``network``, as a profile of the hosts."""
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
    """Group the changes and the rows of their links by part; a host slow both ways is one part."""
    found: dict[Key, tuple[Slow, tuple[int, ...]]] = {}
    for change in changes:
        for slow, rows in _slow(change, hosts):
            key = slow.hosts
            if key in found:
                before, others = found[key]
                slow = replace(slow, way="both", factor=max(slow.factor, before.factor))
                rows = (*others, *rows)
            found[key] = (slow, rows)
    return found


def _slow(change: Change, hosts: Sequence[str]) -> list[tuple[Slow, tuple[int, ...]]]:
    """Return the slow parts of a change with their rows: a host, the links of a pair, or everything."""
    ends = [(hosts[src], hosts[dst]) for src, dst in change.links]
    common = set(ends[0]).intersection(*ends)
    if len(common) == 2:
        links = zip(ends, change.rows, strict=True)
        return [(Slow(pair, "sends", change.times), (row,)) for pair, row in links]
    if not common:
        return [(Slow((), "both", change.times), change.rows)]
    [host] = common
    sends, receives = (any(host == pair[end] for pair in ends) for end in (0, 1))
    way: Way = "both" if sends and receives else "sends" if sends else "receives"
    return [(Slow((host,), way, change.times), change.rows)]
