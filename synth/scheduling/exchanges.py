"""All_reduces by exchange: blocks of ranks send one another their sums, level by level.

With two blocks at a time this is recursive doubling; with every rank as a block of its own, all at once, it
is one-shot. Each sum takes the path on which it arrives first: directly, or through other ranks that also
need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from probes.base import Bytes, Floats, Indices, Ints, ints, offsets
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.kernels import compiled, push
from synth.network import Network
from synth.networks import link_table
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling.list_scheduling import in_start_order
from synth.scheduling.nearest_blocks import Blocks

__all__ = ["Collect", "Exchange", "ExchangePlan", "HandOut", "Step", "plan_exchange"]


@dataclass(frozen=True)
class Collect:
    """A step in which the contributions of ``block`` are summed up on their way to ``owner``."""

    block: list[int]
    owner: int

    @property
    def ranks(self) -> list[int]:
        return self.block


@dataclass(frozen=True)
class Exchange:
    """A step in which every block's sum goes to all ranks of the other blocks."""

    blocks: Blocks

    @property
    def ranks(self) -> list[int]:
        return [rank for block in self.blocks for rank in block]


@dataclass(frozen=True)
class HandOut:
    """A step in which the result goes from ``owner`` to all of ``block``."""

    owner: int
    block: list[int]

    @property
    def ranks(self) -> list[int]:
        return self.block


Step = Collect | Exchange | HandOut


# The kinds of steps in compiled loops.
_COLLECT, _EXCHANGE, _HAND_OUT = 0, 1, 2
# Addends are noted by their last node, or as this minus the row if they are a single row.
_ALONE = -2


class _Wires(NamedTuple):
    """The links of a network: pairs of ranks are source · ranks + target, and -1 where no link joins them.

    Link l uses the ports ``port[port_start[l]:port_start[l + 1]]``, port p is used by the pairs
    ``user[user_start[p]:user_start[p + 1]]``.
    """

    ranks: int
    link: Indices
    travel_s: Floats
    hold_s: Floats
    port_start: Indices
    port: Indices
    port_hold_s: Floats
    user_start: Indices
    user: Indices


class _Steps(NamedTuple):
    """Steps of plans; step s has the blocks from ``block_start[s]`` to ``block_start[s + 1]``.

    Block b has the ranks ``rank[rank_start[b]:rank_start[b + 1]]``. The one block of a `Collect` lacks the
    owner, and ``towards`` has the next rank on the way there. A `HandOut` has the owner as a first block.
    ``before`` counts the steps that a step waits for, ``after[after_start[s]:after_start[s + 1]]`` wait for
    it.
    """

    kind: Indices
    block_start: Indices
    rank_start: Indices
    rank: Indices
    towards: Indices
    before: Indices
    after_start: Indices
    after: Indices


class _Runs(NamedTuple):
    """The steps of each chunk: run r is ``step[r]`` of ``chunk[r]``, and run ``shift[r]`` + s is its step s.

    ``before`` counts the unfinished runs that it waits for, ``jobs`` its own unfinished jobs. Its sends are
    the list from ``first`` to ``last``. ``queue`` has the runs in the order in which they may begin.
    """

    chunk: Indices
    step: Indices
    shift: Indices
    before: Indices
    jobs: Indices
    first: Indices
    last: Indices
    queue: Indices


class _Ranks(NamedTuple):
    """The state of each rank for each chunk, at chunk · ranks + rank.

    ``ready_s`` is when its last step ended. The sum that it has consists of ``parts`` rows, the last of them
    at the node ``known``. In a `Collect` it waits for ``waits`` contributions; the last came at ``come_s``.
    """

    ready_s: Floats
    known: Indices
    parts: Indices
    waits: Indices
    come_s: Floats


