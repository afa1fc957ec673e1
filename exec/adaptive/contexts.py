"""Transmission contexts: programs ready to run on registered buffers, made once and used again (Sec. V-A).

A context belongs to a request, a version of its schedule, and the ranks whose data it carries; the others
relay. The first part of a request is phase 1, which serves every rank. Each later part is a phase 2, by the
schedule that is fastest in simulation. A broadcast has the data of one rank alone, so it has no later parts.
A rank late for the first part of an all_reduce may join it chunk by chunk; a later part leaves these chunks
out.

Callers lay out data by the ranks of the session's start, contexts by the ranks of their group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from exec.adaptive.compiled_parts import CompiledPart, PartKey, compiled_part, part_key
from exec.adaptive.messages import CollectiveCall
from exec.mpi import MpiPlan, shared_array
from exec.program import Array, Layout, combine_of, dtype_of, neutral_of
from exec.sockets import Group
from exec.stragglers import (
    Offers,
    covered_slots,
    input_of,
    joined_elements,
    left_out,
    merged,
    no_offers,
    without_joined,
)
from probes.base import Mask
from synth.program import INPUT, OUTPUT
from synth.relays import Phase
from synth.schedules import Schedule

__all__ = ["Contexts", "Result", "Version"]

# Results of these collectives are the senders' blocks side by side; other collectives combine their parts.
_SIDE_BY_SIDE = ("all_gather", "all_to_all")
# Inputs of these collectives have a block for each rank.
_BLOCK_FOR_EACH = ("reduce_scatter", "all_to_all")


@dataclass(frozen=True, eq=False)
class Version:
    """Schedules of an epoch by request; ranks are numbered as in the group."""

    number: int
    schedules: Mapping[CollectiveCall, Schedule]
    epoch: int = 0


@dataclass(frozen=True, eq=False)
class _Context:
    """A plan on this rank's buffers, and the phase of the collective that it carries out."""

    plan: MpiPlan
    phase: Phase
    send: Array
    recv: Array
    # Ranks of the group whose chunks may join while it runs.
    may_join: frozenset[int]


class Result:
    """The results so far of one request on this rank, part by part.

    Each part is kept in the caller's layout: later parts may come from other schedules with other chunks, and
    from a smaller group. ``open_to`` are the late ranks, as the mesh numbers them, whose chunks may have
    joined the first part. ``joined`` marks the elements of this rank's data that have joined; None if none
    have.
    """

    def __init__(self) -> None:
        self.parts: list[Array] = []
        self.open_to: frozenset[int] = frozenset()
        self.joined: Mask | None = None
        self._senders: list[tuple[int, ...]] = []

    def add(self, phase: Phase, output: Array, rank: int, request: CollectiveCall) -> None:
        """Add the output of a part of a collective whose results are not side by side."""
        if phase.schedule.collective is phase.whole:
            self.parts.append(output[: request.count].copy())
        else:
            found = merged([phase], [output], rank, _op(request))
            self.parts.append(found.reshape(-1)[: request.count])

    def add_blocks(self, blocks: Array, senders: Sequence[int]) -> None:
        """Add the blocks (senders, count) of a part; ``senders`` are ranks of the mesh."""
        self.parts.append(blocks)
        self._senders.append(tuple(senders))

    def keep(self, parts: int) -> None:
        """Drop all parts after the first ``parts``."""
        del self.parts[parts:], self._senders[parts:]
        if not parts:
            self.open_to, self.joined = frozenset(), None

    def whole(self, request: CollectiveCall) -> Array:
        """Return all parts combined; where ranks get the same result, they get the same bits."""
        if request.kind in _SIDE_BY_SIDE and self._senders:
            senders = np.concatenate([np.array(part, np.int64) for part in self._senders])
            return np.concatenate(self.parts)[np.argsort(senders)].reshape(-1)
        combine = combine_of(_op(request), self.parts[0].dtype)
        return reduce(combine, self.parts)


