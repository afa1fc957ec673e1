"""The time of a plan by the executor's costs: hops, rates, shared ports, and what orders blocks."""

from dataclasses import replace

import pytest
from drawn_examples import chessboard

from probes.base.errors import UsageError
from synth import compile as compiled, family, synthesize
from synth.mscclpp import ExecutionPlan, Operand, Operation, Threadblock, plan_of, plan_time_s
from synth.mscclpp.plan import PlanRank, RemoteBuffer
from synth.mscclpp.timing import (
    _HOP_S,
    _LAUNCH_S,
    _LOCAL_BYTES_PER_S,
    _OPERATION_S,
    _PUT_BYTES_PER_S,
    _SEMAPHORE_S,
)
from synth.networks.dgx import pod

HOP_S, PORT_S, RATE = _HOP_S["memory"], _HOP_S["port"], _PUT_BYTES_PER_S
MIB = 1 << 20


def one_put(chunks=1, kind="memory"):
    """Rank 0 puts ``chunks`` chunks to rank 1, which entered the kernel first."""
    channel = {"channel_type": kind, "channels": (0,)}
    ready, wait = ("rlxsignal", "rlxwait") if kind == "memory" else ("signal", "wait")
    target = Operand(0, chunks, remote=0)
    if kind == "memory":
        sends = (
            Operation("put", (Operand(0, chunks, "i"),), (target,), kind),
            Operation("nop"),
            Operation("signal", **channel),
        )
    else:
        sends = (Operation("pws", (Operand(0, chunks, "i"),), (target,), **channel),)
    sender = Threadblock((Operation(wait, **channel), Operation("nop"), *sends), **{kind: (0,)})
    receiver = Threadblock((Operation(ready, **channel), Operation("wait", **channel)), **{kind: (0,)})
    gpus = [
        PlanRank(
            chunks,
            chunks,
            0,
            **{"memory": (), "port": (), kind: (1 - rank,)},
            switch=(),
            remote_buffers=(RemoteBuffer(1 - rank, "o", (kind,)),),
            semaphores=(),
            threadblocks=(block,),
        )
        for rank, block in enumerate((sender, receiver))
    ]
    return ExecutionPlan("one put", "sendrecv", "Simple", False, tuple(gpus))


def one_put_across():
    """Rank 0 puts to rank 2 of four."""
    plan = one_put()
    first, second = plan.gpus
    idle = replace(first, memory=(), remote_buffers=(), threadblocks=())
    first = replace(first, memory=(2,), remote_buffers=(RemoteBuffer(2, "o", ("memory",)),))
    return replace(plan, gpus=(first, idle, replace(second, memory=(0,)), idle))


def pair(rate, alpha=1e-6):
    return family("fully_connected:2", [alpha], [rate])


def test_a_put_takes_a_hop_to_be_allowed_its_bytes_and_a_hop():
    fixed_s = _LAUNCH_S + 2 * HOP_S
    fast, slow = pair(100 * RATE), pair(RATE / 3)
    assert plan_time_s(one_put(), fast, MIB) == pytest.approx(fixed_s + _OPERATION_S + MIB / RATE)
    assert plan_time_s(one_put(), slow, MIB) == pytest.approx(fixed_s + 3 * MIB / RATE)


def test_a_link_that_is_slower_to_answer_than_a_hop_counts():
    late = plan_time_s(one_put(), pair(100 * RATE, alpha=1e-3), MIB)
    assert late == pytest.approx(_LAUNCH_S + HOP_S + _OPERATION_S + 1e-3 + MIB / RATE)


def test_a_port_takes_the_bytes_from_the_threadblock():
    assert plan_time_s(one_put(kind="port"), pair(1e9), MIB) == pytest.approx(
        _LAUNCH_S + 2 * PORT_S + MIB / 1e9
    )


def test_a_link_that_a_plan_needs_must_be_there():
    with pytest.raises(UsageError, match="no such link"):
        plan_time_s(one_put_across(), family("ring:4", [1e-6], [1e9]), MIB)


def alone(*blocks, semaphores=0):
    """The plan of one rank with the given blocks."""
    gpu = PlanRank(1, 1, 8, (), (), (), (), (0,) * semaphores, tuple(map(Threadblock, blocks)))
    return ExecutionPlan("alone", "allreduce", "Simple", True, (gpu,))


@pytest.mark.parametrize("operands", [2, 3, 10])
def test_each_further_operand_of_a_sum_takes_as_long(operands):
    one = Operation("re", (Operand(0, 1, "s"),) * operands, (Operand(0, 1, "i"),))
    taken_s = plan_time_s(alone([one]), pair(RATE), MIB)
    assert taken_s == pytest.approx(_LAUNCH_S + _OPERATION_S + (operands - 1) * MIB / _LOCAL_BYTES_PER_S)


def test_the_semaphores_of_an_operation_take_as_long_as_one():
    copy = Operation("copy", (Operand(0, 1, "s"),), (Operand(1, 1, "s"),))
    early, late = (
        [Operation("sem_release", semaphores=(0, 1))],
        [copy, Operation("sem_release", semaphores=(2,))],
    )
    for order in ((0, 1, 2), (2, 0, 1)):
        plan = alone(early, late, [Operation("sem_acquire", semaphores=order)], semaphores=3)
        copied_s = _OPERATION_S + MIB / _LOCAL_BYTES_PER_S
        assert plan_time_s(plan, pair(RATE), MIB) == pytest.approx(_LAUNCH_S + copied_s + 2 * _SEMAPHORE_S)


@pytest.mark.parametrize(
    ("kind", "hosts"), chessboard(["all_gather", "reduce_scatter", "all_reduce", "all_to_all"], [1, 2])
)
def test_plans_end_and_take_longer_for_more_bytes(kind, hosts):
    network = pod(f"l40s:{hosts}")
    schedule = synthesize(network, kind, MIB, jobs=0, quick=True).listed
    plan = plan_of(compiled(schedule), network.host_of.tolist())
    times = [plan_time_s(plan, network, size) for size in (MIB, 16 * MIB, 256 * MIB)]
    assert HOP_S < times[0] < times[1] < times[2] < float("inf")
    # Ports and links bound the time from below, as they do in a schedule.
    assert times[2] > 16 * times[1] * 0.5


def test_more_threadblocks_move_more_where_one_is_slower_than_the_link():
    network = pod("dgx-h100:1")
    schedule = synthesize(network, "all_reduce", 64 * MIB, method="all_pairs", jobs=0).listed
    plans = [plan_of(compiled(schedule, instances=count), network.host_of.tolist()) for count in (1, 4)]
    one_s, four_s = (plan_time_s(plan, network, 64 * MIB) for plan in plans)
    assert one_s / 4.1 < four_s < one_s / 2
