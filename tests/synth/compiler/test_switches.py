"""Programs in which switches sum and copy: proven, run with 0 wrong elements, and timed by their ports."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from random_orders import in_random_order

from ccctl.artifacts.codec import decode, encode
from exec.program import expected_output
from exec.program.interpreter import interpret
from exec.program.layout import Layout
from exec.runtimes import try_in_runtime
from probes.base import UsageError, ints
from synth.check.program import examine, judge
from synth.collective import collective
from synth.compiler import lower
from synth.methods import nvls
from synth.msccl import write_xml
from synth.mscclpp import plan_of
from synth.networks.dgx import pod
from synth.program import GLRE, GSTORE, OPS, SIGNAL, WAIT
from synth.schedules import COPY
from synth.simulation import Costs, replay, simulate_program

KINDS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce")


def scheduled(kind="all_reduce", spec="dgx-h100+nvls", laps=1, chunk_bytes=1 << 12):
    network = pod(spec)
    shape = collective(kind, network.ranks, laps * (1 if kind == "all_gather" else network.ranks))
    return nvls.synthesize(network, shape, chunk_bytes)


def wrong(program, count, dtype="float32", redop="sum", *, in_place=False):
    """The elements that are not what they must be, over all ranks."""
    layout, kind = Layout(program, count), np.dtype(dtype)
    inputs = [expected_output.given(layout, rank, kind, redop) for rank in range(program.ranks)]
    outputs = interpret(program, inputs, redop, in_place=in_place)
    right = (expected_output.expected(layout, rank, kind, redop) for rank in range(program.ranks))
    return sum(int(np.count_nonzero(one != other)) for one, other in zip(outputs, right, strict=True))


@pytest.mark.parametrize("spec", ["dgx-h100+nvls", "nvl36+nvls"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_judge_proves_what_is_lowered(kind, spec):
    program = lower(scheduled(kind, spec))
    verdict = examine(program)
    assert program.problems() == [] and verdict.findings == () and verdict.cautions == ()
    assert verdict.fifo_depth == 1
    assert program.uses_switches and (program.group == 0).all()


@pytest.mark.parametrize("spec", ["dgx-h100+nvls:2", "dgx-h100+nvls:3/rail"])
@pytest.mark.parametrize("kind", KINDS[:3])
def test_between_hosts_ranks_exchange_what_their_switches_summed(kind, spec):
    program, draw = lower(scheduled(kind, spec, laps=3)), random.Random(3)
    verdict = examine(program)
    assert program.problems() == [] and verdict.findings == () and verdict.cautions == ()
    np.testing.assert_array_equal(program.group, pod(spec).host_of)
    for in_place in [False] + [True] * program.in_place:
        with in_random_order(program, draw):
            assert wrong(program, 1001, in_place=in_place) == 0


def test_only_sums_of_hosts_travel_between_hosts():
    program = lower(scheduled(spec="dgx-h100+nvls:4"))
    src, dst = program.tb_rank[program.tb_of], program.tb_send[program.tb_of]
    sends = np.isin(program.op, [OPS.index(op) for op in ("s", "rcs", "rrs", "rrcs")])
    assert (src[sends] % 8 == dst[sends] % 8).all()
    # Each of 32 chunks goes from three hosts to its owner's, and back.
    assert sends.sum() == 32 * 3 * 2
    assert (program.op == GLRE).sum() == (program.op == GSTORE).sum() == 32 * 4


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_every_element_is_right_in_any_order(kind, instances):
    program, draw = lower(scheduled(kind, laps=2), instances=instances), random.Random(instances)
    for in_place in [False] + [True] * program.in_place:
        for count in (1, 96, 1001):
            with in_random_order(program, draw):
                assert wrong(program, count, in_place=in_place) == 0


def test_a_sum_is_read_and_its_copies_are_written_by_one_rank():
    program = lower(scheduled(laps=2))
    rank = program.tb_rank[program.tb_of]
    for op, where, slots in ((GLRE, "src", program.src_slot), (GSTORE, "dst", program.dst_slot)):
        rows = np.flatnonzero(program.op == op)
        assert len(rows) == 16 and (getattr(program, f"{where}_buffer")[rows] == (op == GSTORE)).all()
        assert sorted(slots[rows].tolist()) == list(range(16))
        assert np.bincount(rank[rows]).tolist() == [2] * 8
    # Two barriers of three rounds.
    assert (program.op == SIGNAL).sum() == (program.op == WAIT).sum() == 2 * 8 * 3


def test_the_program_of_a_large_buffer_has_as_many_threadblocks_as_nccl():
    assert lower(scheduled(laps=64)).threadblocks_max == 16
    assert lower(scheduled()).threadblocks_max == 3
    assert lower(scheduled(spec="nvl72+nvls")).threadblocks_max == 7


def test_the_file_keeps_the_group():
    program = lower(scheduled())
    found = decode(encode("program", program), "p.json", "program").body
    assert found.group.tolist() == [0] * 8 and found.op.tolist() == program.op.tolist()
    assert judge(found) == []


def test_the_simulator_takes_the_time_of_the_ports():
    schedule = scheduled(laps=16, chunk_bytes=1 << 20)
    program, costs = lower(schedule), Costs(step_s=0.0)
    timing = simulate_program(program, schedule.network, schedule.chunk_bytes, costs)
    assert timing.time_s == pytest.approx(replay(schedule).time_s, rel=0.02)
    assert timing.binding == "sums and copies of switches"
    np.testing.assert_allclose(timing.link_busy * timing.time_s, schedule.busy_s)


def test_other_networks_cannot_run_it():
    program = lower(scheduled())
    with pytest.raises(UsageError, match="no switch of dgx-h100 does"):
        simulate_program(program, pod("dgx-h100"), 1 << 12)


@pytest.mark.parametrize("write", [write_xml, lambda program: plan_of(program, [0] * 8), try_in_runtime])
def test_other_runtimes_refuse_it(write):
    with pytest.raises(UsageError, match="in nvls all_reduce switches sum and copy"):
        write(lower(scheduled()))


def test_a_chunk_in_different_slots_is_refused():
    schedule = scheduled("all_gather")
    turned = replace(schedule, collective=collective("gather", 8, 1))
    with pytest.raises(UsageError, match="chunk 0 lies in different slots of the ranks' buffers"):
        lower(turned)


def test_a_copy_by_another_rank_than_the_one_that_summed_is_not_proven():
    schedule = scheduled()
    turned = np.where(schedule.op == COPY, (schedule.chunk + 1) % 8, schedule.chunk)
    assert judge(lower(replace(schedule, chunk=ints(turned))))


def test_all_operations_have_names():
    assert OPS[-4:] == ("glre", "gstore", "signal", "wait")
