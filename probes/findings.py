"""What stands out among measured links, as rows to flag and sentences to print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from probes import suspects
from probes.columns import Floats
from probes.rounds import Pair
from probes.samples import Place

__all__ = ["EFFECT", "Names", "SlowPart", "asymmetric", "describe", "noise", "noisy", "slow_parts"]

EFFECT = 0.10
_NOISY = 1.0
_Z = 4.5
_MOST_NAMED = 6


@dataclass(frozen=True)
class SlowPart:
    """A slow sender, receiver or link: the ``word`` that flags its ``rows``, and what to say of it."""

    word: str
    rows: tuple[int, ...]
    text: str
    ratio: float


class Names:
    """What ranks and links are called: by host where each has one rank, by number on a single host."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = hosts
        self._alone = len(set(hosts)) == len(hosts)
        self._one_host = len(set(hosts)) == 1

    def rank(self, rank: int) -> str:
        if self._one_host:
            return f"rank {rank}"
        return self._hosts[rank] if self._alone else f"rank {rank} ({self._hosts[rank]})"

    def link(self, src: int, dst: int) -> str:
        return f"{src} → {dst}" if self._one_host else f"{self.rank(src)} → {self.rank(dst)}"


def slow_parts(
    pairs: Sequence[Pair], beta: Floats, median: Floats, places: Sequence[Place]
) -> list[SlowPart]:
    """Slow hosts and links between hosts, then slow ranks and links inside each host."""
    wander = np.log(median / beta)
    found: list[SlowPart] = []
    hosts = list(dict.fromkeys(place.host for place in places))
    number = {host: at for at, host in enumerate(hosts)}
    host_of = [number[place.host] for place in places]
    between = {
        row: (host_of[src], host_of[dst])
        for row, (src, dst) in enumerate(pairs)
        if host_of[src] != host_of[dst]
    }
    named = dict(enumerate(hosts))
    found += _slow(between, beta, wander, {at: f"host {name}" for at, name in named.items()}, named)
    names = Names([place.host for place in places])
    for host in range(len(hosts)):
        members = [rank for rank, other in enumerate(host_of) if other == host]
        local = {rank: at for at, rank in enumerate(members)}
        inside = {
            row: (local[src], local[dst])
            for row, (src, dst) in enumerate(pairs)
            if host_of[src] == host_of[dst] == host
        }
        called = {at: names.rank(rank) for at, rank in enumerate(members)}
        short = {at: str(rank) for at, rank in enumerate(members)} if len(hosts) == 1 else called
        found += _slow(inside, beta, wander, called, short)
    return found


def asymmetric(pairs: Sequence[Pair], beta: Floats, median: Floats, low: Floats, high: Floats) -> list[int]:
    """Rows that are a tenth slower than the way back, at best and in the middle, beyond their intervals.

    Where links wander more than that, it must be beyond what they wander, too.
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
    """How uncertain a best value is, from how far the middle of its samples is from it (both logarithms)."""
    return float(np.median(wander)) / 2 if len(wander) else 0.0


def noisy(beta: Floats, median: Floats, high: Floats) -> list[int]:
    """Rows whose middle, or whose interval, is at twice what the link takes at its best."""
    return [int(row) for row in np.flatnonzero(np.maximum(median, high) > (1 + _NOISY) * beta)]


def describe(what: str, worst: Sequence[tuple[float, str]]) -> str:
    """One sentence that names the worst of some links, and counts the others: (how bad, name) each."""
    order = sorted(worst, key=lambda one: -one[0])
    named = [name for _, name in order[:_MOST_NAMED]]
    more = f" and {len(order) - _MOST_NAMED} more" if len(order) > _MOST_NAMED else ""
    return f"{len(order)} {'link' if len(order) == 1 else 'links'} {what}: {', '.join(named)}{more}"


def _slow(
    cells: Mapping[int, Pair],
    beta: Floats,
    wander: Floats,
    ends: Mapping[int, str],
    short: Mapping[int, str],
) -> Iterable[SlowPart]:
    """The slow parts of one matrix, whose cells are given by the row of the table that each comes from."""
    best: dict[Pair, float] = {}
    for row, cell in cells.items():
        best[cell] = max(best.get(cell, 0.0), 1 / float(beta[row]))
    parts = suspects.find(suspects.matrix_of(best, len(ends)), noise(wander[list(cells)]))
    for which, word, does, slow in (
        (0, "sender", "sends", parts.senders),
        (1, "receiver", "receives", parts.receivers),
    ):
        for end, ratio in slow.items():
            rows = tuple(row for row, cell in cells.items() if cell[which] == end)
            speed = float(np.median([1e-9 / beta[row] for row in rows]))
            said = f"{ends[end]} {does} at {ratio:.0%} of the others ({speed:.3g} GB/s)"
            yield SlowPart(f"slow_{word}", rows, said, ratio)
    if parts.links:
        rows_of = {cell: [row for row, other in cells.items() if other == cell] for cell in parts.links}
        named = [
            (-ratio, f"{short[a]} → {short[b]} at {ratio:.0%} ({best[a, b] * 1e-9:.3g} GB/s)")
            for (a, b), ratio in parts.links.items()
        ]
        text = describe("slower than what its ends reach", named)
        rows = tuple(row for found in rows_of.values() for row in found)
        yield SlowPart("outlier", rows, text, min(parts.links.values()))
