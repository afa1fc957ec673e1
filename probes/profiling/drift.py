"""Drift between two profiles: changes larger than the usual variation of links.

The uncertainty of a link comes from its samples, in the baseline and now: the bootstrap interval of beta, and
the distance of the median sample from the best. Every link has at least the median link's uncertainty. A
change counts only if it exceeds a limit in both the best and the median of the samples. The limit is so high
that noise alone causes at most one false alarm in a hundred runs over all links (Bonferroni). If earlier runs
are known, their spread is taken into account (`Past`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Literal

import numpy as np

from probes.base import Floats, Indices, Mask, floats, plural, rate_text, without_domain
from probes.link_costs import Links, Profile
from probes.localization import changed_parts
from probes.profiling.names import Names
from probes.sampling import Pair

__all__ = [
    "BETWEEN_TWO",
    "LATENCY_EFFECT",
    "NO_ALPHA_S",
    "Change",
    "Drift",
    "Past",
    "Quantity",
    "Sensitivity",
    "below_expectation",
    "compare",
    "matched",
    "ranks_in",
    "sigmas",
    "together",
    "written",
]

Quantity = Literal["bandwidth", "latency"]
# A change counts, is doubtful because the ends of its links waited for cores, or unsure because of noise.
_Kind = Literal["counts", "doubtful", "unsure"]

# Links named in one finding, so that it stays readable; a count stands for the others.
_MOST_SLOW = 4
# Expected false alarms in a run, over all links (Bonferroni): about four a year if a healthy network is
# profiled daily.
_FALSE_ALARMS_A_RUN = 0.01
# The smallest changes of a latency that are reported: relative to the baseline, and in seconds. On hosts with
# busy cores, quiet runs of benchmarks/slurm_lab.py and benchmarks/watch_lab.py report nothing with them.
LATENCY_EFFECT = 0.25
_LEAST_ALPHA_S = 2e-6
# Smaller latencies count as this latency, because 0 has no logarithm.
NO_ALPHA_S = 1e-12
# The least standard deviation of a link: clocks make equal runs differ by half a per cent.
_LEAST_SIGMA = 0.005
# A change of more than this share of all links counts as a change of all links, and states the limit of all
# links together. A fault of one host cannot look like it: of three hosts or more, one has two thirds of all
# links at most.
_MOST_OF = 0.8
# A reported change stays until it is below this share of the limit, so that noise does not make it flap.
_STILL = 0.5
# The width of a 95 % interval of a normal distribution, in standard deviations.
_INTERVAL_SIGMAS = 3.92
# Standard deviations from a link's best sample to its median one, as for the least of 28 normal samples. The
# 90th percentile is further away, so latencies get too large a deviation rather than too small a one.
_BEST_SIGMAS = 2.0
# A ratio from ``_MANY`` on is written as "n times" instead of in per cent.
_MANY = 10.0
# The least latency that is written in ms: anything shorter rounds to less than 1000 us.
_MILLISECOND_S = 0.9995e-3


@dataclass(frozen=True, eq=False)
class Past:
    """Evidence from earlier runs about one quantity of each link of the baseline.

    ``wander`` is the standard deviation of its logarithm from run to run (0: unknown). ``level`` is its level
    in the last runs if that differs from the baseline, else 0. ``worse`` are the links that were worse in the
    last run. ``recalled`` are the links of ``worse`` that were not measured now and keep their last values.
    """

    wander: Floats
    level: Floats
    worse: Mask
    recalled: Mask


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """The limit that a change must exceed to be reported, as the logarithm of the ratio now/before.

    If ``noise`` is set, the limit follows from the noise of the link, but lies between ``least`` and
    ``most``. Otherwise it is ``least``. Nobody acts on a change below ``least``, however certain it is. A
    change beyond ``most`` is reported however noisy the link is. ``past`` has evidence from earlier runs for
    some quantities.
    """

    least: Mapping[Quantity, float]
    noise: bool = True
    past: Mapping[Quantity, Past] = field(default_factory=dict)
    most: float = float("inf")


BETWEEN_TWO = Sensitivity({"bandwidth": float(np.log1p(0.03)), "latency": float(np.log1p(LATENCY_EFFECT))})


def written(quantity: Quantity, value: float) -> str:
    """Return bytes/s or seconds in three digits with their unit."""
    if quantity == "bandwidth":
        return f"{value * 1e-9:.3g} GB/s"
    return f"{value * 1e6:.3g} us" if value < _MILLISECOND_S else f"{value * 1e3:.3g} ms"


@dataclass(frozen=True)
class Change:
    """A quantity of a link, a host or everything, before and now (bytes/s or s).

    ``allowed`` is the ratio now/before that the spread of both profiles would still explain. ``links`` are
    pairs of ranks in their present numbering, ``rows`` the same links in the baseline.
    """

    what: str
    quantity: Quantity
    before: float
    now: float
    allowed: float
    links: tuple[Pair, ...]
    rows: tuple[int, ...] = ()

    @property
    def worse(self) -> bool:
        return self.now < self.before if self.quantity == "bandwidth" else self.now > self.before

    @property
    def ratio(self) -> float:
        """Now as a multiple of before."""
        return self.now / self.before

    @property
    def times(self) -> float:
        """The factor by which the quantity was better in the baseline."""
        return self.before / self.now if self.quantity == "bandwidth" else self.now / self.before

    @property
    def values(self) -> tuple[str, str]:
        """The values before and now, with their units."""
        return written(self.quantity, self.before), written(self.quantity, self.now)

    @property
    def summary(self) -> str:
        """The change in words: what it is, before and now."""
        before, now = self.values
        # Write the unit once if both have the same.
        before = before.removesuffix(f" {now.partition(' ')[2]}")
        ratio = self.now / self.before
        share = f"{ratio:.0%} of the baseline" if ratio < _MANY else f"{ratio:.0f} times the baseline"
        return f"{self.what}: {self.quantity} {before} → {now}, {share}"

    def __str__(self) -> str:
        return f"{self.summary} ({self.noise})"

    @property
    def noise(self) -> str:
        """The change that noise explains, in words."""
        change = "a loss" if self.allowed < 1 else "a rise"
        return f"noise explains {change} of at most {abs(1 - self.allowed):.0%}"


@dataclass(frozen=True)
class Drift:
    """Changes between two profiles; ranks ``gone`` and ``new``; the number of links ``compared``.

    ``doubtful`` are latencies that rose while an end of each link waited for a core in every measurement.
    They show the host's load, not the link.

    ``unsure`` has each quantity whose median differs by more than anybody would overlook, although no single
    change exceeds what noise explains.

    ``unmeasured`` counts links of the baseline between present ranks that were not measured now; ``added``
    counts links that were not measured in the baseline.
    """

    changes: tuple[Change, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]
    compared: int
    unmeasured: int
    added: int
    doubtful: tuple[Change, ...] = ()
    unsure: tuple[Change, ...] = ()

    @property
    def findings(self) -> tuple[str, ...]:
        """Findings for the operator: everything that got worse, and missing ranks."""
        lost = [f"{name} of the baseline is not there" for name in self.gone]
        return (*lost, *(str(change) for change in self.changes if change.worse))

    @property
    def notes(self) -> tuple[str, ...]:
        """All other differences."""
        found = [str(change) for change in self.changes if not change.worse]
        found += [f"{name} is not in the baseline" for name in self.new]
        found += [
            f"{change.summary}: does not count: one end waited for a core in every measurement"
            for change in self.doubtful
        ]
        if self.unmeasured:
            found.append(f"{self.unmeasured} links of the baseline were not measured now")
        if self.added:
            found.append(f"{self.added} links were not measured in the baseline")
        return tuple(found)


def ranks_in(baseline: Profile, now: Profile) -> dict[int, int]:
    """Map each rank of ``baseline`` that is present now to its number in ``now``."""
    before_of, now_of = _by_place(baseline), _by_place(now)
    return {before_of[place]: now_of[place] for place in before_of if place in now_of}


def compare(baseline: Profile, now: Profile, sensitivity: Sensitivity = BETWEEN_TWO) -> Drift:
    """Compare ``now`` with ``baseline``; a rank is the same if it is the n-th of the same host."""
    before_of, now_of = _by_place(baseline), _by_place(now)
    row_now = matched(baseline, now)
    rows = np.flatnonzero(row_now >= 0)
    there = {before_of[place] for place in before_of if place in now_of}
    between_same = sum(src in there and dst in there for src, dst in _pairs(baseline.links))
    changes = list(_changes(baseline, now, rows, row_now[rows], sensitivity)) if len(rows) else []
    return Drift(
        changes=tuple(change for change, kind in changes if kind == "counts"),
        gone=_named(before_of, now_of),
        new=_named(now_of, before_of),
        compared=len(rows),
        unmeasured=between_same - len(rows),
        added=len(now.links.src) - len(rows),
        doubtful=tuple(change for change, kind in changes if kind == "doubtful"),
        unsure=tuple(change for change, kind in changes if kind == "unsure"),
    )


def matched(baseline: Profile, now: Profile) -> Indices:
    """Return for each link of ``baseline`` its row in ``now``; -1 if it was not measured."""
    same = ranks_in(baseline, now)
    row_now = {pair: row for row, pair in enumerate(_pairs(now.links))}
    pairs = ((same.get(src, -1), same.get(dst, -1)) for src, dst in _pairs(baseline.links))
    return np.array([row_now.get(pair, -1) for pair in pairs], dtype=np.int32)


def sigmas(links: Links, quantity: Quantity) -> Floats:
    """Estimate from one run each link's standard deviation of log(quantity) between runs."""
    if quantity == "bandwidth":
        interval = np.log(links.beta_high_s_per_byte / links.beta_low_s_per_byte) / _INTERVAL_SIGMAS
        wander = np.log(links.beta_median_s_per_byte / links.beta_s_per_byte) / _BEST_SIGMAS
        return _no_steadier_than_most(np.maximum(interval, wander))
    best = np.maximum(links.alpha_s, NO_ALPHA_S)
    return _no_steadier_than_most(np.log(np.maximum(links.alpha_p90_s / best, 1.0)) / _BEST_SIGMAS)


