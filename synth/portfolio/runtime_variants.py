"""A schedule as a runtime loads it, in one or several instances, and its time by the runtime's costs.

The costs of MSCCL's and RCCL's interpreter are in `synth.simulation.protocols` (GC3 Sec. 4.3 and 5.3.2), the
costs of MSCCL++'s executor in `synth.mscclpp.timing`. A threadblock moves less than a link carries, so
several instances, which have their own channels and threadblocks, are often faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from probes.base import UsageError
from synth.check import judge
from synth.compiler import lower
from synth.msccl import never_ends, separate_reductions
from synth.mscclpp import ExecutionPlan, examine_plan, plan_of, plan_time_s, switch_plan
from synth.network import Network
from synth.portfolio.runtime_limits import chunk_limit, grid_of, plan_limit, program_limits, size_limit
from synth.program import Program, Protocol
from synth.schedules import Schedule
from synth.simulation import PROTOCOLS, time_by

__all__ = ["INSTANCES", "Variant", "variant_of", "variant_of_schedule", "variants_of"]

# The numbers of instances to try.
INSTANCES = (1, 2, 4, 8)
# The multiprocessors of a V100 (GC3 Sec. 4.4); most GPUs that run such programs have more.
_FEWEST_MULTIPROCESSORS = 80
# Programs of more steps are left out: simulating one takes seconds for each size.
_MOST_STEPS = 200_000
# Plans of several instances with more sends are left out: compiling one takes seconds.
_MOST_PLAN_SENDS = 5_000


@dataclass(frozen=True, eq=False)
class Variant:
    """A program in ``instances`` parallel copies, its plan if the runtime is MSCCL++, and its protocols.

    There is no program beside the plan of a schedule that switches carry out.
    """

    runtime: str
    instances: int
    program: Program | None
    plan: ExecutionPlan | None = None
    protocols: tuple[Protocol, ...] = tuple(PROTOCOLS)

    def times_s(self, network: Network, size_bytes: int) -> Mapping[Protocol, float]:
        """Return the seconds on a buffer by the runtime's costs, with each of its protocols."""
        if self.plan is not None:
            return {"Simple": plan_time_s(self.plan, network, size_bytes)}
        assert self.program is not None
        return {protocol: time_by(protocol, self.program, network, size_bytes) for protocol in self.protocols}

    @cached_property
    def findings(self) -> Sequence[str]:
        """The findings of the runtime's judge; an empty list proves the variant."""
        if self.plan is not None:
            return examine_plan(self.plan).findings
        assert self.program is not None
        return judge(self.program)

    def limit_at(self, size_bytes: int) -> str:
        """Return the limit that forbids the variant on a buffer of this size; "" if none."""
        limit = ""
        if self.program is not None:
            limit = chunk_limit(self.program.collective, self.runtime, size_bytes)
        return limit if limit or self.plan is None else size_limit(self.plan, size_bytes)

    def by(self, protocol: Protocol) -> Variant:
        if self.program is None or protocol == self.program.protocol:
            return self
        return replace(self, program=replace(self.program, protocol=protocol))

    def within(self, from_bytes: int, to_bytes: int) -> Variant:
        """Return the variant for a range of sizes, with a name of its own.

        MSCCL++ tells the plans of a process apart by their names.
        """
        assert self.program is not None  # plans with switches are not made for ranges
        name = f"{self.program.name} {self.program.protocol} x{self.instances}"
        program = replace(self.program, name=name, min_bytes=from_bytes, max_bytes=to_bytes)
        plan = self.plan
        if plan is not None:
            plan = replace(plan, name=f"{name} from {from_bytes}").within(from_bytes, to_bytes)
        return replace(self, program=program, plan=plan)


def variant_of(
    program: Program, network: Network, runtime: str, instances: int = 1
) -> tuple[Variant | None, str]:
    """Return a compiled program as the runtime loads it, or None and the limit that forbids it.

    If the network does not state the multiprocessors of its GPUs, several instances must fit the smallest
    GPU, and a single instance has no limit.
    """
    most = network.multiprocessors or (_FEWEST_MULTIPROCESSORS if instances > 1 else 0)
    if runtime == "mscclpp":
        plan = plan_of(program, network.host_of.tolist())
        limit = plan_limit(plan, most)
        return (None, limit) if limit else (Variant(runtime, instances, program, plan), "")
    program = separate_reductions(program)
    findings = program_limits(program, runtime, most)
    if findings:
        return None, findings[0]
    hosts = len(np.unique(network.host_of))
    able = tuple(one for one in PROTOCOLS if hosts == 1 or not never_ends(program, runtime, one))
    program = program if program.protocol in able else replace(program, protocol=able[0])
    return Variant(runtime, instances, program, protocols=able), ""


def variant_of_schedule(
    schedule: Schedule, runtime: str, instances: int = 1, grid: int = 0
) -> tuple[Variant | None, str]:
    """Return a schedule as the runtime loads it, on a grid of chunks, or None and the limit that forbids it.

    A fused instruction ties a peer to receive from to a peer to send to, so a rank that forwards between many
    peers needs a threadblock for each pair of peers. If that exceeds a limit, no instructions are fused. Then
    each peer needs one threadblock to send to it, and one to receive from it.
    """
    if schedule.uses_switches:
        return _with_switches(schedule, instances)
    fused = lower(schedule, instances=instances, grid=grid)
    made, limit = variant_of(fused, schedule.network, runtime, instances)
    if made is None:
        apart = lower(schedule, instances=instances, fuse=False, grid=grid)
        made, _ = variant_of(apart, schedule.network, runtime, instances)
    return made, "" if made is not None else limit


def _with_switches(schedule: Schedule, instances: int) -> tuple[Variant | None, str]:
    """Return a schedule that switches carry out as MSCCL++ loads it, or None and what forbids it."""
    if instances > 1:
        return None, "several instances of a switch's operations gain nothing: all threads share them"
    try:
        plan = switch_plan(schedule)
    except UsageError as error:
        return None, error.message
    limit = plan_limit(plan, schedule.network.multiprocessors)
    return (None, limit) if limit else (Variant("mscclpp", 1, None, plan), "")


def variants_of(
    schedule: Schedule,
    runtime: str,
    size_bytes: int,
    instances: Sequence[int] = INSTANCES,
    most_steps: int = _MOST_STEPS,
) -> Iterator[Variant]:
    """Yield a schedule for a size in each number of instances, ascending, up to the runtime's limits."""
    for count in instances:
        sends = schedule.sends * count
        if sends > most_steps or (runtime == "mscclpp" and count > 1 and sends > _MOST_PLAN_SENDS):
            return
        grid = grid_of(schedule.collective.cut(count), runtime, size_bytes)
        variant, _ = variant_of_schedule(schedule, runtime, count, grid)
        if variant is None:
            return
        yield variant
