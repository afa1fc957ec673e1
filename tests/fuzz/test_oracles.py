"""The oracles accept what is right and refuse what is wrong in known ways."""

import re
from dataclasses import replace

import pytest
from assembler import Assembler
from oracles import ACCEPTED, program, schedule
from sample_schedules import complete, random_schedule, ring_all_reduce, schedule_of

from probes.base.columns import bytes_of, ints
from synth.collective import KINDS, collective, several
from synth.compiler.lowering import lower
from synth.network import Link, build
from synth.program import INPUT, OPS, OUTPUT, SCRATCH
from synth.schedules import COPY, REDUCE

OP = {name: number for number, name in enumerate(OPS)}


@pytest.mark.parametrize("kind", KINDS)
def test_right_schedules_and_their_programs_are_accepted(kind):
    for seed in range(3):
        right = random_schedule(kind, 3, 2, seed)
        assert schedule.judge(right) == ACCEPTED
        assert program.judge(lower(right), runs=2) == ACCEPTED


def test_collectives_at_once_are_accepted():
    one, two = collective("broadcast", 2, 1), collective("reduce", 2, 1, root=1)
    both = schedule_of(complete(2), several([one, two]), [(0, 0, 1, COPY), (1, 0, 1, REDUCE)])
    assert schedule.judge(both) == ACCEPTED


SUM = collective("reduce", 3, 1, root=2)
GATHER = collective("gather", 3, 1, root=2)
WRONG_SENDS = {
    "lacks chunk": (GATHER, [(0, 1, 2, COPY), (0, 0, 1, COPY)]),
    "without the complete chunk": (GATHER, [(0, 0, 2, COPY)]),
    "contribution of rank 0 twice": (SUM, [(0, 0, 2, REDUCE), (0, 0, 2, REDUCE), (0, 1, 2, REDUCE)]),
    # Whole, but a copy of plain data is no sum.
    "adds the contribution of rank -1": (
        GATHER,
        [(0, 0, 2, COPY), (1, 1, 2, COPY), (0, 0, 2, REDUCE)],
    ),
}


@pytest.mark.parametrize("reason", WRONG_SENDS)
def test_a_wrong_schedule_is_refused(reason):
    asked, sends = WRONG_SENDS[reason]
    verdict = schedule.judge(schedule_of(complete(3), asked, sends))
    assert not verdict.accepted
    assert reason in verdict.reason


def test_a_chunk_that_changes_while_it_is_sent_is_refused():
    slow = build(
        "slow", ["a", "b", "c"], [Link(1, 2, 0.0, 1e-6), Link(0, 1, 0.0, 1e-9), Link(0, 2, 0.0, 1e-9)]
    )
    sends = [(0, 1, 2, REDUCE), (0, 0, 1, REDUCE), (0, 0, 2, REDUCE)]
    assert "changes at rank 1" in schedule.judge(schedule_of(slow, SUM, sends)).reason


def test_a_schedule_that_refers_to_what_is_not_there_is_refused():
    ring = ring_all_reduce(3)
    strays = (
        {"link": ints([*ring.link[:-1], 99])},
        {"chunk": ints([*ring.chunk[:-1], -1])},
        {"op": bytes_of([*ring.op[:-1], 2])},
        {"collective": collective("all_reduce", 4, 4)},
        {"collective": replace(ring.collective, custom=object())},
        {"collective": replace(ring.collective, parts=(ring.collective, ring.collective))},
    )
    assert schedule.judge(ring) == ACCEPTED
    assert not any(schedule.judge(replace(ring, **stray)).accepted for stray in strays)


def program_of(asked, steps, scratch=0, **claims):
    """A program from (rank, send, recv, op, src, dst, count, after) of each step."""
    build, places = Assembler(asked), []
    for rank, send, recv, op, src, dst, count, *after in steps:
        tb = build.threadblock(rank, send, recv)
        waits = [places[step] for step in after]
        places.append(build.step(tb, OP[op], src or (0, -1), dst or (0, -1), count=count, after=waits))
    made = build.program("by hand", [scratch] * asked.ranks)
    return replace(made, **{"in_place": False, **claims})


