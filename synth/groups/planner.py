"""Planner of DS-Sync's groups: the paper's pattern if it works, else the fastest pattern that does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from probes.base import plural, some
from synth.errors import NotApplicableError
from synth.groups.artifact import MOST_PERIOD, MOST_RANKS, Division, Groups, PatternName
from synth.groups.consensus_rate import consensus, parties
from synth.groups.costs import AveragingCosts, require_all_pairs
from synth.groups.patterns import RackLayout, alternating, is_butterfly, mixed_radix, representatives
from synth.groups.racks import find_racks, slow_parts
from synth.network import Network

__all__ = ["PATTERNS", "Planned", "adjust_groups", "disagreement", "pattern_named", "plan_groups"]

PATTERNS: tuple[PatternName, ...] = ("representatives", "alternating", "butterfly", "mixed_radix")


@dataclass(frozen=True, eq=False)
class Planned:
    """The groups, remarks on how they were found, and whether they changed."""

    groups: Groups
    remarks: tuple[str, ...]
    changed: bool = True


def plan_groups(
    network: Network,
    size_bytes: int,
    *,
    racks: tuple[tuple[int, ...], ...] | None = None,
    layers: int = 1,
    period: int | None = None,
    pattern: PatternName | None = None,
) -> Planned:
    """Return the groups for averaging ``size_bytes`` on ``network``, iteration by iteration.

    Racks are detected unless given. Without ``pattern``, the paper's pattern is used if it splits the ranks
    into groups and makes all ranks agree. Otherwise, unless ``period`` is given, the fastest predicted
    pattern that makes all ranks agree is used. A faster pattern alone is no reason to replace the paper's
    pattern: it may agree more slowly, and how much agreement training needs is not known. ``period`` fixes
    the number of iterations of a period. Raises NotApplicableError for a network without a link between every
    two ranks, and for a pattern by which ranks never agree (rho = 1), naming ranks that never exchange
    anything.
    """
    if not 2 <= network.ranks <= MOST_RANKS:
        raise NotApplicableError(f"expected 2 to {MOST_RANKS} ranks, found {network.ranks}")
    require_all_pairs(network)
    remarks: tuple[str, ...] = ()
    if racks is None:
        racks, remarks = find_racks(network)
    layout = slow_parts(network, racks)
    costs = AveragingCosts(network, racks, size_bytes, layers)
    name, iterations, why = _chosen(costs, layout, pattern, period)
    return Planned(_groups(costs, layout, name, iterations), remarks + why)


def adjust_groups(previous: Groups, network: Network) -> Planned:
    """Return ``previous`` for a network measured again, with new groups only if slow ranks or racks changed.

    Hysteresis keeps noise from changing the slow ranks and racks (Sec. III-A, 3). Raises NotApplicableError
    if the ranks are on other hosts than before.
    """
    if network.hosts != previous.network.hosts:
        raise NotApplicableError(
            f"expected the {plural(previous.ranks, 'rank')} of the previous groups on the same hosts, found "
            f"{plural(network.ranks, 'rank')} on {some(sorted(set(network.hosts)), 4)}"
        )
    before = RackLayout(previous.racks, previous.slow_racks, previous.slow_ranks)
    now = slow_parts(network, previous.racks, before)
    costs = AveragingCosts(network, previous.racks, previous.size_bytes, previous.layers)
    if now == before:
        return Planned(
            replace(previous, network=network, predicted_s=costs.mean_s(previous.iterations)), (), False
        )
    name, iterations, why = _chosen(costs, now, None, None)
    return Planned(_groups(costs, now, name, iterations), why)


def pattern_named(name: PatternName, layout: RackLayout, period: int | None = None) -> tuple[Division, ...]:
    """Return the divisions of a pattern; raise NotApplicableError if the layout does not fit it."""
    if name in ("representatives", "alternating"):
        made: Callable[[RackLayout, int | None], tuple[Division, ...]] = (
            representatives if name == "representatives" else alternating
        )
        return made(layout, period)
    iterations = mixed_radix(layout)
    if name == "butterfly" and not is_butterfly(iterations):
        raise NotApplicableError(
            f"butterfly: expected racks, and ranks in each, in powers of two, found {len(layout.racks)} of "
            f"{len(layout.racks[0])}"
        )
    if period is not None and period % len(iterations):
        raise NotApplicableError(
            f"{name}: averages exactly in {plural(len(iterations), 'iteration')}; expected a multiple as the "
            f"period, found {period}"
        )
    return iterations * ((period or len(iterations)) // len(iterations))


def disagreement(ranks: int, iterations: tuple[Division, ...]) -> str:
    """Return the reason why ranks never agree, or "" if they do."""
    apart = parties(ranks, iterations)
    if len(apart) == 1:
        return ""
    named = " and ".join(f"{plural(len(one), 'rank')} ({some(list(map(str, one)), 4)})" for one in apart[:2])
    return f"rho = 1, replicas never agree: {named} exchange nothing in any iteration of the period"


def _chosen(
    costs: AveragingCosts, layout: RackLayout, pattern: PatternName | None, period: int | None
) -> tuple[PatternName, tuple[Division, ...], tuple[str, ...]]:
    """Return (name, divisions, remarks); a remark says why the paper's pattern was replaced."""
    ranks = costs.network.ranks
    if period is not None and not 1 <= period <= MOST_PERIOD:
        raise NotApplicableError(
            f": expected 1 to {MOST_PERIOD} iterations, found {period}", argument="period"
        )
    first: PatternName = pattern or "representatives"
    iterations = pattern_named(first, layout, period)
    wrong = disagreement(ranks, iterations)
    if wrong and (pattern is not None or period is not None):
        raise NotApplicableError(
            f"{first}: {wrong}", hint="Leave out the pattern and the period: one that agrees is found."
        )
    undivided = all(len(division) == 1 for division in iterations)
    if not (wrong or undivided) or pattern is not None or period is not None:
        return first, iterations, ()
    found = [] if wrong else [(costs.mean_s(iterations), 0, first, iterations)]
    for place, name in enumerate(PATTERNS[1:], start=1):
        try:
            others = pattern_named(name, layout)
        except NotApplicableError:
            continue
        if not disagreement(ranks, others):
            found.append((costs.mean_s(others), place, name, others))
    # The alternating pattern connects all ranks, so ``found`` is never empty.
    _, _, name, chosen = min(found, key=lambda one: one[:2])
    if name == first:
        return first, iterations, ()
    why = wrong or "it would average all ranks in one group"
    return name, chosen, (f"not the paper's pattern: {why}; {name.replace('_', ' ')} instead",)


def _groups(
    costs: AveragingCosts, layout: RackLayout, name: PatternName, iterations: tuple[Division, ...]
) -> Groups:
    found = consensus(costs.network.ranks, iterations)
    return Groups(
        network=costs.network,
        racks=layout.racks,
        slow_racks=layout.slow_racks,
        slow_ranks=layout.slow_ranks,
        pattern=name,
        iterations=iterations,
        size_bytes=costs.size_bytes,
        layers=costs.layers,
        rho=found.rho,
        distance=found.distance,
        predicted_s=costs.mean_s(iterations),
    )