def together(profile: Profile, rows: Sequence[int]) -> list[tuple[str, tuple[int, ...]]]:
    """Group ``rows`` of links by the fewest parts that have them in common, and name each group."""
    pairs = _pairs(profile.links)
    chosen = np.isin(np.arange(len(pairs)), rows).astype(np.float64)
    judge = _Judge(profile, np.arange(len(pairs)), pairs, Names([entry.host for entry in profile.ranks]))
    limit = np.full(len(pairs), 0.5)
    found = judge.grouped(chosen, limit, 0.5, 0.5)
    return [(what, tuple(members.tolist())) for what, members in found]


def _by_place(profile: Profile) -> dict[tuple[str, int], int]:
    """Map (host, n-th rank there) to the rank."""
    seen: Counter[str] = Counter()
    found = {}
    for entry in profile.ranks:
        found[entry.host, seen[entry.host]] = entry.rank
        seen[entry.host] += 1
    return found


def _pairs(links: Links) -> list[Pair]:
    return [(int(src), int(dst)) for src, dst in zip(links.src, links.dst, strict=True)]


def _named(places: dict[tuple[str, int], int], others: dict[tuple[str, int], int]) -> tuple[str, ...]:
    """Name the ``places`` that ``others`` lack: a missing host as a whole, else each rank."""
    left = {host for host, _ in others}
    missing = [place for place in places if place not in others]
    names = [f"rank {local} of host {host}" if host in left else f"host {host}" for host, local in missing]
    return tuple(dict.fromkeys(names))