class _Jobs(NamedTuple):
    """The transports of single sums; the heap has those that are unfinished, by the next arrival.

    Job j belongs to ``run[j]``. From ``base[j]`` on, ``held`` ranks hold the sum, each since ``since_s``, as
    the addends ``known`` and ``parts``; and ``left`` ranks still have to send or receive it. Arrivals only
    get later, so it is enough to compute the least anew.
    """

    run: Indices
    base: Indices
    held: Indices
    left: Indices
    heap_s: Floats
    heap: Indices
    holder: Ints
    since_s: Floats
    known: Ints
    parts: Ints
    missing: Ints


class _Sent(NamedTuple):
    """The sends in the order in which they were planned.

    Each has ``parts`` addends, the last at the node ``known``. Node n is row n - 1, or a rank's own part, and
    ``earlier[n]`` is the node before it. ``following`` is the next send of the run.
    """

    chunk: Ints
    link: Ints
    op: Bytes
    known: Indices
    parts: Indices
    target: Ints
    arrival_s: Floats
    following: Indices
    earlier: Indices


@dataclass(frozen=True, eq=False)
class ExchangePlan:
    """An all_reduce's planned sends; the last rank is expected to have the result at ``time_s``."""

    network: Network
    chunk_bytes: int
    time_s: float
    _sent: _Sent

    def schedule(self, collective: Collective, method: str, seed: int) -> Schedule:
        """Return the sends in the order of their starts."""
        sent = self._sent
        start = offsets(sent.parts)
        addend = np.empty(start[-1], np.int64)
        _fill_addends(sent.known, start, sent.earlier, addend)
        return in_start_order(
            Schedule(
                self.network,
                collective,
                self.chunk_bytes,
                method,
                seed,
                sent.chunk,
                sent.link,
                sent.op,
                addend_start=ints(start),
                addend=ints(addend),
            )
        )


def plan_exchange(
    network: Network, chunk_bytes: int, levels: Sequence[Sequence[Sequence[Step]]]
) -> ExchangePlan:
    """Plan ``levels[chunk][level]``; a step waits for the steps of lower levels that share ranks with it.

    Among the possible sends of all steps and chunks, the one to arrive first is planned next, on the link on
    which it is expected to arrive first. Raises NotApplicableError if a link is missing.
    """
    wires, places = _wires(network, chunk_bytes), len(levels) * network.ranks
    plans = list({id(own): own for own in levels}.values())
    number = {id(own): at for at, own in enumerate(plans)}
    steps, first = _table(plans, wires)
    runs = _runs(steps, first, np.array([number[id(own)] for own in levels], dtype=np.int64))
    blocks, ranks = np.diff(steps.block_start), np.diff(steps.rank_start[steps.block_start])
    jobs = np.where(steps.kind == _EXCHANGE, blocks, 1)
    # Every job of an exchange reaches all ranks but its own block's.
    sends = np.where(steps.kind == _EXCHANGE, (blocks - 1) * ranks, ranks - (steps.kind == _HAND_OUT))
    many, room, total = (int(each[runs.step].sum()) for each in (jobs, jobs * ranks, sends))
    state = _Ranks(
        np.zeros(places),
        np.zeros(places, np.int64),
        np.ones(places, np.int64),
        np.zeros(places, np.int64),
        np.zeros(places),
    )
    sent = _nothing_sent(total)
    unreached = _plan(wires, steps, runs, state, _no_jobs(many, room), sent)
    if unreached >= 0:
        raise NotApplicableError(f"exchange needs a link to rank {unreached} from ranks that have a sum")
    return ExchangePlan(network, chunk_bytes, float(state.ready_s.max()), sent)


def _runs(steps: _Steps, first: Indices, plan_of: Indices) -> _Runs:
    """Return the runs of all chunks; chunk c takes the steps of plan ``plan_of[c]``."""
    length = np.diff(first)[plan_of]
    chunk = np.repeat(np.arange(len(plan_of)), length)
    shift = np.repeat(offsets(length)[:-1] - first[:-1][plan_of], length)
    step = np.arange(len(chunk)) - shift
    return _Runs(
        chunk,
        step,
        shift,
        steps.before[step],
        np.zeros(len(step), np.int64),
        np.full(len(step), -1),
        np.full(len(step), -1),
        np.empty(len(step), np.int64),
    )