class Contexts:
    """The contexts of one group of ranks for one version of the schedules.

    Making a context is collective, in one order on all ranks. Ranks are numbers of the group; its members
    were at ``places`` in the group of the session's start. Contexts made beside the job, on another thread,
    come into use once all ranks `reveal` them before the same request.
    """

    def __init__(self, group: Group, version: Version, places: Sequence[int]) -> None:
        self.group, self.version, self._places = group, version, list(places)
        self._compiled: dict[PartKey, CompiledPart] = {}
        self._buffers: dict[tuple[str, str, int], Array] = {}
        self._made: dict[PartKey, _Context] = {}
        self._beside: dict[PartKey, _Context] = {}

    def add(self, schedules: Mapping[CollectiveCall, Schedule]) -> None:
        """Add schedules of other requests, the same on all ranks."""
        self.version = replace(self.version, schedules={**self.version.schedules, **schedules})

    def take(self, parts: Mapping[PartKey, CompiledPart]) -> None:
        """Note compiled parts, the same on all ranks, so that no rank compiles them itself."""
        self._compiled |= parts

    def prepare(self, request: CollectiveCall, part: Sequence[int], *, first: bool) -> None:
        """Make the context of a part; collective."""
        key = self._key(request, part, first)
        if key not in self._made:
            self._made[key] = self._context(self.group, key)

    def prepare_beside(self, group: Group, parts: Mapping[PartKey, CompiledPart]) -> None:
        """Make the contexts of these parts for later use, with messages of ``group``; collective."""
        self.take(parts)
        for key in parts:
            if key not in self._beside:
                self._beside[key] = self._context(group, key)

    def reveal(self) -> None:
        """Start using the contexts made beside the job; on all ranks between the same requests."""
        beside, self._beside = self._beside, {}
        for key, context in beside.items():
            # If a context was needed sooner, all ranks have already made it.
            if self._made.setdefault(key, context) is not context:
                context.plan.abandon()

    def run(
        self,
        request: CollectiveCall,
        part: Sequence[int],
        data: Array | None,
        result: Result,
        offers: Offers = no_offers,
    ) -> None:
        """Carry out one part with this rank's ``data`` (None on relays) into ``result``; collective.

        A late rank that may join the part does so with the data that ``offers`` brings meanwhile.
        """
        first = not result.parts
        self.prepare(request, part, first=first)
        context = self._made[self._key(request, part, first)]
        rank, members = self.group.Get_rank(), self.group.members
        if first:
            if rank in context.may_join:
                self._run_late(context, request, result, offers)
            else:
                if data is not None and context.send.size:
                    self._fill(context, request, data)
                context.plan.run()
            result.open_to = frozenset(members[late] for late in context.may_join)
        else:
            open_to = [late for late in part if members[late] in result.open_to]
            without = self._without(context, open_to, request, result.joined)
            if data is not None and context.send.size:
                if result.joined is not None:
                    data = without_joined(data, result.joined, _op(request))
                self._fill(context, request, data)
            context.plan.run(without)
            if without is not None:
                _neutralize(context, without, rank, _op(request))
        if request.kind in _SIDE_BY_SIDE:
            blocks = _blocks_of(context, request, rank, len(members))
            result.add_blocks(blocks[list(part)], [members[sender] for sender in part])
        else:
            result.add(context.phase, context.recv, rank, request)

    def _run_late(self, context: _Context, request: CollectiveCall, result: Result, offers: Offers) -> None:
        """Carry out a first part on a late rank that may join it."""

        def join(data: Array) -> None:
            self._fill(context, request, data)
            context.plan.let_join()

        context.plan.begin_without_input()
        with offers(join):
            context.plan.run()
        joined = context.plan.joined()
        if joined.any():
            rank = self.group.Get_rank()
            result.joined = joined_elements(context.phase, rank, joined, request.count)

    def _without(
        self, context: _Context, open_to: Sequence[int], request: CollectiveCall, joined: Mask | None
    ) -> Mask | None:
        """Return the chunks that a later part leaves out, as all their data has joined; None if none have.

        Each rank of ``open_to`` sends the others which of its chunks have joined; collective.
        """
        if not open_to:
            return None
        phase, rank = context.phase, self.group.Get_rank()
        group, covered = self.group.named("joined"), dict[int, Mask]()
        for late in open_to:
            mine = None
            if late == rank and joined is not None:
                mine = covered_slots(phase, rank, joined, _padded_count(phase, request.count))
            found = group.bcast(mine, late)
            if found is not None:
                covered[late] = found
        return left_out(phase, covered) if covered else None

    def close(self) -> None:
        """Free the contexts of this rank, independently of other ranks."""
        for made in (self._made, self._beside):
            for context in made.values():
                context.plan.abandon()
            made.clear()

    def _key(self, request: CollectiveCall, part: Sequence[int], first: bool) -> PartKey:
        return part_key(request, part, self.group.Get_size(), first=first)

    def _fill(self, context: _Context, request: CollectiveCall, data: Array) -> None:
        for_each = request.kind in _BLOCK_FOR_EACH
        blocks = data.reshape(-1, request.count)[self._places] if for_each else data.reshape(1, -1)
        if context.phase.schedule.collective is context.phase.whole:
            context.send[: blocks.size] = blocks.reshape(-1)
            return
        padded = np.zeros((len(blocks), _padded_count(context.phase, request.count)), data.dtype)
        padded[:, : request.count] = blocks
        context.send[:] = input_of(context.phase, self.group.Get_rank(), padded.reshape(-1))

    def _context(self, group: Group, key: PartKey) -> _Context:
        request, part, first = key
        if key not in self._compiled:
            self._compiled[key] = compiled_part(self.version.schedules[request], part, first=first)
        phase, program, rank = self._compiled[key].phase, self._compiled[key].program, self.group.Get_rank()
        count = request.count
        if program.collective.kind == "custom":
            count = _padded_count(phase, request.count) // phase.whole.share
        elif request.kind == "all_reduce":
            # All parts have equal chunks and share the same buffers.
            count = _padded_count(phase, request.count)
        layout = Layout(program, count)
        send = self._shared("in", request.dtype, layout.elements(rank, INPUT))
        recv = self._shared("out", request.dtype, layout.elements(rank, OUTPUT))
        may_join = frozenset[int]()
        if first:
            sources = phase.schedule.collective.sources
            may_join = frozenset(np.flatnonzero(sources.per_rank(program.ranks)).tolist()) - {*part}
        plan = MpiPlan(layout, group, send, recv, _op(request), may_be_late=rank in may_join)
        if not first and request.joinable:
            plan.follow_chunks()
        return _Context(plan, phase, send, recv, may_join)

    def _shared(self, use: str, dtype: str, elements: int) -> Array:
        """Return a buffer; contexts of one use, type and size share it, as they run one after the other."""
        key = (use, dtype, elements)
        if key not in self._buffers:
            self._buffers[key] = shared_array(elements, dtype_of(dtype))
        return self._buffers[key]


