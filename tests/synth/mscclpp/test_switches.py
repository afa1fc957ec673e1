"""Plans in which switches sum and copy: proven by the judge, and run with 0 wrong elements."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from exec.runtimes.mscclpp import run_plan
from probes.base import UsageError, ints
from synth import Request, synthesize
from synth.collective import collective
from synth.methods import nvls
from synth.mscclpp import examine_plan, plan_time_s, read_plan, switch_plan, write_plan
from synth.networks.dgx import pod
from synth.schedules import COPY
from synth.simulation import replay


def made(spec="dgx-h100+nvls", kind="all_reduce", laps=1, chunk_bytes=1 << 12):
    network = pod(spec)
    shape = collective(kind, network.ranks, laps * (1 if kind == "all_gather" else network.ranks))
    return nvls.synthesize(network, shape, chunk_bytes)


# Each network and each collective in place and out of place.
@pytest.mark.parametrize(
    ("spec", "kind", "laps", "in_place"),
    [
        pytest.param(
            spec, kind, laps, in_place, id=f"{spec}-{kind}-{laps}-{'in' if in_place else 'out of'} place"
        )
        for row, (spec, shapes) in enumerate(
            {
                "dgx-h100+nvls": (("all_reduce", 1), ("all_reduce", 3), ("all_gather", 2)),
                "dgx-h100+nvls:2": (("all_reduce", 1), ("all_reduce", 3), ("all_gather", 2)),
                "dgx-h100+nvls:3/rail": (("all_reduce", 1), ("all_gather", 1)),
            }.items()
        )
        for column, (kind, laps) in enumerate(shapes)
        for in_place in [(row + column) % 2 == 0]
    ],
)
def test_every_element_is_right(spec, kind, laps, in_place):
    plan = switch_plan(made(spec, kind, laps), in_place=in_place)
    assert examine_plan(plan).findings == ()
    assert read_plan(json.loads(write_plan(plan)), "plan") == plan
    # An order of eight ranks takes 30 ms, of 24 ranks ten times as long.
    for seed in range(3) if plan.ranks == 8 else [plan.ranks + laps]:
        report = run_plan(plan, seed)
        assert report.right and report.wrong == 0 and report.elements > 0


def test_the_file_has_the_names_of_the_library():
    (gpu, *_) = json.loads(write_plan(switch_plan(made())))["gpus"]
    (group,) = [channel for channel in gpu["channels"] if channel["channel_type"] == "switch"]
    assert group["buffer_type"] == "i"
    assert group["rank_groups"] == [{"size": 8, "ranks": list(range(8))}]
    (sums,) = [op for op in gpu["threadblocks"][0]["ops"] if op["name"] == "glres"]
    operand = [{"switch_channel_id": 0, "index": 0, "size": 1}]
    assert sums["src_buff"] == sums["dst_buff"] == operand
    assert (sums["channel_type"], sums["reduce_op"]) == ("switch", "sum")


def test_blocks_share_the_signals_of_a_large_domain():
    plan = switch_plan(made("nvl72+nvls"))
    assert plan.threadblocks_max == 5
    assert examine_plan(plan).findings == ()


def test_only_sums_of_hosts_go_over_ports():
    plan = switch_plan(made("dgx-h100+nvls:4"))
    assert plan.ranks == 32 and all(gpu.scratch_chunks == 32 + 3 for gpu in plan.gpus)
    for rank, gpu in enumerate(plan.gpus):
        assert {peer % 8 for peer in gpu.port} == {rank % 8}
        names = [operation.name for block in gpu.threadblocks for operation in block.operations]
        # Each rank sums and copies four chunks, of which it owns one.
        assert names.count("glres") == names.count("gstore") == 4
        assert names.count("re") == 1 and names.count("pws") == 3 + 3


def test_more_chunks_than_a_block_can_have_get_more_blocks():
    plan = switch_plan(made("dgx-h100+nvls:2", laps=64))
    assert plan.threadblocks_max > 16
    assert max(block.stored for gpu in plan.gpus for block in gpu.threadblocks) <= 64


@pytest.mark.parametrize(("spec", "laps"), [("dgx-h100+nvls", 2), ("dgx-h100+nvls:2", 1)])
def test_each_operation_but_nops_is_needed(spec, laps):
    plan = switch_plan(made(spec, laps=laps))
    (block, *others), gpu = plan.gpus[0].threadblocks, plan.gpus[0]
    for at, operation in enumerate(block.operations):
        left = (*block.operations[:at], *block.operations[at + 1 :])
        changed = replace(gpu, threadblocks=(replace(block, operations=left), *others))
        found = examine_plan(replace(plan, gpus=(changed, *plan.gpus[1:]))).findings
        assert found or operation.name == "nop", (at, operation)


@pytest.mark.parametrize("kind", ["reduce_scatter", "broadcast", "reduce"])
def test_what_the_executor_has_no_operation_for_is_refused(kind):
    with pytest.raises(UsageError, match=f"with switches a plan of MSCCL.. cannot do {kind}"):
        switch_plan(made(kind=kind))


def test_sends_inside_hosts_are_refused():
    schedule = made()
    plain = np.where(schedule.chunk == 3, -1, schedule.multimem)
    with pytest.raises(UsageError, match="in a plan with switches ranks of a host do not send"):
        switch_plan(replace(schedule, multimem=ints(plain)))


def test_a_copy_by_another_rank_than_the_one_that_summed_is_refused():
    schedule = made()
    turned = np.where(schedule.op == COPY, (schedule.chunk + 1) % 8, schedule.chunk)
    with pytest.raises(UsageError, match=r"rank \d sums chunk (\d), and rank \d copies the sum"):
        switch_plan(replace(schedule, chunk=ints(turned)))


def test_the_costs_of_the_executor_are_those_of_the_ports_and_a_few_operations():
    schedule = made(laps=16, chunk_bytes=1 << 20)
    size_bytes = schedule.collective.total_bytes(schedule.chunk_bytes)
    time_s = plan_time_s(switch_plan(schedule), schedule.network, size_bytes)
    assert time_s == pytest.approx(replay(schedule).time_s, rel=0.2)


@pytest.mark.parametrize("runtime", ["mscclpp", "msccl"])
def test_the_planner_loads_them_where_the_runtime_can(runtime):
    network = pod("dgx-h100+nvls")
    request = Request(network, "all_reduce", size_bytes=64 << 20, method="nvls", runtime=runtime)
    if runtime == "msccl":
        with pytest.raises(UsageError) as raised:
            synthesize(request)
        assert "no instruction with which switches sum and copy" in str(raised.value)
        return
    loaded = synthesize(request).loaded
    assert loaded is not None and loaded.program is None and loaded.plan is not None
    assert any(op.name == "glres" for op in loaded.plan.gpus[0].threadblocks[0].operations)