def _no_jobs(jobs: int, room: int) -> _Jobs:
    """Return the memory for so many jobs, which together have ``room`` for holders."""
    return _Jobs(
        np.empty(jobs, np.int64),
        np.empty(jobs, np.int64),
        np.empty(jobs, np.int64),
        np.empty(jobs, np.int64),
        np.empty(jobs),
        np.empty(jobs, np.int64),
        np.empty(room, np.int32),
        np.empty(room),
        np.empty(room, np.int32),
        np.empty(room, np.int32),
        np.empty(room, np.int32),
    )


def _nothing_sent(sends: int) -> _Sent:
    """Return the memory for so many sends."""
    return _Sent(
        np.empty(sends, np.int32),
        np.empty(sends, np.int32),
        np.empty(sends, np.uint8),
        np.empty(sends, np.int64),
        np.empty(sends, np.int64),
        np.empty(sends, np.int32),
        np.empty(sends),
        np.full(sends, -1),
        np.full(sends + 1, -1),
    )


@lru_cache(maxsize=8)
def _wires(network: Network, chunk_bytes: int) -> _Wires:
    """Return the links for chunks of this size; of parallel links the one on which they arrive first."""
    ranks = network.ranks
    table = link_table(network, chunk_bytes)
    there = table >= 0
    pair = np.full(network.links, -1)
    pair[table[there]] = np.flatnonzero(there)
    users = pair[network.port_user]
    kept = users >= 0
    port = network.link_port[kept]
    order = np.argsort(port, kind="stable")
    return _Wires(
        ranks,
        table.ravel().astype(np.int64),
        np.where(there, network.travel_s(chunk_bytes)[table], np.inf).ravel(),
        network.hold_s(chunk_bytes),
        network.link_port_start.astype(np.int64),
        network.link_port.astype(np.int64),
        network.port_hold_s(chunk_bytes),
        offsets(np.bincount(port, minlength=len(network.ports))),
        users[kept][order],
    )


def _table(plans: Sequence[Sequence[Sequence[Step]]], wires: _Wires) -> tuple[_Steps, Indices]:
    """Return the steps of all plans, and the number of the first step of each."""
    kinds, blocks, towards = list[int](), list[list[int]](), list[list[int]]()
    before, after, of_step, first = list[int](), list[list[int]](), [0], [0]
    ways: dict[tuple[int, ...], list[int]] = {}
    for levels in plans:
        last: dict[int, int] = {}
        for level in levels:
            numbered = list(enumerate(level, len(kinds)))
            for number, step in numbered:
                waits_for = {last[rank] for rank in step.ranks if rank in last}
                before.append(len(waits_for))
                after.append(list[int]())
                for earlier in sorted(waits_for):
                    after[earlier].append(number)
                if isinstance(step, Collect):
                    kinds.append(_COLLECT)
                    key = (step.owner, *step.block)
                    if key not in ways:
                        ways[key] = _way_to(step.owner, step.block, wires)
                    blocks.append([rank for rank in step.block if rank != step.owner])
                    towards.append(ways[key])
                elif isinstance(step, HandOut):
                    kinds.append(_HAND_OUT)
                    blocks += [[step.owner], [rank for rank in step.block if rank != step.owner]]
                else:
                    kinds.append(_EXCHANGE)
                    blocks += step.blocks
                towards += [[-1] * len(block) for block in blocks[len(towards) :]]
                of_step.append(len(blocks))
            for number, step in numbered:
                last |= dict.fromkeys(step.ranks, number)
        first.append(len(kinds))

    def joined(lists: Sequence[list[int]]) -> Indices:
        return np.fromiter(chain.from_iterable(lists), np.int64)

    steps = _Steps(
        np.array(kinds, np.int64),
        np.array(of_step, np.int64),
        offsets([len(block) for block in blocks]),
        joined(blocks),
        joined(towards),
        np.array(before, np.int64),
        offsets([len(each) for each in after]),
        joined(after),
    )
    return steps, np.array(first, np.int64)