def _changes(
    baseline: Profile, now: Profile, before: Indices, after: Indices, sensitivity: Sensitivity
) -> Iterator[tuple[Change, _Kind]]:
    """Yield the changes from rows ``before`` of the baseline to ``after`` of now, each with its kind."""
    old, new = baseline.links, now.links
    pairs = [(int(src), int(dst)) for src, dst in zip(new.src[after], new.dst[after], strict=True)]
    names = Names([entry.host for entry in now.ranks])
    judge = _Judge(baseline, before, pairs, names, sensitivity)
    yield from judge.changes(
        "bandwidth",
        floats([1 / old.beta_s_per_byte[before], 1 / new.beta_s_per_byte[after]]),
        floats([1 / old.beta_median_s_per_byte[before], 1 / new.beta_median_s_per_byte[after]]),
        np.hypot(sigmas(old, "bandwidth")[before], sigmas(new, "bandwidth")[after]),
    )
    yield from judge.changes(
        "latency",
        np.maximum([old.alpha_s[before], new.alpha_s[after]], NO_ALPHA_S),
        np.maximum([old.alpha_median_s[before], new.alpha_median_s[after]], NO_ALPHA_S),
        np.hypot(sigmas(old, "latency")[before], sigmas(new, "latency")[after]),
        new.flagged("preempted")[after],
    )


