"""Mixtures: each chunk follows the plan of one of several schedules.

A *plan* is the way of one chunk: its sends, and what each of them waits for. Plans that use a link early and
plans that use it late share it. Packing (`synth.scheduling.packing`) gives each chunk a plan, and times for
its sends, so that all chunks end within a given time. Rerouting (`synth.scheduling.rerouting`) gives chunks
other trees, which join the plans of the next step. The time is lowered step by step as long as the schedules
become faster. List scheduling then orders the sends by their planned times.

If translations map the network to itself, the chunks take the images of plans in turn.

An all_reduce also gets plans of its own: dimension by dimension (`synth.scheduling.dimension_sends`), and,
where all links have about the same latency, in few rounds with few sends (`synth.scheduling.rounds`). Packing
has prices for each link at each time. Plans that are cheap at the prices of one step join the next (column
generation).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, bytes_of, floats, ints, offsets
from synth.collective import Collective
from synth.network import Network
from synth.networks import found_symmetry
from synth.schedules import COPY, Schedule
from synth.scheduling.chunk_plans import ChunkPlan, plans_of
from synth.scheduling.dimension_sends import dimension_sends
from synth.scheduling.list_scheduling import in_order, line_up
from synth.scheduling.packing import ChunkPacking, PackedChunks
from synth.scheduling.precedence import copies_wait, of_schedule
from synth.scheduling.rerouting import rerouted
from synth.scheduling.rounds import RoundSearch, RoundSends
from synth.simulation import replay

__all__ = ["PackingStep", "chunk_counts", "faster_step", "mixed", "mixture"]

# Schedules in more chunks mostly repeat the plans of those in fewer.
_MOST_CHUNKS = 64
# The fewest chunks of a mixture, the factors to its larger numbers, and the most sends.
_FEWEST, _FINER, _MOST_SENDS = 32, (4, 8, 16), 90_000
# The most sends of all plans: a step takes some tenths of a second. Of more plans, every n-th is taken.
_MOST_PLANNED = 60_000
# Chunks are packed within _WORTH of the best time, then each time within _SHORTER, until _IN_VAIN steps gain
# nothing, or one takes _HOPELESS times the best time: none after it comes near. The best step is made in the
# finest chunks, and so is one within _HALF_A_STEP of its time.
_WORTH, _SHORTER, _IN_VAIN, _HALF_A_STEP, _HOPELESS = 0.98, 0.95, 2, 0.975, 1.2
# Plans in few rounds are sought if the longest path has at least this share of the time as latency. For
# each number of rounds up to _BEGUN plans are begun, with up to _ATTEMPTS attempts for each plan, fewer if
# rounds² · links² of all would be above _MOST_WORK, a second. They are improved at prices _PRICINGS times.
_MATTERS, _BEGUN, _ATTEMPTS, _MOST_WORK, _PRICINGS = 0.1, 8, 30, 40_000_000, 4
# Plans of other methods begin it, too, if they have at most this many sends.
_MOST_PRUNED = 1200
# The least cost of a send, so that those without a price are few, too.
_LEAST_COST = 1e-3
# Sums of floats round by less than this share.
_ROUNDED = 1e-9


def mixed(
    schedules: Sequence[Schedule], cuts: Sequence[tuple[Collective, int]], best_s: float
) -> Iterator[Schedule]:
    """Yield mixtures of the plans of ``schedules``, in some of ``cuts``, (collective, chunk bytes).

    All chunks of the collective must have the same sources and targets. ``best_s`` is the best time so far.
    O(chunks · sends of all plans) for each of about six steps.
    """
    # With more chunks, even plans with the fewest sends would be too many.
    least = min((one.sends / one.collective.chunks for one in schedules), default=np.inf)
    cuts = [cut for cut in cuts if least * cut[0].chunks <= _MOST_SENDS]
    if not cuts:
        return
    # A translation moves the root of a broadcast, and a subset of the ranks.
    alike = cuts[0][0].whole and cuts[0][0].kind == "all_reduce"
    best = _lowered(schedules, *cuts[min(1, len(cuts) - 1)], best_s, alike)
    if best is None:
        return
    packing, used = best.packing, np.unique(best.packed.plan)
    each = len(best.packed.start_s) / len(best.packed.plan)
    fine = [cut for cut in cuts if each * cut[0].chunks <= _MOST_SENDS]
    for shorter in (1.0, _HALF_A_STEP) if fine else ():
        shape, chunk_bytes = fine[-1]
        within_s = best.within_s * shorter
        packed = packing.packed(shape.chunks, chunk_bytes, within_s, used)
        if packed is not None:
            found = faster_step(packing, packed, shape, chunk_bytes, within_s, schedules[0].seed).made
            if copies_wait(found, replay(found)):
                yield found


class PackingStep(NamedTuple):
    """A packing within a time, and the schedule that list scheduling makes of it with its time."""

    time_s: float
    within_s: float
    packing: ChunkPacking
    packed: PackedChunks
    made: Schedule


def faster_step(
    packing: ChunkPacking,
    packed: PackedChunks,
    shape: Collective,
    chunk_bytes: int,
    within_s: float,
    seed: int,
    chunk: Indices | None = None,
) -> PackingStep:
    """Return the faster of a packing and the same packing rerouted.

    ``chunk`` has the number of each packed chunk, if they are not numbered in order.
    """
    found = list[PackingStep]()
    for some in ((packing, packed), rerouted(packing, packed, shape, chunk_bytes, within_s, seed, chunk)):
        if not found or some[1] is not packed:
            made = mixture(*some, shape, chunk_bytes, seed, chunk)
            found.append(PackingStep(replay(made).time_s, within_s, *some, made))
    return min(found, key=lambda step: step.time_s)


def _lowered(
    schedules: Sequence[Schedule], shape: Collective, chunk_bytes: int, best_s: float, alike: bool
) -> PackingStep | None:
    """Return the fastest of packings within less and less time; None without any.

    If all ranks are ``alike``, chunks take images of plans, and plans in few rounds join.
    """
    network, seed = schedules[0].network, schedules[0].seed
    images = _images(network) if alike else np.arange(network.links)[None]
    plans = list(_unlike(schedules, chunk_bytes, best_s))
    plans = plans[:: 1 + sum(len(plan.link) for plan in plans) // _MOST_PLANNED]
    within_s, vain, steps = _WORTH * best_s, 0, list[PackingStep]()
    rounds, trees = _Rounds(network, chunk_bytes, within_s, seed), list[ChunkPlan]()
    if alike:
        rounds.begin(plans)
    while vain < _IN_VAIN and (plans or rounds.plans):
        packing = ChunkPacking(network, [*plans, *rounds.plans, *trees], images)
        packed = packing.packed(shape.chunks, chunk_bytes, within_s)
        if packed is None:
            break
        step = faster_step(packing, packed, shape, chunk_bytes, within_s, seed)
        vain = 0 if step.time_s < min([one.time_s for one in steps], default=np.inf) else vain + 1
        if step.time_s > _HOPELESS * best_s:
            break
        steps.append(step)
        trees = list(step.packing.plans[len(plans) + len(rounds.plans) :])
        if alike and len(steps) <= _PRICINGS:
            rounds.improve(step.packed, len(plans), within_s)
        within_s *= _SHORTER
    return min(steps, key=lambda step: step.time_s, default=None)


def chunk_counts(network: Network) -> tuple[int, ...]:
    """Return some numbers of chunks for mixtures: the chunks share evenly among translations."""
    found = found_symmetry(network)
    images = 1 if found is None else found.network.translations
    few = -(-_FEWEST // images) * images
    return few, *(few * factor for factor in _FINER)


def _unlike(schedules: Sequence[Schedule], chunk_bytes: int, within_s: float) -> Iterator[ChunkPlan]:
    """Yield the distinct plans of schedules that take less than ``within_s`` without queueing."""
    seen: set[tuple[bytes, bytes, bytes]] = set()
    for schedule in schedules:
        if schedule.collective.chunks > _MOST_CHUNKS:
            continue
        for plan in plans_of(schedule, chunk_bytes):
            key = plan.link.tobytes(), plan.op.tobytes(), plan.part.tobytes()
            if key in seen or plan.length_s >= within_s:
                continue
            seen.add(key)
            if not schedule.exchanges or _ends_with_copies(plan, schedule.network):
                yield plan


def _ends_with_copies(plan: ChunkPlan, network: Network) -> bool:
    """Return whether a rank that got a copy only passes the copy on, and receives nothing more."""
    src, dst = network.src[plan.link].tolist(), network.dst[plan.link].tolist()
    copied = set[int]()
    for source, target, op, parts in zip(
        src, dst, plan.op.tolist(), np.diff(plan.part_start).tolist(), strict=True
    ):
        if target in copied or (parts and source in copied):
            return False
        if op == COPY:
            copied.add(target)
    return True


@dataclass
class _Rounds:
    """The plans in few rounds that a local search finds, for a network whose links have alike latencies."""

    network: Network
    chunk_bytes: int
    below_s: float
    seed: int
    plans: list[ChunkPlan] = field(default_factory=list)

    def __post_init__(self) -> None:
        network = self.network
        self._draw, self._search = np.random.default_rng(self.seed), RoundSearch(network)
        self._round_s = float(network.travel_s(self.chunk_bytes).max())
        self._sends = list[RoundSends]()
        counts = [count for count in self._search.counts if count * self._round_s < self.below_s]
        matters = bool(counts) and counts[0] * float(network.alpha_s.min()) >= _MATTERS * self.below_s
        self._counts = counts if matters else []
        work = sum((count * network.links) ** 2 for count in counts)
        self._each = max(1, min(_BEGUN, _MOST_WORK // max(1, work)))

    def begin(self, plans: Sequence[ChunkPlan]) -> None:
        """Add plans dimension by dimension, and a few in each number of rounds, some from ``plans``."""
        given = {count: list[RoundSends]() for count in self._counts}
        for plan in plans if given else ():
            when = np.rint(plan.head_s / self._round_s).astype(np.int64)
            if (count := int(when.max()) + 1) in given and len(plan.link) <= _MOST_PRUNED:
                sends = self._search.pruned(plan.link, when, self._draw)
                given[count] += [] if sends is None else [sends]
        for count in self._counts:
            tried = (self._search.begun(count, self._draw) for _ in range(self._each * _ATTEMPTS))
            begun = islice((one for one in tried if one is not None), self._each)
            few = sorted(given[count], key=lambda one: len(one.link))[: self._each]
            self._improve((*few, *begun), floats(np.ones((count, self.network.links))))
        for sends in dimension_sends(self.network, self._draw) if self._search.suits else ():
            least = self._search.pruned(*sends, self._draw)
            if least is not None:
                self._add(least)

    def improve(self, packed: PackedChunks, before: int, within_s: float) -> None:
        """Add plans that are cheap at the prices of a packing, which has ``before`` plans before these."""
        uses = np.bincount(packed.plan, minlength=before + len(self._sends))[before:][: len(self._sends)]
        ranked = [self._sends[row] for row in np.argsort(-uses, kind="stable").tolist()]
        for count in self._counts:
            if count * self._round_s < within_s:
                best = [one for one in ranked if one.round[-1] == count - 1][: self._each]
                self._improve(best, self._costs(packed, count, within_s))

    def _improve(self, sends: Iterable[RoundSends], cost: Floats) -> None:
        for one in sends:
            self._add(self._search.improved(one, cost, self._draw))

    def _add(self, sends: RoundSends) -> None:
        self._sends.append(sends)
        self.plans += plans_of(self._search.schedule(self.chunk_bytes, sends), self.chunk_bytes)

    def _costs(self, packed: PackedChunks, count: int, within_s: float) -> Floats:
        """Return the cost [round, link] of a send in its cheapest slot, with a mean of 1."""
        cost = np.empty((count, self.network.links))
        for now in range(count):
            first = np.searchsorted(packed.begin_s, now * self._round_s * (1 - _ROUNDED))
            past = np.searchsorted(
                packed.begin_s, (within_s - (count - now) * self._round_s) * (1 + _ROUNDED), side="right"
            )
            cost[now] = packed.cost[:, min(first, packed.cost.shape[1] - 1) : max(first + 1, past)].min(
                axis=1
            )
        return floats(cost / cost.mean() + _LEAST_COST)


def _images(network: Network) -> Indices:
    """Return for each translation the image of each link; one row of all links without translations."""
    symmetry = found_symmetry(network)
    if symmetry is None:
        return np.arange(network.links)[None]
    folded, table = symmetry.network, symmetry.link
    shifts = folded.shifts
    found = np.empty((len(shifts), network.links), np.int64)
    for row, shift in enumerate(shifts.tolist()):
        turned = folded.moved(shifts, np.full_like(shifts, shift))
        found[row][table[:, shifts].ravel()] = table[:, turned].ravel()
    return found


def mixture(
    packing: ChunkPacking,
    packed: PackedChunks,
    shape: Collective,
    chunk_bytes: int,
    seed: int,
    chunk: Indices | None = None,
) -> Schedule:
    """Return the mixture, by list scheduling: the send with the earliest planned start goes first.

    ``chunk`` has the number of each packed chunk, if they are not numbered in order.
    """
    images, network = packing.images, packing.network
    chosen = [packing.plans[plan] for plan in packed.plan.tolist()]
    number = np.arange(len(chosen)) if chunk is None else chunk
    sends = [len(plan.link) for plan in chosen]
    made = Schedule(
        network,
        shape,
        chunk_bytes,
        "mixture",
        seed,
        ints(np.repeat(number, sends)),
        ints(np.concatenate([images[at % len(images)][plan.link] for at, plan in enumerate(chosen)])),
        bytes_of(np.concatenate([plan.op for plan in chosen])),
    )
    first = offsets(sends)[:-1].tolist()
    addend = np.concatenate(
        [np.where(plan.part < 0, -1, plan.part + row) for plan, row in zip(chosen, first, strict=True)]
    )
    if len(addend):
        start = ints(offsets(np.concatenate([np.diff(plan.part_start) for plan in chosen])))
        made = replace(made, addend_start=start, addend=ints(addend))
    link = made.link.astype(np.int64)
    order, _ = line_up(network, chunk_bytes, link, of_schedule(made), packed.start_s)
    return in_order(made, order)