def _way_to(owner: int, block: Sequence[int], wires: _Wires) -> list[int]:
    """Return the next rank of each of ``block`` but the owner on a shortest path tree to the owner."""
    travel_s = wires.travel_s.reshape(wires.ranks, wires.ranks)
    left = np.array([rank for rank in block if rank != owner], np.int64)
    # Ranks join the tree one by one; those outside keep the shortest way by a rank inside.
    towards, way_s, outside = np.full(len(left), owner), travel_s[left, owner], np.ones(len(left), bool)
    for _ in left:
        at = int(np.where(outside, way_s, np.inf).argmin())
        if way_s[at] == np.inf:
            raise NotApplicableError(f"exchange needs links within the block of rank {left[outside][0]}")
        outside[at] = False
        by_s = travel_s[left, left[at]] + way_s[at]
        shorter = outside & (by_s < way_s)
        way_s[shorter], towards[shorter] = by_s[shorter], left[at]
    found: list[int] = towards.tolist()
    return found


@compiled
def _plan(wires: _Wires, steps: _Steps, runs: _Runs, ranks: _Ranks, jobs: _Jobs, sent: _Sent) -> int:
    """Fill ``sent``, and return -1, or a rank that no link reaches."""
    free_s = np.zeros(len(wires.link))
    begun = size = number = room = sends = ready = 0
    for run in range(len(runs.step)):
        if not runs.before[run]:
            runs.queue[ready] = run
            ready += 1
    while True:
        while begun < ready:
            run = runs.queue[begun]
            begun += 1
            number, room, size = _begin(run, wires.ranks, steps, runs, ranks, jobs, number, room, size)
            if not runs.jobs[run]:
                ready = _finish(run, wires.ranks, steps, runs, ranks, sent, ready)
        if not size:
            return -1
        job = jobs.heap[0]
        run, base = jobs.run[job], jobs.base[job]
        step, place = runs.step[run], runs.chunk[run] * wires.ranks
        collects = steps.kind[step] == _COLLECT
        if collects:
            at = to = _next_of_sum(job, place, wires, free_s, steps.towards, ranks, jobs)
            source, target = jobs.missing[base + at], steps.towards[jobs.known[base + at]]
            since_s = ranks.come_s[place + source]
        else:
            at, to = _next_of_spread(job, wires, free_s, jobs)
            source, target = jobs.holder[base + at], jobs.missing[base + to]
            since_s = jobs.since_s[base + at]
        pair = source * wires.ranks + target
        arrival_s = max(since_s, free_s[pair]) + wires.travel_s[pair]
        if arrival_s == np.inf:
            return int(target)
        if (size > 1 and arrival_s > jobs.heap_s[1]) or (size > 2 and arrival_s > jobs.heap_s[2]):
            _replace(jobs.heap_s, jobs.heap, size, arrival_s, job)
            continue
        _hold(wires, free_s, pair, max(since_s, free_s[pair]))
        sent.link[sends], sent.target[sends], sent.arrival_s[sends] = wires.link[pair], target, arrival_s
        _record(sends, run, steps, runs, sent)
        if collects:
            _contribute(sends, place + source, place + target, ranks, sent)
        else:
            _spread(sends, job, at, steps.kind[step] == _HAND_OUT, jobs, sent)
        _serve(job, to, collects, jobs)
        sends += 1
        if jobs.left[job]:
            _replace(jobs.heap_s, jobs.heap, size, arrival_s, job)
            continue
        size -= 1
        _replace(jobs.heap_s, jobs.heap, size, jobs.heap_s[size], jobs.heap[size])
        runs.jobs[run] -= 1
        if not runs.jobs[run]:
            ready = _finish(run, wires.ranks, steps, runs, ranks, sent, ready)