def _no_steadier_than_most(own: Floats) -> Floats:
    return floats(np.maximum(np.maximum(own, np.median(own)), _LEAST_SIGMA))


def _z(comparisons: int) -> float:
    return NormalDist().inv_cdf(1 - _FALSE_ALARMS_A_RUN / (2 * comparisons))


@dataclass(frozen=True)
class _Judge:
    """A judge of the links ``rows`` of a baseline; ``pairs`` are their ranks now, with their ``names``."""

    baseline: Profile
    rows: Indices
    pairs: Sequence[Pair]
    names: Names
    sensitivity: Sensitivity = BETWEEN_TWO

    def changes(
        self, quantity: Quantity, best: Floats, middle: Floats, sigma: Floats, unsure: Mask | None = None
    ) -> Iterator[tuple[Change, _Kind]]:
        """Yield the changes of one quantity, each with its kind.

        ``best`` and ``middle`` have two rows: the values of all links before, and now. A change for the worse
        is doubtful if its link is ``unsure``. Last comes the median of all links without a change, if that
        median moved too far to be called unchanged.
        """
        at_best, in_middle = np.log(best[1] / best[0]), np.log(middle[1] / middle[0])
        # The smaller of both; 0 if they disagree on the direction.
        smaller = np.sign(at_best) * np.minimum(np.abs(at_best), np.abs(in_middle))
        moved = floats(np.where(at_best * in_middle > 0, smaller, 0.0))
        allowed, limit_of_all = self._allowed(quantity, moved, best[0], sigma)
        least_step = _LEAST_ALPHA_S if quantity == "latency" else 0.0
        matters = np.abs(best[1] - best[0]) > least_step
        worse = moved < 0 if quantity == "bandwidth" else moved > 0
        doubtful = worse & (np.zeros_like(worse) if unsure is None else unsure)
        least = self.sensitivity.least[quantity]
        kinds: tuple[_Kind, ...] = ("counts", "doubtful")
        left = np.ones(len(self.pairs), dtype=np.bool_)
        for way, kind in itertools.product((-1.0, 1.0), kinds):
            slower = np.where(matters & (doubtful == (kind == "doubtful")), way * moved, 0.0)
            for what, rows in self.grouped(slower, allowed, _STILL * least, limit_of_all):
                left[rows] = False
                limit = limit_of_all if len(rows) > _MOST_OF * len(self.pairs) else np.median(allowed[rows])
                before, now = (float(np.median(values[rows])) for values in best)
                ratio = float(np.exp(np.copysign(limit, now - before)))
                links, own = tuple(self.pairs[row] for row in rows), tuple(self.rows[rows].tolist())
                yield Change(what, quantity, before, now, ratio, links, own), kind
        if left.any():
            before, now = (float(np.median(values[left])) for values in best)
            shift = float(np.log(now / before))
            if abs(shift) > least and abs(now - before) > least_step:
                ratio = float(np.exp(np.copysign(limit_of_all, shift)))
                links = tuple(itertools.compress(self.pairs, left))
                what = f"median of {plural(len(links), 'link')}"
                yield Change(what, quantity, before, now, ratio, links), "unsure"

    def _allowed(
        self, quantity: Quantity, moved: Floats, before: Floats, sigma: Floats
    ) -> tuple[Floats, float]:
        """Return how far the logarithm of each link, and of all together, may be from the baseline."""
        least, past = self.sensitivity.least[quantity], self.sensitivity.past.get(quantity)
        if past is not None:
            # The standard deviation of the difference of two runs is √2 times one run's standard deviation.
            sigma = np.maximum(sigma, np.sqrt(2) * past.wander[self.rows])
        chance = sigma if self.sensitivity.noise else np.zeros_like(sigma)
        most = max(least, self.sensitivity.most)
        allowed = np.clip(_z(2 * len(self.pairs)) * chance, least, most)
        limit_of_all = float(np.clip(_z(2) * np.median(chance), least, most))
        if past is not None:
            worse = moved < 0 if quantity == "bandwidth" else moved > 0
            allowed = np.where(past.worse[self.rows] & worse, _STILL * allowed, allowed)
            # A level that many runs agree on is more certain than the value of one run.
            level = past.level[self.rows]
            shift = np.where(level > 0, np.log(np.maximum(level, NO_ALPHA_S) / before), 0.0)
            lasts = (np.abs(shift) > least) & (shift * moved > 0)
            allowed = np.where(lasts, np.minimum(allowed, least), allowed)
            allowed = np.where(past.recalled[self.rows], 0.0, allowed)
        return floats(allowed), limit_of_all

    def grouped(
        self, slower: Floats, allowed: Floats, least: float, limit_of_all: float
    ) -> Iterator[tuple[str, Indices]]:
        """Yield the changed links: those of each changed part, then one by one."""
        left = slower > allowed
        for part in changed_parts(self.baseline, self.rows, slower, allowed, least, limit_of_all):
            if len(part.at) > 1:
                left[part.at] = False
                yield part.name, part.at
        for row in np.flatnonzero(left).tolist():
            yield self.names.link(*self.pairs[row]), np.array([row])


def below_expectation(profile: Profile, bytes_per_s: float) -> str:
    """Return one finding on links slower than ``bytes_per_s``, the slowest first; "" if there are none."""
    links = profile.links
    # The tolerance absorbs rounding, so that a rate equal to the typed one is accepted.
    slow = np.flatnonzero(1 / links.beta_s_per_byte < bytes_per_s * (1 - 1e-9))
    if not len(slow):
        return ""
    name = without_domain([entry.host for entry in profile.ranks])
    named = [
        f"{links.src[row]} → {links.dst[row]} ({name[profile.ranks[links.src[row]].host]} → "
        f"{name[profile.ranks[links.dst[row]].host]}) {rate_text(1 / links.beta_s_per_byte[row])}"
        for row in slow[np.argsort(-links.beta_s_per_byte[slow], kind="stable")][:_MOST_SLOW].tolist()
    ]
    more = len(slow) - _MOST_SLOW
    names = ", ".join(named) + (f" and {plural(more, 'more link')}" if more > 0 else "")
    return f"{len(slow)} of {plural(len(links.src), 'link')} below {rate_text(bytes_per_s)}: {names}"
