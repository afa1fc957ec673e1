"""Several collectives of a training step side by side: what each loses to the others.

A group is one collective, with its ranks, its size and the release time of its data. First each group is
planned as if it were alone, as libraries do, and all plans are simulated together on the links that they
share. Then all groups follow the routes of one linear program, which shares the links out among them. Then
each group is planned again, on a network whose links are slowed by the load of the other groups, unless the
groups are many. If all sizes and releases are equal, all groups are also planned at once. A plan is kept if
the whole step ends sooner, or if it ends no later and the groups lose less on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from probes.base import SILENT, Ints, Progress, UsageError
from synth.bounds import NetworkPart, Route, StepDemand, StepFlow, Upgrade, step_flow, upgrades
from synth.network import Network
from synth.networks import restricted
from synth.portfolio import SMALLEST_CHUNK_BYTES, CollectiveRequest, Request, cut, cut_again, planned
from synth.schedules import Schedule
from synth.scheduling import along_routes
from synth.simulation import replay, replay_together

__all__ = ["GroupTimes", "Price", "SideBySide", "StepGroup", "routed", "side_by_side"]

# Rounds in which each group is planned again. A round takes as long as planning all groups alone.
_ROUNDS = 2
# More groups are not planned again: a plan takes up to 15 s on 64 ranks. The routes of all 20 and 32 groups
# of two steps on dgx-h100:8 came within 1 and 8 % of perfect sharing.
_FEW_GROUPS = 12
# A plan must shorten the whole step by this share: less is rounding.
_GAIN = 1e-3
# Numbers of chunks in a group's buffer that are tried along routes, by how much sums go ahead of copies, as a
# share of the data, and the most sends of a group. On the steps of benchmarks/demands.py each number and each
# lead is the best of some.
_CHUNKS, _LEADS, _MOST_SENDS = (32, 128, 512), (0.0, 0.1, 1.0), 50_000
# A price is the time saved if a link, NIC or trunk carried this many more bytes per second.
_MORE_BYTES_PER_S = 1e9


@dataclass(frozen=True)
class StepGroup:
    """One collective of the step, of ``size_bytes`` as nccl-tests counts it, from ``release_s`` on."""

    name: str
    request: CollectiveRequest
    size_bytes: int
    release_s: float = 0.0


@dataclass(frozen=True)
class GroupTimes:
    """Seconds from a group's release to its end.

    ``alone_s``: no other group runs. ``ignoring_s``: all run, each planned as if it were alone.
    ``together_s``: all run, each planned with regard to the others.
    """

    alone_s: float
    ignoring_s: float
    together_s: float

    @property
    def lost(self) -> float:
        """``together_s`` as a multiple of ``alone_s``."""
        return self.together_s / self.alone_s if self.alone_s else 1.0


@dataclass(frozen=True)
class Price:
    """The seconds that a step, planned again, ends earlier if the part is faster by ``more_bytes_per_s``."""

    part: NetworkPart
    more_bytes_per_s: float
    saves_s: float


@dataclass(frozen=True)
class SideBySide:
    """The plans of a step, the times of its groups, and what faster parts would save.

    ``singly`` are the plans of the groups as if each were alone, ``schedules`` those planned together. The
    whole step ends at ``ignoring_s`` with the former, and at ``together_s`` with the latter. It would end at
    ``least_s`` if data flowed in arbitrarily fine pieces and without latency.
    """

    groups: tuple[StepGroup, ...]
    singly: tuple[Schedule, ...]
    schedules: tuple[Schedule, ...]
    times: tuple[GroupTimes, ...]
    ignoring_s: float
    together_s: float
    least_s: float
    prices: tuple[Price, ...]


def side_by_side(
    network: Network,
    groups: Sequence[StepGroup],
    *,
    seed: int = 0,
    progress: Progress = SILENT,
) -> SideBySide:
    """Return plans of all groups on one network, their times, and the prices of its parts.

    Raises UsageError if there is no group or a group's collective makes no sense.
    """
    if not groups:
        raise UsageError("expected at least one group")
    again = _ROUNDS * len(groups) if len(groups) <= _FEW_GROUPS else 0
    steps = len(groups) + again + 2
    known: dict[tuple[object, ...], tuple[Schedule, Ints]] = {}
    alone = []
    for at, group in enumerate(groups):
        progress.update(at, steps, group.name)
        alone.append(_alone(network, group, seed, known))
    demands = _demands(network, groups)
    progress.update(len(groups), steps, "routes")
    flow, faster = upgrades(network, demands, _MORE_BYTES_PER_S)
    step = _Step(network, groups, [replay(one).time_s for one in alone])
    best, before, ignoring = alone, alone, step.ends_s(alone)
    ends_s = ignoring
    along, along_s = _along(network, demands, flow)
    if _is_better(step.cost(along_s), step.cost(ends_s)):
        best, ends_s = along, along_s
    for number in range(again):
        progress.update(len(groups) + 1 + number, steps, groups[number % len(groups)].name)
        if number % len(groups) == 0:
            if (number and best is before) or step.cost(ends_s)[1] <= 1 + _GAIN:
                break
            before = best
        best, ends_s = step.better(best, ends_s, number, seed)
    progress.update(steps - 1, steps, "prices")
    released_s = [group.release_s for group in groups]
    prices = _prices(demands, best, max(ends_s), faster)
    times = [
        GroupTimes(one_s, beside_s - release_s, end_s - release_s)
        for one_s, beside_s, end_s, release_s in zip(step.alone_s, ignoring, ends_s, released_s, strict=True)
    ]
    return SideBySide(
        tuple(groups),
        tuple(alone),
        tuple(best),
        tuple(times),
        max(ignoring),
        max(ends_s),
        flow.end_s,
        prices,
    )


def _prices(
    demands: Sequence[StepDemand], schedules: Sequence[Schedule], end_s: float, faster: Sequence[Upgrade]
) -> tuple[Price, ...]:
    """Return what each upgrade saves, by the better of known plans and plans along its routes."""
    found = []
    release_s = [demand.release_s for demand in demands]
    for one in faster:
        moved = [replace(plan, network=one.network, outcome=None) for plan in schedules]
        known_s = max(timing.time_s for timing in replay_together(one.network, moved, release_s))
        saves_s = end_s - min(known_s, max(_along(one.network, demands, one.flow)[1]))
        if saves_s > _GAIN * end_s:
            found.append(Price(one.part, _MORE_BYTES_PER_S, saves_s))
    return tuple(sorted(found, key=lambda price: -price.saves_s))


def routed(network: Network, groups: Sequence[StepGroup]) -> tuple[list[Schedule], list[float]]:
    """Return plans along the routes of the step's linear program, and when each group ends.

    The plans shown are those with which the step ends soonest, of several numbers of chunks and orders.
    """
    demands = _demands(network, groups)
    return _along(network, demands, step_flow(network, demands))


def _demands(network: Network, groups: Sequence[StepGroup]) -> list[StepDemand]:
    found = []
    for group in groups:
        shape, chunk_bytes = cut(_request(network, group), 1)
        found.append(StepDemand(shape, chunk_bytes, group.release_s))
    return found


def _along(
    network: Network, demands: Sequence[StepDemand], flow: StepFlow
) -> tuple[list[Schedule], list[float]]:
    """Return the best plans along the flow's routes, and when each group ends."""
    found = []
    release_s = [demand.release_s for demand in demands]
    sums = any(route.into and route.out for routes in flow.routes for route in routes)
    for chunks in _CHUNKS:
        cuts = [
            _cut_into(demand, routes, chunks) for demand, routes in zip(demands, flow.routes, strict=True)
        ]
        for lead in _LEADS if sums else _LEADS[:1]:
            plans = [
                along_routes(network, demand.collective, demand.chunk_bytes, routes, parts=parts, lead=lead)
                for demand, routes, parts in zip(demands, flow.routes, cuts, strict=True)
            ]
            timings = replay_together(network, plans, release_s)
            ends_s = [max(one.time_s, start_s) for one, start_s in zip(timings, release_s, strict=True)]
            found.append((plans, ends_s))
    return min(found, key=lambda one: max(one[1]))