@compiled
def _record(send: int, run: int, steps: _Steps, runs: _Runs, sent: _Sent) -> None:
    """Note the chunk and the operation of a send, and add the send to the list of its run."""
    sent.chunk[send] = runs.chunk[run]
    sent.op[send] = COPY if steps.kind[runs.step[run]] == _HAND_OUT else REDUCE
    if runs.last[run] >= 0:
        sent.following[runs.last[run]] = send
    else:
        runs.first[run] = send
    runs.last[run] = send


@compiled
def _contribute(send: int, source: int, target: int, ranks: _Ranks, sent: _Sent) -> None:
    """Send all that the rank at place ``source`` has collected to the one at ``target``, which adds it."""
    sent.known[send], sent.parts[send] = ranks.known[source], ranks.parts[source]
    _add(target, send, ranks, sent)
    ranks.waits[target] -= 1
    ranks.come_s[target] = max(ranks.come_s[target], sent.arrival_s[send])


@compiled
def _spread(send: int, job: int, holder: int, copies: bool, jobs: _Jobs, sent: _Sent) -> None:
    """Send the sum of a job on from its ``holder``-th holder; the target holds it from then on."""
    base = jobs.base[job]
    sent.known[send], sent.parts[send] = jobs.known[base + holder], jobs.parts[base + holder]
    held = base + jobs.held[job]
    jobs.holder[held], jobs.since_s[held] = sent.target[send], sent.arrival_s[send]
    # A copy overwrites the target's data and is forwarded unchanged.
    jobs.known[held], jobs.parts[held] = _ALONE - send, 0 if copies else 1
    jobs.held[job] += 1


@compiled
def _serve(job: int, place: int, collects: bool, jobs: _Jobs) -> None:
    """Remove the ``place``-th of the ranks that still have to send or receive the sum of a job."""
    base = jobs.base[job]
    jobs.left[job] -= 1
    for later in range(base + place, base + jobs.left[job]):
        jobs.missing[later] = jobs.missing[later + 1]
        if collects:
            jobs.known[later] = jobs.known[later + 1]


@compiled
def _begin(
    run: int,
    world: int,
    steps: _Steps,
    runs: _Runs,
    ranks: _Ranks,
    jobs: _Jobs,
    number: int,
    room: int,
    size: int,
) -> tuple[int, int, int]:
    """Add the jobs of a run; return the next number of a job, the room in use and the size of the heap."""
    step, place = runs.step[run], runs.chunk[run] * world
    first, past = steps.block_start[step], steps.block_start[step + 1]
    low, high = steps.rank_start[first], steps.rank_start[past]
    collects = steps.kind[step] == _COLLECT
    if steps.kind[step] == _HAND_OUT:
        past = first + 1
    for block in range(first, past):
        own, others = steps.rank_start[block], steps.rank_start[block + 1]
        jobs.base[number], jobs.run[number] = room, run
        held = left = 0
        for at in range(low, high):
            rank = steps.rank[at]
            if collects:
                target = place + steps.towards[at]
                ranks.come_s[place + rank], ranks.come_s[target] = (
                    ranks.ready_s[place + rank],
                    ranks.ready_s[target],
                )
                ranks.waits[target] += 1
                jobs.missing[room + left], jobs.known[room + left] = rank, at
                left += 1
            elif own <= at < others:
                jobs.holder[room + held], jobs.since_s[room + held] = rank, ranks.ready_s[place + rank]
                jobs.known[room + held], jobs.parts[room + held] = (
                    ranks.known[place + rank],
                    ranks.parts[place + rank],
                )
                held += 1
            else:
                jobs.missing[room + left] = rank
                left += 1
        if not left:
            continue
        jobs.held[number], jobs.left[number] = held, left
        room += high - low
        runs.jobs[run] += 1
        size = push(jobs.heap_s, jobs.heap, size, 0.0, number)
        number += 1
    return number, room, size


