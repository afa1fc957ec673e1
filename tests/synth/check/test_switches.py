"""The judge on programs whose switches sum and copy: each flaw is found, and mutants that pass are right."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from assembler import Assembler
from random_orders import in_random_order
from switch_programs import copied_first

from exec.program import expected_output
from exec.program.interpreter import interpret
from exec.program.layout import Layout
from probes.base import bytes_of, ints
from synth.check.program import examine, judge
from synth.collective import collective
from synth.compiler import lower
from synth.methods import nvls
from synth.networks.dgx import pod
from synth.program import GLRE, GSTORE, INPUT, OPS, OUTPUT, SIGNAL, WAIT

NOP = OPS.index("nop")


def made(kind="all_reduce", laps=2):
    network = pod("dgx-h100+nvls")
    shape = collective(kind, 8, laps * (1 if kind == "all_gather" else 8))
    return lower(nvls.synthesize(network, shape, 1 << 12))


def changed(program, **rows):
    """The program with some rows of its columns set: ``op={3: 0}``."""
    columns = {}
    for name, values in rows.items():
        column = getattr(program, name).copy()
        for row, value in values.items():
            column[row] = value
        columns[name] = bytes_of(column) if column.dtype == np.uint8 else ints(column)
    return replace(program, **columns)


def first(program, op):
    return int(np.flatnonzero(program.op == op)[0])


def test_a_lost_signal_is_a_deadlock():
    program = made()
    step = first(program, SIGNAL)
    found = judge(changed(program, op={step: NOP}))
    assert any("(wait) waits for a message from rank 0 on channel 0 that never comes" in one for one in found)


def test_a_lost_signal_and_its_wait_leave_ranks_that_may_not_have_started():
    program = made()
    signals, waits = ((program.op == op) & (program.tb_rank[program.tb_of] == 0) for op in (SIGNAL, WAIT))
    start = np.flatnonzero(signals)[0]
    (to,) = program.tb_send[program.tb_of[[start]]].tolist()
    into = (program.op == WAIT) & (program.tb_recv[program.tb_of] == 0)
    waiting = np.flatnonzero(into & (program.tb_rank[program.tb_of] == to))[0]
    lost = changed(program, op={int(start): NOP, int(waiting): NOP})
    assert waits.any()
    found = judge(lost)
    assert any(
        f"rank {to} " in one and "reads the memory of rank 0, which may not have started" in one
        for one in found
    )
    assert any("writes the memory of rank 0, which may not have started" in one for one in found)


def test_without_the_last_signals_ranks_may_have_ended():
    program = made("all_gather")
    rank = program.tb_rank[program.tb_of]
    last = {int(np.flatnonzero((rank == one) & (program.op == op))[-1]): NOP for one, op in ((3, SIGNAL),)}
    to = int(program.tb_send[program.tb_of[next(iter(last))]])
    into = (program.op == WAIT) & (program.tb_recv[program.tb_of] == 3) & (rank == to)
    last[int(np.flatnonzero(into)[-1])] = NOP
    found = judge(changed(program, op=last))
    assert any(f"(gstore) writes the memory of rank {to}, which may have ended" in one for one in found)


@pytest.mark.parametrize("kind", ["all_reduce", "reduce_scatter", "all_gather"])
def test_each_step_is_needed(kind):
    program = made(kind, laps=1)
    for step in range(program.steps):
        lost = {"wait_tb": {step: -1}, "wait_step": {step: -1}}
        if program.op[step] != NOP or program.wait_tb[step] >= 0:
            assert judge(changed(program, op={step: NOP}, **lost)), program.place(step)
        if program.wait_tb[step] >= 0:
            assert judge(changed(program, **lost)), program.place(step)


def test_each_step_is_needed_where_switches_sum_what_was_just_written():
    program, races = copied_first(4), 0
    assert judge(program) == []
    for step in range(program.steps):
        lost = {"wait_tb": {step: -1}, "wait_step": {step: -1}}
        assert judge(changed(program, op={step: NOP}, count={step: 1}, **lost)), program.place(step)
        if program.wait_tb[step] >= 0:
            found = judge(changed(program, **lost))
            assert found, program.place(step)
            races += any(" of rank " in one and one.endswith(" in no certain order") for one in found)
    assert races >= 4


def test_a_wrong_place_is_found():
    program = made()
    glre, gstore = first(program, GLRE), first(program, GSTORE)
    slot = int(program.src_slot[glre])
    found = judge(changed(program, src_slot={glre: slot + 1}))
    assert any(f"it holds chunk {slot + 1}" in one for one in found)
    found = judge(changed(program, dst_slot={gstore: int(program.dst_slot[gstore]) + 3}))
    assert any("nothing is written there" in one for one in found)
    found = judge(changed(program, src_slot={glre: 16}))
    assert any("reads i[16:17], but that buffer has 16 slots" in one for one in found)


def test_a_wrong_group_is_found():
    program = made()
    found = judge(changed(program, group={5: 1}))
    assert any("there is no other rank in the group of rank 5" in one for one in found)
    halves = replace(program, group=ints([0, 0, 0, 0, 1, 1, 1, 1]))
    assert any("the contribution of ranks 4, 5, 6, 7 is missing" in one for one in judge(halves))
    assert replace(program, group=ints([])).problems() == [
        f"group: expected 8 values, op[{first(program, GLRE)}] is glre"
    ]
    assert replace(program, group=ints([0])).problems() == ["group: expected 8 values, found 1"]


def test_a_member_without_the_slots_is_found():
    program = made("reduce", laps=1)
    root = first(program, GLRE)
    stored = changed(program, op={root: GSTORE}, src_buffer={root: INPUT})
    found = judge(stored)
    assert any("(gstore) writes o[0:1] of rank 3, where that buffer has 0 slots" in one for one in found)


def test_messages_without_data_are_not_those_with_data():
    pair = collective("broadcast", 2, 1)
    build = Assembler(pair)
    out, into = build.threadblock(0, 1, -1), build.threadblock(1, -1, 0)
    build.step(out, OPS.index("cpy"), (INPUT, 0), (OUTPUT, 0))
    build.step(out, SIGNAL)
    build.step(into, OPS.index("r"), dst=(OUTPUT, 0))
    found = judge(build.program("by hand", [0, 0]))
    assert any("expects 1 chunks, the message has 0" in one for one in found)


def test_only_the_protocol_simple_has_messages_without_data():
    (problem,) = replace(made(), protocol="LL").problems()
    assert problem == "protocol: expected Simple beside steps of a group, found LL"
    program = made()
    assert changed(program, count={first(program, SIGNAL): 2}).problems() == [
        f"count[{first(program, SIGNAL)}]: expected 1, as a signal moves nothing, found 2"
    ]


def exchange(wanted, ready, done):
    """Rank 0 of two reads the sum of both and stores it at both; signals before and after it, as asked."""
    build = Assembler(wanted)
    one, two = build.threadblock(0, 1, 1), build.threadblock(1, 0, 0)
    if ready:
        build.step(two, SIGNAL)
        build.step(one, WAIT)
    build.step(one, GLRE, (INPUT, 0), (OUTPUT, 0))
    build.step(one, GSTORE, (OUTPUT, 0), (OUTPUT, 0))
    if done:
        build.step(one, SIGNAL)
        build.step(two, WAIT)
    return replace(build.program("by hand", [0] * wanted.ranks), group=ints([0] * wanted.ranks))


def test_a_program_by_hand():
    pair = collective("all_reduce", 2, 1)
    assert judge(exchange(pair, True, True)) == []
    assert judge(exchange(pair, False, True)) == [
        "rank 0 threadblock 0 step 0 (glre) reads the memory of rank 1, which may not have started",
        "rank 0 threadblock 0 step 1 (gstore) writes the memory of rank 1, which may not have started",
    ]
    found = judge(exchange(pair, True, False))
    assert "rank 0 threadblock 0 step 1 (glre) reads the memory of rank 1, which may have ended" in found


def test_accesses_of_a_switch_and_of_another_rank_are_ordered():
    pair = collective("all_reduce", 2, 1)
    build = Assembler(pair)
    one, two = build.threadblock(0, 1, 1), build.threadblock(1, 0, 0)
    build.step(two, SIGNAL)
    build.step(one, WAIT)
    build.step(one, GLRE, (INPUT, 0), (OUTPUT, 0))
    build.step(one, GSTORE, (OUTPUT, 0), (OUTPUT, 0))
    # Rank 1 writes where the switch writes, between its signal and its wait.
    build.step(two, OPS.index("cpy"), (INPUT, 0), (OUTPUT, 0))
    build.step(one, SIGNAL)
    build.step(two, WAIT)
    found = judge(replace(build.program("by hand", [0, 0], in_place=False), group=ints([0, 0])))
    assert len(found) == 1 and found[0].endswith("access o[0] of rank 1 in no certain order")
    assert "rank 0 threadblock 0 step 2 (gstore)" in found[0]
    assert "rank 1 threadblock 0 step 1 (cpy)" in found[0]


def test_sums_of_a_switch_have_bits_of_their_own():
    wanted = collective("all_reduce", 3, 1)
    build = Assembler(wanted)
    for rank in range(3):
        blocks = [build.threadblock(rank, (rank + away) % 3, (rank - away) % 3) for away in (1, 2)]
        waits = [build.step(block, op) for op in (SIGNAL, WAIT) for block in blocks][2:]
        done = build.step(blocks[0], GLRE, (INPUT, 0), (OUTPUT, 0), after=waits)
        for op in (SIGNAL, WAIT):
            for block in blocks:
                build.step(block, op, after=[done])
    program = replace(build.program("each reads", [0] * 3, in_place=False), group=ints([0, 0, 0]))
    verdict = examine(program)
    assert verdict.findings == ()
    (caution,) = verdict.other_bits
    assert "1 of 1 chunks are added up in different orders" in caution


COLUMNS = ("op", "src_buffer", "src_slot", "dst_buffer", "dst_slot", "wait_tb", "wait_step", "group")


def test_mutants_that_the_judge_accepts_give_the_right_result():
    draw, accepted, refused = random.Random(7), 0, 0
    for kind in ("all_reduce", "reduce_scatter", "all_gather"):
        program = made(kind, laps=1)
        for _ in range(120):
            column = draw.choice(COLUMNS)
            row = draw.randrange(len(getattr(program, column)))
            most = {"op": len(OPS) - 1, "src_buffer": 1, "dst_buffer": 1, "group": 1}.get(column, 8)
            mutant = changed(program, **{column: {row: draw.randrange(most + 1)}})
            if mutant.problems() or judge(mutant):
                refused += 1
                continue
            accepted += 1
            layout = Layout(mutant, 8)
            inputs = [expected_output.given(layout, rank, np.dtype("int64"), "sum") for rank in range(8)]
            for in_place in (False, True):
                with in_random_order(mutant, draw):
                    outputs = interpret(mutant, inputs, in_place=in_place)
                for rank, output in enumerate(outputs):
                    right = expected_output.expected(layout, rank, np.dtype("int64"), "sum")
                    np.testing.assert_array_equal(output, right)
    assert accepted > 20 and refused > 100