PAIR = collective("broadcast", 2, 3)
ALL = collective("all_reduce", 2, 1)
ROOT = (0, 1, -1, "cpy", (INPUT, 0), (OUTPUT, 0), 3)
SEND = (0, 1, -1, "s", (INPUT, 0), None, 3)
EXCHANGE = [
    step
    for me in (0, 1)
    for step in (
        (me, 1 - me, 1 - me, "s", (INPUT, 0), None, 1),
        (me, 1 - me, 1 - me, "rrc", (INPUT, 0), (OUTPUT, 0), 1),
    )
]
WRONG_STEPS = {
    # Shifted up by one and down again: right for memmove, wrong for a copy in ascending order.
    "overlaps partly": (
        PAIR,
        [
            (1, -1, 0, "r", None, (SCRATCH, 0), 3),
            (1, -1, 0, "cpy", (SCRATCH, 0), (SCRATCH, 1), 3),
            (1, -1, 0, "cpy", (SCRATCH, 1), (OUTPUT, 0), 3),
        ],
    ),
    # Before the message is there, or without any order: as the runs happen to go.
    "nothing has written|race": (
        PAIR,
        [
            (1, -1, 0, "r", None, (SCRATCH, 0), 3),
            (1, 0, -1, "cpy", (SCRATCH, 0), (OUTPUT, 0), 3),
        ],
    ),
    "deadlock": (PAIR, [(1, 0, -1, "nop", None, None, 1), (1, -1, 0, "r", None, (OUTPUT, 0), 3), SEND, SEND]),
    "receives 3": (PAIR, [(1, -1, 0, "r", None, (OUTPUT, 0), 2)]),
    "nobody receives": (PAIR, [(1, -1, 0, "r", None, (OUTPUT, 0), 3), SEND]),
    "ends with": (PAIR, [(1, -1, 0, "r", None, (SCRATCH, 0), 3)]),
    "nothing has written": (PAIR, [(1, -1, 0, "re", (SCRATCH, 0), (OUTPUT, 0), 3)]),
    "leaves its buffer": (PAIR, [(1, -1, 0, "r", None, (OUTPUT, 1), 3)]),
    "belongs to the caller": (PAIR, [(0, 1, -1, "cpy", (INPUT, 0), (INPUT, 0), 3)]),
}


@pytest.mark.parametrize("reason", WRONG_STEPS)
def test_a_wrong_program_is_refused(reason):
    asked, steps = WRONG_STEPS[reason]
    verdict = program.judge(program_of(asked, [ROOT, SEND, *steps], scratch=4))
    assert not verdict.accepted
    assert re.search(reason, verdict.reason)


def test_overlap_shows_in_the_run_itself():
    steps = [
        ROOT,
        SEND,
        (1, -1, 0, "r", None, (SCRATCH, 0), 3),
        (1, -1, 0, "cpy", (SCRATCH, 0), (SCRATCH, 1), 3),
        (1, -1, 0, "cpy", (SCRATCH, 1), (OUTPUT, 0), 3),
    ]
    made = program_of(PAIR, steps, scratch=4)
    asked, inputs = program._asked(made)
    blocks = program._blocks(made)
    memory = program._memory(asked, inputs, program._sizes(made, asked, inputs), in_place=False)
    with pytest.raises(program._Wrong, match=r"ends with"):
        program._Run(blocks, memory, asked, inputs, 2, program.random.Random(0)).finish()


def test_what_is_right_apart_may_be_wrong_in_place():
    assert program.judge(program_of(ALL, EXCHANGE)) == ACCEPTED
    apart = [(0, 1, -1, *EXCHANGE[0][3:]), (0, -1, 1, *EXCHANGE[1][3:]), *EXCHANGE[2:]]
    assert program.judge(program_of(ALL, apart)) == ACCEPTED
    assert program.judge(program_of(ALL, apart, in_place=True)).reason.startswith("in place: ")


def test_a_full_connection_is_a_deadlock():
    # Both send twice before they receive: two places are enough, one is not.
    asked, steps = collective("all_gather", 2, 2), []
    for me, peer in ((0, 1), (1, 0)):
        steps += [(me, peer, peer, "s", (INPUT, slot), None, 1) for slot in (0, 1)]
        steps += [(me, peer, peer, "r", None, (OUTPUT, 2 * peer + slot), 1) for slot in (0, 1)]
        steps += [(me, -1, -1, "cpy", (INPUT, 0), (OUTPUT, 2 * me), 2)]
    assert program.judge(program_of(asked, steps)) == ACCEPTED
    assert "deadlock" in program.judge(program_of(asked, steps), depth=1).reason