def _cut_into(demand: StepDemand, routes: Sequence[Route], chunks: int) -> int:
    """Return into how many parts each chunk is cut for about ``chunks`` in a buffer."""
    shape = demand.collective
    links = max((len(route.into) + len(route.out) for route in routes), default=1)
    most = min(demand.chunk_bytes // SMALLEST_CHUNK_BYTES, _MOST_SENDS // (shape.chunks * links))
    return max(1, min(chunks // shape.total_bytes(1), most))


@dataclass(frozen=True)
class _Step:
    """The groups of a step on their network, and the seconds that each takes alone."""

    network: Network
    groups: Sequence[StepGroup]
    alone_s: list[float]

    def ends_s(self, schedules: Sequence[Schedule]) -> list[float]:
        """Return when each group ends if all run at once."""
        release_s = [group.release_s for group in self.groups]
        timings = replay_together(self.network, schedules, release_s)
        return [max(timing.time_s, start_s) for timing, start_s in zip(timings, release_s, strict=True)]

    def cost(self, ends_s: Sequence[float]) -> tuple[float, float]:
        """Return (end of the whole, mean loss of the groups)."""
        losses = [
            (end_s - group.release_s) / alone_s if alone_s else 1.0
            for end_s, group, alone_s in zip(ends_s, self.groups, self.alone_s, strict=True)
        ]
        return max(ends_s), float(np.mean(losses))

    def better(
        self, best: list[Schedule], ends_s: list[float], number: int, seed: int
    ) -> tuple[list[Schedule], list[float]]:
        """Return the best plans after trial ``number``, and when each group ends."""
        for trial in self.trials(best, number, seed):
            trial_s = self.ends_s(trial)
            if _is_better(self.cost(trial_s), self.cost(ends_s)):
                best, ends_s = trial, trial_s
        return best, ends_s

    def trials(self, best: list[Schedule], number: int, seed: int) -> list[list[Schedule]]:
        """Return the plans of trial ``number``: one group planned again; first also all planned at once."""
        at = number % len(self.groups)
        slowed, found = self._slowed(best, at), []
        if (slowed.beta_s_per_byte > self.network.beta_s_per_byte)[best[at].link].any():
            made = _planned(slowed, self.groups[at], seed)
            again = replace(made, network=self.network, outcome=None)
            found.append([again if one == at else plan for one, plan in enumerate(best)])
        first = self.groups[0]
        distinct = {(group.size_bytes, group.release_s) for group in self.groups}
        if number == 0 and len(self.groups) > 1 and len(distinct) == 1:
            whole = StepGroup("all", first.request, first.size_bytes, first.release_s)
            requests = tuple(group.request for group in self.groups)
            at_once = _planned(self.network, whole, seed, requests)
            if not at_once.exchanges:
                found.append(_parts(at_once))
        return found

    def _slowed(self, schedules: Sequence[Schedule], at: int) -> Network:
        """Return the network with each link slowed by the load of the other groups on it and its ports."""
        network = self.network
        busy_s = np.zeros(network.links + len(network.ports))
        for number, one in enumerate(schedules):
            if number != at:
                busy_s += network.busy_s(one.link, one.chunk_bytes)
        return network.slowed(busy_s / max(max(self.alone_s), float(busy_s.max(initial=0.0)), 1e-30))


def _is_better(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return whether ``one`` ends the whole step sooner, or no later and with less mean loss."""
    return one[0] < other[0] * (1 - _GAIN) or (one[0] <= other[0] and one[1] < other[1] * (1 - _GAIN))


def _alone(
    network: Network, group: StepGroup, seed: int, known: dict[tuple[object, ...], tuple[Schedule, Ints]]
) -> Schedule:
    """Return the plan of a group alone: that of an earlier group with equal links and size, if it has one.

    ``known`` holds such plans, with the links between their ranks.
    """
    asked = group.request
    if not asked.members:
        return _planned(network, group, seed)
    inner, rows = restricted(network, asked.members)
    key = (asked.kind, asked.members.index(asked.root), group.size_bytes, *inner.columns)
    if key in known:
        other, other_rows = known[key]
        shape, chunk_bytes = cut_again(_request(network, group), other.collective, 1)
        link = rows[np.searchsorted(other_rows, other.link)]
        return replace(other, collective=shape, chunk_bytes=chunk_bytes, link=link, outcome=None)
    found = _planned(network, group, seed)
    if not found.uses_switches and np.isin(found.link, rows).all():
        known[key] = found, rows
    return found


def _planned(
    network: Network,
    group: StepGroup,
    seed: int,
    requests: tuple[CollectiveRequest, ...] = (),
) -> Schedule:
    request = _request(network, group, requests)
    return planned(replace(request, seed=seed, jobs=0, listed=True, solving=False)).listed


def _request(network: Network, group: StepGroup, requests: tuple[CollectiveRequest, ...] = ()) -> Request:
    return Request(
        network,
        group.request.kind,
        size_bytes=group.size_bytes,
        collectives=requests or (group.request,),
    )


def _parts(schedule: Schedule) -> list[Schedule]:
    """Split a schedule of several collectives into one schedule for each."""
    found, first = [], 0
    for part in schedule.collective.parts:
        rows = (schedule.chunk >= first) & (schedule.chunk < first + part.chunks)
        found.append(
            replace(
                schedule,
                collective=part,
                chunk=schedule.chunk[rows] - first,
                link=schedule.link[rows],
                op=schedule.op[rows],
                stream=schedule.stream[:0],
                outcome=None,
            )
        )
        first += part.chunks
    return found
