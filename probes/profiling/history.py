"""The history artifact: repeated measurements of one network, and the events reported about it.

A run is one row of values for the links of the baseline. The oldest runs and events are dropped, so that the
size of a history is bounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from probes.base import Floats, Ints, Mask, floats
from probes.link_costs import Profile
from probes.profiling.drift import Quantity, matched
from probes.statistics import MAD_TO_SIGMA, Steady

__all__ = [
    "MOST_EVENTS",
    "MOST_RUNS",
    "RECENT_RUNS",
    "Event",
    "History",
    "begun",
    "lasting_level",
    "wander",
    "with_run",
]

MOST_RUNS = 100
MOST_EVENTS = 500
# Most values of a column over all runs: some 10 MB of text.
_MOST_VALUES = 1_000_000
_FEWEST_RUNS = 2
# A change is lasting if five of the last RECENT_RUNS runs agree. A new level is certain after _LEARN more
# runs. Older values say nothing about a link's current state.
RECENT_RUNS, _LEARN = 6, 40
# A series needs this many values before their differences give its deviation.
_FEWEST_VALUES = 5
_DIGITS = 5
# Bounds on costs keep rates (1 / cost) finite. _LAST_S is the last second of the year 9999.
_LEAST_COST, _MOST_COST, _LAST_S = 1e-30, 1e30, 253_402_300_799
_TIMES = ("at_s", "bandwidth_since_s", "latency_since_s", "measured_s")
_EXPECTED_COST = f"expected 0, or a number from {_LEAST_COST:g} to {_MOST_COST:g}"
_EXPECTED_TIME = f"expected seconds from 0 to {_LAST_S}"


@dataclass(frozen=True)
class Event:
    """A change between two runs, at ``at_s`` (seconds since 1970), in words.

    ``kind`` is drift (worse than the baseline), recovered (as good as the baseline again), gone (ranks of the
    baseline are missing) or schedule (a different schedule is now in use).
    """

    at_s: float
    kind: Literal["drift", "recovered", "gone", "schedule"]
    text: str


@dataclass(frozen=True, eq=False)
class History:
    """Repeated measurements of the links between the same ranks; the oldest run is first.

    ``hosts`` has the host of each rank, ``src`` and ``dst`` one value per link, ``at_s`` one per run (seconds
    since 1970). ``beta_s_per_byte`` and ``alpha_s`` hold the value of each link, run after run, 0 if it was
    not measured. ``bandwidth_since_s`` and ``latency_since_s`` are the time when each link was found worse
    than the baseline (0: it is not). ``measured_s`` is the time of each link's last measurement (0: never).
    ``changed_s`` is the time of the last change (0: never): a run in which ranks were missing, or in which a
    link differed that had been measured since the change before. ``searched_s_per_byte`` are the betas for
    which a new schedule was last searched; empty if none was.
    """

    hosts: tuple[str, ...]
    src: Ints
    dst: Ints
    at_s: Floats
    beta_s_per_byte: Floats
    alpha_s: Floats
    bandwidth_since_s: Floats
    latency_since_s: Floats
    measured_s: Floats
    changed_s: float
    searched_s_per_byte: Floats
    events: tuple[Event, ...] = ()

    @property
    def links(self) -> int:
        return len(self.src)

    @property
    def runs(self) -> int:
        return len(self.at_s)

    def series(self, quantity: Quantity, link: int) -> Floats:
        """Return a link's values in the runs that measured it, in bytes/s or seconds."""
        if quantity == "bandwidth":
            values = self.beta_s_per_byte[link :: self.links]
            return floats(1 / values[values > 0])
        values = self.alpha_s[link :: self.links]
        return floats(values[values > 0])

    def since_s(self, quantity: Quantity) -> Floats:
        """Return when each link was found worse than the baseline; 0 if it is not."""
        return self.bandwidth_since_s if quantity == "bandwidth" else self.latency_since_s

    def known(self) -> Mask:
        """Return the mask of links measured in the last ``RECENT_RUNS`` runs and since the last change."""
        recent_s = float(self.at_s[-RECENT_RUNS:][0]) if self.runs else math.inf
        return np.asarray(self.measured_s >= max(recent_s, self.changed_s), dtype=np.bool_)

    def is_of(self, baseline: Profile) -> bool:
        """Return whether the runs measured the ranks and links of ``baseline``."""
        return (
            self.hosts == tuple(entry.host for entry in baseline.ranks)
            and np.array_equal(self.src, baseline.links.src)
            and np.array_equal(self.dst, baseline.links.dst)
        )

    def problems(self) -> list[str]:
        """Return every inconsistency, as ``path: what is wrong``."""
        found = [] if self.hosts else ["hosts: expected at least 1 rank, found none"]
        lengths = {
            "beta_s_per_byte": self.links * self.runs,
            "alpha_s": self.links * self.runs,
            "bandwidth_since_s": self.links,
            "latency_since_s": self.links,
            "measured_s": self.links,
            "searched_s_per_byte": self.links if len(self.searched_s_per_byte) else 0,
        }
        for name, length in {"dst": self.links, **lengths}.items():
            if len(getattr(self, name)) != length:
                found.append(f"{name}: expected {length} values, found {len(getattr(self, name))}")
        for name in ("src", "dst"):
            column = getattr(self, name)
            lost = np.flatnonzero((column < 0) | (column >= len(self.hosts)))[:5].tolist()
            found += [f"{name}[{row}]: there is no rank {column[row]}" for row in lost]
        for name in ("beta_s_per_byte", "alpha_s", "searched_s_per_byte"):
            column = getattr(self, name)
            right = (column == 0) | ((column >= _LEAST_COST) & (column <= _MOST_COST))
            found += [
                f"{name}[{row}]: {_EXPECTED_COST}, found {column[row]}" for row in np.flatnonzero(~right)[:5]
            ]
        times = {name: getattr(self, name) for name in _TIMES}
        times["changed_s"] = floats([self.changed_s])
        times["events"] = floats([event.at_s for event in self.events])
        for name, column in times.items():
            bad = np.flatnonzero(~((column >= 0) & (column <= _LAST_S)))[:5]
            last = ".at_s" if name == "events" else ""
            found += [f"{name}[{row}]{last}: {_EXPECTED_TIME}, found {column[row]}" for row in bad]
        if (np.diff(self.at_s) < 0).any():
            found.append("at_s: expected runs in the order of time")
        return found