def _blocks_of(context: _Context, request: CollectiveCall, rank: int, ranks: int) -> Array:
    """Return each rank's block after a part, (ranks, count); rows of ranks that sent none are arbitrary."""
    phase = context.phase
    if phase.schedule.collective is phase.whole:
        return context.recv.reshape(ranks, request.count).copy()
    share = phase.whole.share
    places = phase.output_places(rank)
    slots = context.recv.reshape(len(places), -1)
    found = np.zeros((ranks * share, slots.shape[1]), slots.dtype)
    found[places] = slots
    return found.reshape(ranks, -1)[:, : request.count]


def _op(request: CollectiveCall) -> str:
    """Return the operator that combines parts; averages are divided at the end."""
    return "sum" if request.op == "avg" else request.op


def _neutralize(context: _Context, chunks: Mask, rank: int, op: str) -> None:
    """Set the left-out chunks of a part's output to the operator's neutral element."""
    own_chunks = np.flatnonzero(context.phase.schedule.collective.targets.has(rank))
    slots = context.recv.reshape(len(own_chunks), -1)
    slots[chunks[own_chunks]] = neutral_of(op, context.recv.dtype)


def _padded_count(phase: Phase, count: int) -> int:
    """Return ``count`` rounded up to equal chunks of the whole collective."""
    chunks = phase.whole.share
    return -(-count // chunks) * chunks