@compiled
def _next_of_spread(job: int, wires: _Wires, free_s: Floats, jobs: _Jobs) -> tuple[int, int]:
    """Return the places of the holder and the rank without the sum whose send arrives first."""
    base = jobs.base[job]
    found, best_s = (0, 0), np.inf
    for at in range(jobs.held[job]):
        first, since_s = jobs.holder[base + at] * wires.ranks, jobs.since_s[base + at]
        for to in range(jobs.left[job]):
            pair = first + jobs.missing[base + to]
            arrival_s = max(since_s, free_s[pair]) + wires.travel_s[pair]
            if arrival_s < best_s:
                found, best_s = (at, to), arrival_s
    return found


@compiled
def _next_of_sum(
    job: int, place: int, wires: _Wires, free_s: Floats, towards: Indices, ranks: _Ranks, jobs: _Jobs
) -> int:
    """Return the place of the rank whose send arrives first, of those that wait for no contribution."""
    base = jobs.base[job]
    found, best_s = 0, np.inf
    for at in range(jobs.left[job]):
        rank = jobs.missing[base + at]
        if ranks.waits[place + rank] == 0:
            pair = rank * wires.ranks + towards[jobs.known[base + at]]
            arrival_s = max(ranks.come_s[place + rank], free_s[pair]) + wires.travel_s[pair]
            if arrival_s < best_s:
                found, best_s = at, arrival_s
    return found


@compiled
def _hold(wires: _Wires, free_s: Floats, pair: int, begin_s: float) -> None:
    """Hold the link of a pair and its ports from ``begin_s`` on."""
    link = wires.link[pair]
    free_s[pair] = max(free_s[pair], begin_s + wires.hold_s[link])
    for at in range(wires.port_start[link], wires.port_start[link + 1]):
        end_s = begin_s + wires.port_hold_s[at]
        for user in range(wires.user_start[wires.port[at]], wires.user_start[wires.port[at] + 1]):
            other = wires.user[user]
            free_s[other] = max(free_s[other], end_s)


@compiled
def _add(place: int, row: int, ranks: _Ranks, sent: _Sent) -> None:
    """Add a row to the sum that a rank has."""
    sent.earlier[row + 1] = ranks.known[place]
    ranks.known[place] = row + 1
    ranks.parts[place] += 1


@compiled
def _finish(run: int, world: int, steps: _Steps, runs: _Runs, ranks: _Ranks, sent: _Sent, ready: int) -> int:
    """Apply the arrivals of a finished run, and return the number of runs that may have begun by now.

    A sum that is collected is added at once, one that is exchanged at the end of the run.
    """
    step, send = runs.step[run], runs.first[run]
    while send >= 0:
        place = runs.chunk[run] * world + sent.target[send]
        if steps.kind[step] == _EXCHANGE:
            _add(place, send, ranks, sent)
        ranks.ready_s[place] = max(ranks.ready_s[place], sent.arrival_s[send])
        send = sent.following[send]
    for at in range(steps.after_start[step], steps.after_start[step + 1]):
        later = runs.shift[run] + steps.after[at]
        runs.before[later] -= 1
        if runs.before[later] == 0:
            runs.queue[ready] = later
            ready += 1
    return ready


@compiled
def _replace(heap_s: Floats, heap: Indices, size: int, arrival_s: float, job: int) -> None:
    """Replace the top of the heap; equal arrivals are in the order of the jobs' numbers."""
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and (
            heap_s[child + 1] < heap_s[child]
            or (heap_s[child + 1] == heap_s[child] and heap[child + 1] < heap[child])
        ):
            child += 1
        if heap_s[child] > arrival_s or (heap_s[child] == arrival_s and heap[child] > job):
            break
        heap_s[at], heap[at] = heap_s[child], heap[child]
        at = child
    heap_s[at], heap[at] = arrival_s, job


@compiled
def _fill_addends(known: Indices, start: Indices, earlier: Indices, addend: Indices) -> None:
    """Write the addends of each send, in the order in which its source has added them."""
    for send in range(len(known)):
        node = known[send]
        for at in range(start[send + 1] - 1, start[send] - 1, -1):
            if node <= _ALONE:
                addend[at] = _ALONE - node
            else:
                addend[at] = node - 1
                node = earlier[node]