def begun(baseline: Profile) -> History:
    """Return the history of the links of ``baseline`` before the first run."""
    links = len(baseline.links.src)
    return History(
        hosts=tuple(entry.host for entry in baseline.ranks),
        src=baseline.links.src,
        dst=baseline.links.dst,
        at_s=floats([]),
        beta_s_per_byte=floats([]),
        alpha_s=floats([]),
        bandwidth_since_s=floats(np.zeros(links)),
        latency_since_s=floats(np.zeros(links)),
        measured_s=floats(np.zeros(links)),
        changed_s=0.0,
        searched_s_per_byte=floats([]),
    )


def with_run(history: History, baseline: Profile, now: Profile, at_s: float) -> History:
    """Return ``history`` with the values of ``now`` for the links of ``baseline`` added.

    The oldest runs beyond the bound are dropped. Values are rounded to five digits. If an end of a link
    waited for a core, its latency reflects the host's load and counts as not measured.
    """
    alpha_s = np.where(now.links.flagged("preempted"), 0.0, now.links.alpha_s)
    rows = matched(baseline, now)
    kept = max(_FEWEST_RUNS, min(MOST_RUNS, _MOST_VALUES // max(1, history.links)))

    def appended(column: Floats, values: Floats) -> Floats:
        row = _rounded(np.where(rows >= 0, values[rows], 0.0))
        return floats(np.concatenate([column, row])[-kept * history.links :])

    # The clock may have been set back.
    at_s = max(at_s, float(history.at_s[-1])) if history.runs else at_s
    return replace(
        history,
        at_s=floats([*history.at_s, at_s][-kept:]),
        measured_s=floats(np.where(rows >= 0, at_s, history.measured_s)),
        beta_s_per_byte=appended(history.beta_s_per_byte, now.links.beta_s_per_byte),
        alpha_s=appended(history.alpha_s, floats(alpha_s)),
    )


def wander(history: History, quantity: Quantity) -> Floats:
    """Return the standard deviation of the logarithm of each link's value from run to run; 0 if unknown.

    The estimate is the median of the differences of successive values, which a change of the level does not
    move. Every link gets at least the median link's deviation.
    """
    own = np.array([_wander(history.series(quantity, link)) for link in range(history.links)])
    known = own[np.isfinite(own)]
    least = float(np.median(known)) if len(known) else 0.0
    return floats(np.where(np.isfinite(own), np.maximum(own, least), least))


def lasting_level(
    history: History, quantity: Quantity, link: int, *, expected: float, sigma: float, least: float
) -> float:
    """Return a link's level in the last runs if that differs from ``expected``; else 0.

    Five of six runs must agree on the level. It must differ from ``expected`` by more than ``least`` (in the
    logarithm), and by more than six standard errors of a median of runs whose standard deviation is ``sigma``
    (`probes.statistics.changepoint`).
    """
    steady = Steady(
        window=RECENT_RUNS, learn=_LEARN, effect=float(np.expm1(least)), level=expected, sigma=sigma
    )
    moved = [steady.add(value) for value in history.series(quantity, link).tolist()]
    return float(steady.level or 0.0) if any(moved) else 0.0


def _wander(values: Floats) -> float:
    if len(values) < _FEWEST_VALUES:
        return math.nan
    steps = np.abs(np.diff(np.log(values)))
    return float(MAD_TO_SIGMA * np.median(steps) / np.sqrt(2))


def _rounded(values: Floats) -> Floats:
    return floats([float(f"{value:.{_DIGITS}g}") for value in values.tolist()])
