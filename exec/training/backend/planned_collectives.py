"""Collectives of a group of ranks on arrays, by schedules made for its network.

A schedule is made for a kind, a root and a class of sizes; a plan is made for an exact size, type and
operator. Both are cached. A plan is moved to the arrays of each call, so no data is copied.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from exec.adaptive import CollectiveCall, measured_network
from exec.program import Array, Layout, dtype_of
from exec.sockets import Group
from exec.training.backend.known_schedules import KnownSchedules, place_of
from probes.base import CcctlError, UnavailableError, UsageError
from synth.collective import Kind
from synth.network import Network
from synth.program import INPUT, OUTPUT, Program
from synth.schedules import Schedule

if TYPE_CHECKING:
    from exec.mpi import MpiPlan

__all__ = ["BrokenGroupError", "PlannedCollectives", "Prepared", "Search", "shared", "size_class"]

_T = TypeVar("_T")

Search = Callable[[Network, CollectiveCall], Schedule]
"""A function that finds a schedule for a request on a network."""

# Collectives with separate buffers: the input must be preserved, or cannot share memory with the output.
_APART = ("reduce_scatter", "all_to_all")
# The most plans that are kept; each takes some megabytes for its slots.
_MOST_PLANS = 32


def size_class(size_bytes: int) -> int:
    """Return the class of a size; each class covers twice the sizes of the one before."""
    return max(0, size_bytes - 1).bit_length()


class BrokenGroupError(CcctlError):
    """The ranks of a group did not complete a collective together, so no other collective can follow."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A plan, its buffers between calls, and, if in place, the spans of both in one buffer."""

    plan: MpiPlan
    idle: tuple[Array, Array]
    spans: tuple[slice, slice] | None


class PlannedCollectives:
    """The planned collectives of ``group``.

    ``make`` is collective and runs on one thread; ``keep`` and ``run`` run on another. On each thread, all
    ranks make their calls in the same order. ``given`` is rank 0's network, None to measure it. Rank 0 uses
    ``search`` for schedules that are not in ``known``.
    """

    def __init__(
        self, group: Group, given: Network | None, search: Search, known: KnownSchedules | None = None
    ) -> None:
        self.group, self._search, self._known = group, search, known or KnownSchedules()
        self._place = place_of(group, given)
        self.network = group.bcast(given) or measured_network(group)
        if self.network.ranks != group.Get_size():
            raise UsageError(
                f"the network is for {self.network.ranks} ranks, this group has {group.Get_size()}",
                hint="Profile the ranks of the job, or leave the profile out: links are then measured.",
            )
        self._programs: dict[tuple[Kind, int, int, tuple[int, ...]], Program] = {}
        self._plans: collections.OrderedDict[CollectiveCall, Prepared] = collections.OrderedDict()

    def make(self, request: CollectiveCall, group: Group) -> Prepared:
        """Make the plan for ``request`` (averages included) over ``group``; collective."""
        # The import is late, because it takes a second or two and jobs with small collectives never need it.
        from exec.mpi import MpiPlan

        asked = group.allgather(request)
        if len({*asked}) > 1:
            other = next(rank for rank, asking in enumerate(asked) if asking != asked[0])
            raise UsageError(
                f"ranks call different collectives: rank 0 {asked[0]}, rank {other} {asked[other]}"
            )
        layout, rank = Layout(self._program(request, group), request.count), group.Get_rank()
        dtype, op = dtype_of(request.dtype), request.op
        if request.kind in _APART or request.blocks:
            send, recv = (np.empty(layout.elements(rank, buffer), dtype) for buffer in (INPUT, OUTPUT))
            return Prepared(MpiPlan(layout, group, send, recv, op), (send, recv), None)
        elements, *spans = layout.in_place(rank)
        both = np.empty(elements, dtype)
        send, recv = (both[span] for span in spans)
        return Prepared(MpiPlan(layout, group, send, recv, op), (send, recv), (spans[0], spans[1]))

    def keep(self, request: CollectiveCall, prepared: Prepared) -> None:
        """Keep a plan for ``run``; drop the least recently used ones beyond the limit."""
        self._plans[request] = prepared
        while len(self._plans) > _MOST_PLANS:
            _, oldest = self._plans.popitem(last=False)
            oldest.plan.abandon()

    def has(self, request: CollectiveCall) -> bool:
        return request in self._plans

    def run(self, request: CollectiveCall, data: Array, result: Array | None = None) -> None:
        """Run one collective on flat arrays by its kept plan.

        ``data`` is the larger buffer, as in `exec.program.layout.Layout.in_place`: for an all_gather the
        whole result, which already holds this rank's share; for a gather or scatter the buffer of all shares
        at the root, and one share on other ranks. A reduce_scatter, an all_to_all and a collective of unequal
        blocks read ``data`` and fill ``result``. Raises BrokenGroupError if the ranks do not complete the
        collective.
        """
        self._plans.move_to_end(request)
        prepared = self._plans[request]
        if prepared.spans is None:
            assert result is not None
            send, recv = data, result
        else:
            send, recv = (data[span] for span in prepared.spans)
        prepared.plan.move_to(send, recv)
        try:
            prepared.plan.run()
        except Exception as error:
            raise BrokenGroupError(str(error)) from error
        finally:
            # The plan must not refer to the caller's memory after the call.
            prepared.plan.move_to(*prepared.idle)

    def close(self) -> None:
        """Free the plans of this rank, independently of other ranks."""
        for prepared in self._plans.values():
            prepared.plan.abandon()
        self._plans.clear()

    def _program(self, request: CollectiveCall, group: Group) -> Program:
        """Return the program for this kind, root and class of sizes; rank 0 makes its schedule."""
        from synth.stages import compile as compile_

        size = size_class(request.size_bytes(group.Get_size()))
        key = (request.kind, request.root, size, request.blocks)
        if key not in self._programs:
            self._programs[key] = compile_(shared(group, lambda: self._schedule(request)))
        return self._programs[key]

    def _schedule(self, request: CollectiveCall) -> Schedule:
        """Return the cached schedule for this kind, root and class of sizes, or search for one; on rank 0."""
        ranks = self.group.Get_size()
        size_bytes = request.size_bytes(ranks)
        asked = {"kind": request.kind, "root": request.root, "size class": size_class(size_bytes)}
        blocks = {"blocks": list(request.blocks)} if request.blocks else {}
        key = {**self._place, **asked, **blocks}
        schedule = self._known.find(key, self.network, size_bytes)
        if schedule is None:
            schedule = self._search(self.network, request)
            self._known.keep(key, schedule)
        return schedule


def shared(group: Group, make: Callable[[], _T]) -> _T:
    """Return rank 0's result of ``make`` on every rank; its error is raised on all."""
    value, failed, why = None, None, ""
    if group.Get_rank() == 0:
        try:
            value = make()
        except CcctlError as error:
            failed, why = error, str(error)
    value, why = group.bcast((value, why))
    if failed is not None:
        raise failed
    if why:
        raise UnavailableError(f"rank 0: {why}")
    return cast(_T, value)
