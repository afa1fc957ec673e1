"""Verdict on one run, compared with the baseline and with earlier runs.

A change for the worse stands if it exceeds the noise of the links, as the profiles and the history show it,
or exceeds a given share. It is lasting if the level of the last runs has shifted
(`probes.statistics.changepoint`). A change that stood in the last run and no longer does has recovered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from probes.base import Floats, Mask, floats
from probes.link_costs import Profile
from probes.profiling import history as runs
from probes.profiling.combine import recalled
from probes.profiling.drift import (
    LATENCY_EFFECT,
    Change,
    Drift,
    Past,
    Quantity,
    Sensitivity,
    compare,
    matched,
    sigmas,
    together,
    written,
)
from probes.profiling.history import Event, History

__all__ = ["EFFECT", "Recovery", "Standing", "WatchVerdict", "judged", "with_events"]

# Least share of the bandwidth whose loss matters: nobody acts on a smaller loss, however certain it is.
EFFECT = 0.08
# Largest change, as a logarithm, that noise can explain: for bandwidth, a loss of two thirds.
_MOST = float(np.log(3.0))
# A latency that rose by this factor is noted even if it costs the schedule too little to matter.
_MUCH = 2.0


@dataclass(frozen=True)
class Standing:
    """A present change for the worse: found at ``since_s``, ``new`` in this run, or ``lasting``.

    ``recalled`` of its links were worse when last measured, and were not measured in this run.
    """

    change: Change
    since_s: float
    new: bool
    lasting: bool
    recalled: int


@dataclass(frozen=True)
class Recovery:
    """A change for the worse that ended: its value in the baseline and now (bytes/s or s), and its start."""

    what: str
    quantity: Quantity
    before: float
    now: float
    since_s: float
    rows: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.quantity} {written(self.quantity, self.now)}, "
            f"{self.now / self.before:.0%} of the baseline"
        )


@dataclass(frozen=True, eq=False)
class WatchVerdict:
    """Differences of a run from the baseline, standing and recovered changes, and the updated history.

    ``harmless`` are changes for the worse by a factor of at least 2 that do not matter.
    """

    drift: Drift
    standing: tuple[Standing, ...]
    recovered: tuple[Recovery, ...]
    history: History
    harmless: tuple[Change, ...] = ()

    @property
    def changes(self) -> tuple[Change, ...]:
        """Present differences from the baseline: standing changes, and improvements."""
        better = (change for change in self.drift.changes if not change.worse)
        return (*(one.change for one in self.standing), *better)


def judged(
    history: History,
    baseline: Profile,
    now: Profile,
    at_s: float,
    share: float | None = None,
    matters: Callable[[Change], bool] = lambda change: True,
) -> WatchVerdict:
    """Judge ``now``, measured at ``at_s`` (seconds since 1970), after the runs of ``history``.

    A link has drifted if it lost more than ``share`` of its bandwidth. Without ``share``, it must have lost
    more than 8 %, and more than the noise of both profiles and between runs explains; noise never explains
    two thirds. Latency is always judged by noise, and must have risen by a quarter. Only changes for the
    worse that ``matters`` accepts stand. A standing change stays until it is half way back, so that it does
    not flap. A latency whose ends waited for cores is doubtful: it neither stands nor has recovered. A link
    that was worse and is not measured now keeps its last value.
    """
    after = runs.with_run(history, baseline, now, at_s)
    # A link last measured before the last change may have changed then, so its difference is not new.
    unexplained = history.measured_s >= history.changed_s
    measured = np.asarray(matched(baseline, now) >= 0, dtype=np.bool_)
    now = recalled(baseline, now, history)
    least: dict[Quantity, float] = {
        "bandwidth": -float(np.log1p(-(EFFECT if share is None else share))),
        "latency": float(np.log1p(LATENCY_EFFECT)),
    }
    past = {name: _past(after, baseline, now, name, least[name], ~measured) for name in _QUANTITIES}
    by_noise = compare(baseline, now, Sensitivity(least, past=past, most=_MOST))
    drift = by_noise
    if share is not None:
        by_share = compare(baseline, now, Sensitivity(least, noise=False, past=past))
        changes = [change for change in by_share.changes if change.quantity == "bandwidth"]
        changes += [change for change in by_noise.changes if change.quantity == "latency"]
        drift = replace(by_noise, changes=tuple(changes))
    missing = by_noise.unmeasured + by_noise.compared - int(measured.sum())
    drift = replace(drift, compared=int(measured.sum()), unmeasured=missing)
    doubtful = (change for change in drift.doubtful if change.times >= _MUCH or matters(change))
    drift = replace(drift, doubtful=tuple(doubtful))
    every = [change for change in drift.changes if change.worse]
    worse = [change for change in every if matters(change)]
    harmless = tuple(change for change in every if change not in worse and change.times >= _MUCH)
    standing, recovered = [], []
    changed = bool(drift.gone)
    for quantity in _QUANTITIES:
        since_s = history.since_s(quantity)
        mine = [change for change in worse if change.quantity == quantity]
        worse_rows = _rows_of(mine)
        unsure = _rows_of([change for change in by_noise.doubtful if change.quantity == quantity])
        standing += [_standing(change, since_s, past[quantity], at_s, measured) for change in mine]
        back = np.flatnonzero((since_s > 0) & measured)
        gone = [row for row in back.tolist() if row not in worse_rows and row not in unsure]
        recovered += _recoveries(quantity, gone, baseline, now, since_s)
        different = [*gone, *(row for row in worse_rows if not since_s[row])]
        changed = changed or bool(unexplained[different].any())
        after = _with_since(after, quantity, worse_rows, set(gone), at_s)
    if changed:
        after = replace(after, changed_s=float(after.at_s[-1]))
    return WatchVerdict(drift, tuple(standing), tuple(recovered), after, harmless)


_QUANTITIES: tuple[Quantity, ...] = ("bandwidth", "latency")


def with_events(history: History, events: Sequence[Event]) -> History:
    """Return ``history`` with more events; the oldest beyond the bound are dropped."""
    return replace(history, events=(*history.events, *events)[-runs.MOST_EVENTS :])


def _past(
    history: History, baseline: Profile, now: Profile, quantity: Quantity, least: float, missing: Mask
) -> Past:
    """Return the evidence of earlier runs; only links that now differ from the baseline get a level."""
    wander = runs.wander(history, quantity)
    expected, found = _values(baseline, quantity), _values(now, quantity)
    sigma = np.maximum(sigmas(baseline.links, quantity), wander)
    rows = matched(baseline, now)
    level = np.zeros(history.links)
    away = np.abs(np.log(found[rows] / expected)) > least
    for link in np.flatnonzero((rows >= 0) & away).tolist():
        level[link] = runs.lasting_level(
            history,
            quantity,
            link,
            expected=float(expected[link]),
            sigma=float(sigma[link]),
            least=least,
        )
    worse_rows = np.asarray(history.since_s(quantity) > 0, dtype=np.bool_)
    return Past(wander, floats(level), worse_rows, worse_rows & missing)


def _values(profile: Profile, quantity: Quantity) -> Floats:
    if quantity == "bandwidth":
        return floats(1 / profile.links.beta_s_per_byte)
    return floats(np.maximum(profile.links.alpha_s, 1e-12))


def _rows_of(changes: Sequence[Change]) -> set[int]:
    return {row for change in changes for row in change.rows}


def _standing(change: Change, since_s: Floats, past: Past, at_s: float, measured: Mask) -> Standing:
    rows = list(change.rows)
    known = since_s[rows][since_s[rows] > 0]
    level = past.level[rows]
    below = (level > 0) & ((level < change.before) == (change.now < change.before))
    return Standing(
        change,
        since_s=float(known.min()) if len(known) else at_s,
        new=len(known) < len(rows),
        lasting=bool(below.mean() > 0.5),
        recalled=len(rows) - int(measured[rows].sum()),
    )


def _recoveries(
    quantity: Quantity, rows: Sequence[int], baseline: Profile, now: Profile, since_s: Floats
) -> list[Recovery]:
    row_now = matched(baseline, now)
    before, found = _values(baseline, quantity), _values(now, quantity)
    return [
        Recovery(
            what,
            quantity,
            float(np.median(before[list(members)])),
            float(np.median(found[row_now[list(members)]])),
            float(since_s[list(members)].min()),
            members,
        )
        for what, members in together(baseline, rows)
    ]


def _with_since(
    history: History, quantity: Quantity, worse_rows: set[int], back: set[int], at_s: float
) -> History:
    column = np.array(history.since_s(quantity))
    for row in worse_rows:
        column[row] = column[row] or at_s
    column[list(back)] = 0.0
    if quantity == "bandwidth":
        return replace(history, bandwidth_since_s=floats(column))
    return replace(history, latency_since_s=floats(column))
