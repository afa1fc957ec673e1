"""Outliers of a profile: rows to flag, and sentences that name the slow part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from probes.base import Floats, Indices, plural, some
from probes.profiling import median_polish
from probes.sampling import Pair, Place

__all__ = [
    "EFFECT",
    "Names",
    "SlowPart",
    "asymmetric",
    "describe",
    "noise",
    "noisy",
    "slow_parts",
    "worst_first",
]

# The two ways of a link may differ by up to a tenth without a finding.
EFFECT = 0.10
# A median of over twice the best time is noise.
_NOISY = 1.0
# About three normal values in a million lie more than 4.5 standard deviations above the mean.
_Z = 4.5
_MOST_NAMED = 6


@dataclass(frozen=True)
class SlowPart:
    """A slow sender or receiver, or several slow links; ``word`` is the flag of its ``rows``.

    ``does`` describes the fault. ``named`` has, for each row, the slowdown and the name of its link.
    ``times`` is the slowdown of a sender or receiver, ``costs`` its effect on a collective.
    """

    word: str
    rows: tuple[int, ...]
    does: str
    named: tuple[tuple[float, str], ...] = ()
    times: float = 1.0
    costs: str = ""

    @property
    def worst(self) -> float:
        """Its slowdown, or that of the worst of its links."""
        return max((times for times, _ in self.named), default=self.times)

    @property
    def text(self) -> str:
        if not self.named:
            return f"{self.does}: {self.costs}"
        which = "it" if len(self.named) == 1 else "the first"
        ring = f"a ring all_reduce through {which} takes {self.worst:.1f} times as long"
        return f"{describe(self.does, self.named)}: {ring}, unless it avoids the link"

    def among(self, rows: Set[int]) -> SlowPart:
        """Return the single links that remain when only ``rows`` count."""
        kept = [at for at, row in enumerate(self.rows) if row in rows]
        return replace(
            self, rows=tuple(self.rows[at] for at in kept), named=tuple(self.named[at] for at in kept)
        )


class Names:
    """Names of ranks and links: by host if each has one rank, by number on a single host."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = hosts
        self._alone = len(set(hosts)) == len(hosts)
        self._one_host = len(set(hosts)) == 1

    def rank(self, rank: int) -> str:
        if self._one_host:
            return f"rank {rank}"
        return self._hosts[rank] if self._alone else f"rank {rank} ({self._hosts[rank]})"

    def together(self, ranks: Sequence[int], every: Sequence[int]) -> dict[str, list[int]]:
        """Group ``ranks`` by name: their host's or their own.

        A host's name is used if all its ranks in ``every`` are included.
        """
        found: dict[str, list[int]] = {}
        for rank in ranks:
            host = self._hosts[rank]
            whole = all(other in ranks for other in every if self._hosts[other] == host)
            found.setdefault(f"host {host}" if whole and not self._one_host else self.rank(rank), []).append(
                rank
            )
        return found

    def on_one_host(self, ranks: Sequence[int]) -> bool:
        return len({self._hosts[rank] for rank in ranks}) == 1

    def parties(self, ranks: Sequence[int], every: Sequence[int]) -> int:
        """Return the number of parties in ``every``; 0 if ``ranks`` are only part of a host.

        Parties are hosts, or ranks if ``every`` are on one host.
        """
        if self.on_one_host(every):
            return len(every)
        mine = {self._hosts[rank] for rank in ranks}
        whole = all(rank in ranks for rank in every if self._hosts[rank] in mine)
        return len({self._hosts[rank] for rank in every}) if whole else 0

    def link(self, src: int, dst: int) -> str:
        return f"{src} → {dst}" if self._one_host else f"{self.rank(src)} → {self.rank(dst)}"


def slow_parts(
    pairs: Sequence[Pair], beta: Floats, median: Floats, places: Sequence[Place]
) -> list[SlowPart]:
    """Find slow hosts, ranks and links, between hosts and inside each host; the worst comes first."""
    hosts = [place.host for place in places]
    names = Names(hosts)
    wander = np.log(median / beta)
    inside = np.array([hosts[src] == hosts[dst] for src, dst in pairs], dtype=np.bool_)
    groups = [np.flatnonzero(~inside)]
    for host in dict.fromkeys(hosts):
        here = np.array([hosts[src] == host for src, _ in pairs], dtype=np.bool_)
        groups.append(np.flatnonzero(inside & here))
    found = (
        part
        for rows in groups
        for part in _slow([pairs[row] for row in rows.tolist()], rows, beta[rows], noise(wander[rows]), names)
    )
    return worst_first(found)


