"""The benchmark of a training step: its groups alone, all at once, and planned together.

All ways take turns, iteration by iteration, on the same buffers, and every element is checked. A rank runs
the programs of its groups in one thread, a pass of each in turn.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from exec.benchmark.environment import crowded, machine
from exec.benchmark.report import Average, Report, Row
from exec.benchmark.runner import OWN_WIRES, busbw_factor
from exec.benchmark.timing import Repetitions, interleaved, measurement
from exec.executors import executor_of
from exec.memory_demand import bench_need
from exec.mpi import MpiPlan
from exec.peers import Call
from exec.program import Array, Buffers, Layout, dtype_name, dtype_of, size_bytes_of
from exec.sockets import Group
from probes.base import Progress
from probes.live import library_name, require_room
from synth.collective import ROOTED
from synth.program import Program

__all__ = ["GroupsRequest", "MeasuredGroup", "bench_groups_task"]

# The ways to run a group, in the order of `MeasuredGroup.predicted_s`: without the others, beside them by the
# same program, and beside them by a program planned with regard to them.
_WAYS = ("alone", "planned singly", "planned together")
_SINGLY, _TOGETHER = 1, 2


@dataclass(frozen=True)
class MeasuredGroup:
    """A group of the step, with ``count`` elements a block; its data is there from ``release_s`` on.

    ``singly`` is planned as if the group were alone, ``together`` with regard to the others. ``predicted_s``
    are its predicted seconds from the release: alone, beside the others by ``singly``, and by ``together``.
    """

    name: str
    release_s: float
    count: int
    singly: Program
    together: Program
    predicted_s: tuple[float, float, float]


@dataclass(frozen=True)
class GroupsRequest:
    """A step to measure; ``predicted_s`` are the predicted ends of the whole, planned singly and together."""

    groups: tuple[MeasuredGroup, ...]
    predicted_s: tuple[float, float]
    dtype: str
    redop: str
    warmup: int
    iterations: int
    average: Average = "slowest"
    check: bool = True
    samples: bool = False


def bench_groups_task(comm: Any, request: GroupsRequest, progress: Progress) -> Report:
    """Return a report with three rows for each group, then two for the whole step.

    The time of a group is from its release to its end on the slowest rank; the whole ends with the last
    group. The size of the whole is the sum of the groups' sizes.
    """
    hosts = comm.allgather(socket.gethostname())
    _require_memory(comm, request, far=len(set(hosts)) > 1)
    shared = crowded(comm.allgather((socket.gethostname(), os.sched_getaffinity(0))))
    progress.waiting(-1, "the groups: planning")
    step = _Step(comm, request)
    try:
        rows = step.rows(progress, shared)
    finally:
        step.close()
    return Report(
        ranks=comm.Get_size(),
        hosts=tuple(dict.fromkeys(hosts)),
        executor=executor_of(comm, "cpu"),
        library=OWN_WIRES if isinstance(comm, Group) else library_name(),
        warmup=request.warmup,
        iterations=request.iterations,
        rows=tuple(rows),
        average=request.average,
        label=f"{len(request.groups)} groups side by side",
        machine=machine(comm),
    )


class _Step:
    """The groups on this rank: buffers of each, and a plan for each of its two programs."""

    def __init__(self, comm: Any, request: GroupsRequest) -> None:
        self.comm, self.request = comm, request
        self.dtype, rank = dtype_of(request.dtype), comm.Get_rank()
        self.release_s = [group.release_s for group in request.groups]
        self.buffers, self.plans = [], []
        for number, group in enumerate(request.groups):
            # Over sockets, runs at once need connections of their own; over MPI each plan has them.
            own = comm.among(comm.members, f"group {number}") if isinstance(comm, Group) else comm
            layouts = [Layout(program, group.count) for program in (group.singly, group.together)]
            buffers = Buffers(layouts[0], rank, self.dtype, in_place=False)
            both = buffers.send, buffers.recv
            self.buffers.append(buffers)
            self.plans.append([MpiPlan(layout, own, *both, request.redop) for layout in layouts])

    def rows(self, progress: Progress, shared: str) -> list[Row]:
        groups, iterations = len(self.request.groups), self.request.iterations
        # For each way of running all at once: when each group ended on this rank, in each iteration.
        ends_s = np.zeros((2, groups, iterations))
        last_s: list[list[float]] = [[], []]

        def run_all(way: int) -> None:
            last_s[way] = MpiPlan.run_together([plans[way] for plans in self.plans], self.release_s)

        def keep(number: int, iteration: int, begin_s: float, end_s: float) -> None:
            if number >= groups:
                ends_s[number - groups, :, iteration] = last_s[number - groups]

        nothing = np.zeros(0)
        calls = [Call(plans[0].run, nothing) for plans in self.plans]
        calls += [Call(partial(run_all, way), nothing) for way in (0, 1)]
        names = [f"{group.name} alone" for group in self.request.groups]
        names += [f"all groups {way}" for way in _WAYS[1:]]
        self._fill()
        effort = Repetitions(self.request.warmup, iterations)
        alone_s = interleaved(self.comm, calls, names, effort, progress, keep)[:groups]
        own_s = np.stack([alone_s, *(ends_s - np.array(self.release_s)[:, None])])
        wrong = self._wrong(calls) if self.request.check else None
        return [
            *(
                self._row(at, way, own_s[way, at], None if wrong is None else wrong[way][at], shared)
                for at in range(groups)
                for way in range(len(_WAYS))
            ),
            *(
                self._whole(way, ends_s[way - 1], None if wrong is None else sum(wrong[way]), shared)
                for way in (_SINGLY, _TOGETHER)
            ),
        ]

    def close(self) -> None:
        for plan in (plan for plans in self.plans for plan in plans):
            plan.close()

    def _fill(self) -> None:
        for buffers in self.buffers:
            buffers.fill(self.request.redop)

    def _wrong(self, calls: Sequence[Call]) -> list[list[int]]:
        """Return the wrong elements of each group in each way, over all ranks; collective."""
        alone, singly, together = calls[: len(self.buffers)], calls[-2], calls[-1]
        found = []
        for of_way in (alone, [singly], [together]):
            self._fill()
            self.comm.Barrier()
            for call in of_way:
                call.run()
            own = [buffers.wrong(buffers.recv, self.request.redop) for buffers in self.buffers]
            found.append([sum(counts) for counts in zip(*self.comm.allgather(own), strict=True)])
        return found

    def _row(self, at: int, way: int, own_s: Array, wrong: int | None, shared: str) -> Row:
        group, collective = self.request.groups[at], self.request.groups[at].singly.collective
        row = Row(
            collective=collective.kind,
            size_bytes=self._size_bytes(group),
            count=group.count,
            dtype=dtype_name(self.dtype),
            redop=self.request.redop if collective.reduces else "none",
            root=collective.root if collective.kind in ROOTED else -1,
            program=f"{group.name}: {_WAYS[way]}",
            predicted_s=group.predicted_s[way],
            out_of_place=None,
            in_place=None,
            peers={},
            crowded=shared,
        )
        return self._measured(row, own_s, busbw_factor(collective.kind, collective.size), wrong)

    def _whole(self, way: int, ends_s: Array, wrong: int | None, shared: str) -> Row:
        groups = self.request.groups
        reduces = any(one.singly.collective.reduces for one in groups)
        row = Row(
            collective="several",
            size_bytes=sum(map(self._size_bytes, groups)),
            count=sum(one.count for one in groups),
            dtype=dtype_name(self.dtype),
            redop=self.request.redop if reduces else "none",
            root=-1,
            program=f"whole step: {_WAYS[way]}",
            predicted_s=self.request.predicted_s[way - 1],
            out_of_place=None,
            in_place=None,
            peers={},
            crowded=shared,
        )
        return self._measured(row, ends_s.max(axis=0), 1.0, wrong)

    def _size_bytes(self, group: MeasuredGroup) -> int:
        return size_bytes_of(group.singly.collective, group.count, self.dtype.itemsize)

    def _measured(self, row: Row, own_s: Array, factor: float, wrong: int | None) -> Row:
        average, samples = self.request.average, self.request.samples
        found = measurement(self.comm, own_s, row.size_bytes, factor, wrong, average=average, samples=samples)
        return replace(row, out_of_place=found)


def _require_memory(comm: Any, request: GroupsRequest, *, far: bool) -> None:
    """Raise UnavailableError on all ranks if a host lacks the memory for the buffers of all groups."""
    itemsize, needs = dtype_of(request.dtype).itemsize, []
    for group in request.groups:
        layouts = [Layout(program, group.count) for program in (group.singly, group.together)]
        needs.append(bench_need(layouts, comm.Get_rank(), itemsize, (False,), peers=False, far=far))
    whole = sum(need.memory_bytes for need in needs)
    require_room(comm, replace(needs[0], memory_bytes=whole), f"{len(needs)} groups at once")