def worst_first(parts: Iterable[SlowPart]) -> list[SlowPart]:
    """Sort the parts by their slowdown, worst first."""
    return sorted(parts, key=lambda part: -part.worst)


def asymmetric(pairs: Sequence[Pair], beta: Floats, median: Floats, low: Floats, high: Floats) -> list[int]:
    """Return rows a tenth slower than the way back, in best and median, with disjoint intervals.

    If links vary by more than that, the difference must also exceed their variation.
    """
    row_of = {pair: row for row, pair in enumerate(pairs)}
    least = max(1 + EFFECT, float(np.exp(_Z * noise(np.log(median / beta)))))
    found = []
    for row, (src, dst) in enumerate(pairs):
        back = row_of.get((dst, src))
        if back is None or low[row] <= high[back]:
            continue
        if min(beta[row] / beta[back], median[row] / median[back]) > least:
            found.append(row)
    return found


def noise(wander: Floats) -> float:
    """Return the uncertainty of best times; ``wander`` has the logarithms of median over best."""
    return float(np.median(wander)) / 2 if len(wander) else 0.0


def noisy(beta: Floats, median: Floats, high: Floats) -> list[int]:
    """Return rows whose median, or upper bound, is over twice the link's best time."""
    return [int(row) for row in np.flatnonzero(np.maximum(median, high) > (1 + _NOISY) * beta)]


def describe(what: str, worst: Sequence[tuple[float, str]]) -> str:
    """Return a sentence that names the worst links and counts the others, from (how bad, name) of each."""
    names = [name for _, name in sorted(worst, key=lambda one: -one[0])]
    return f"{plural(len(names), 'link')} {what}: {some(names, _MOST_NAMED)}"


def _costs(times: float, parties: int) -> str:
    """Return the words for the cost of a sender or receiver that is ``times`` too slow.

    A ring moves 2(n-1)/n of the data through each of n parties. In any other algorithm, too, each party sends
    its own data once and receives the sum once. ``parties`` is n, or 0 if the slow part is not a whole party.
    """
    least = times * parties / (2 * (parties - 1)) if parties > 1 else 0.0
    others = f", any other at least {least:.1f} times" if least >= 1.05 else ""
    return f"a ring all_reduce takes {times:.1f} times as long{others}"


def _slow(
    pairs: Sequence[Pair], rows: Indices, beta: Floats, noisy: float, names: Names
) -> Iterable[SlowPart]:
    """Yield the slow parts of the links ``pairs``, which are the ``rows`` of the table."""
    ranks = sorted({rank for pair in pairs for rank in pair})
    at = {rank: number for number, rank in enumerate(ranks)}
    cells = {(at[src], at[dst]): 1 / float(value) for (src, dst), value in zip(pairs, beta, strict=True)}
    parts = median_polish.find(
        median_polish.matrix_of(cells, len(ranks)), noisy, bridged=names.on_one_host(ranks)
    )
    for end, word, does, slow in (
        (0, "slow_sender", "sends", parts.senders),
        (1, "slow_receiver", "receives", parts.receivers),
    ):
        for who, members in names.together([ranks[number] for number in slow], ranks).items():
            mine = np.array([pair[end] in members for pair in pairs])
            ratio = float(np.median([slow[at[rank]] for rank in members]))
            speed = 1e-9 / float(np.median(beta[mine]))
            said = f"{who} {does} at {ratio:.0%} of the others ({speed:.3g} GB/s)"
            costs = _costs(1 / ratio, names.parties(members, ranks))
            yield SlowPart(word, tuple(rows[mine].tolist()), said, times=1 / ratio, costs=costs)
    found = {(ranks[a], ranks[b]): (ratio, 1 / parts.level(a, b)) for (a, b), ratio in parts.links.items()}
    slow_rows = []
    for row, pair, value in zip(rows.tolist(), pairs, beta, strict=True):
        if pair in found:
            ratio, times = found[pair]
            slow_rows.append((row, (times, f"{names.link(*pair)} at {ratio:.0%} ({1e-9 / value:.3g} GB/s)")))
    if slow_rows:
        numbers, named = zip(*slow_rows, strict=True)
        yield SlowPart("outlier", numbers, "slower than its ends on other links", named)
