"""Each thing the judge must find, in a program that is wrong in just that way."""

import re
from dataclasses import replace

import pytest
from assembler import Assembler

from probes.base.columns import bytes_of, ints
from probes.base.errors import DataError
from synth.check.program import examine, judge
from synth.collective import collective
from synth.msccl.read import read_xml
from synth.msccl.write import write_xml
from synth.program import INPUT, OPS, OUTPUT, SCRATCH

OP = {name: number for number, name in enumerate(OPS)}
PAIR = collective("all_reduce", 2, 1)


def program_of(wanted, steps, scratch=0, **claims):
    """A program from (rank, send, recv, op, src, dst, after); ``after`` are numbers of earlier steps."""
    build, places = Assembler(wanted), []
    for rank, send, recv, op, src, dst, *after in steps:
        tb = build.threadblock(rank, send, recv)
        waits = [places[step] for step in after]
        places.append(build.step(tb, OP[op], src or (0, -1), dst or (0, -1), after=waits))
    program = build.program("by hand", [scratch] * wanted.ranks)
    return replace(program, **claims)


def exchange(ranks=(0, 1)):
    """Each of two ranks sends its input and adds what it receives."""
    steps = []
    for me, peer in (ranks, ranks[::-1]):
        steps.append((me, peer, peer, "s", (INPUT, 0), None))
        steps.append((me, peer, peer, "rrc", (INPUT, 0), (OUTPUT, 0)))
    return steps


def test_a_right_program_has_no_findings():
    assert judge(program_of(PAIR, exchange())) == []


def test_every_fused_op_is_followed():
    # A ring of three: rank 0 → 1 → 2 reduces, 2 → 0 → 1 copies.
    wanted = collective("all_reduce", 3, 1)
    steps = [
        (0, 1, 2, "s", (INPUT, 0), None),
        (1, 2, 0, "rrs", (INPUT, 0), None),
        (2, 0, 1, "rrcs", (INPUT, 0), (OUTPUT, 0)),
        (0, 1, 2, "rcs", None, (OUTPUT, 0)),
        (1, 2, 0, "r", None, (OUTPUT, 0)),
    ]
    assert judge(program_of(wanted, steps)) == []


def test_re_adds_into_its_destination():
    steps = []
    for me, peer in ((0, 1), (1, 0)):
        steps.append((me, peer, peer, "s", (INPUT, 0), None))
        steps.append((me, peer, peer, "r", None, (SCRATCH, 0)))
        steps.append((me, peer, peer, "cpy", (INPUT, 0), (OUTPUT, 0)))
        steps.append((me, peer, peer, "re", (SCRATCH, 0), (OUTPUT, 0)))
    assert judge(program_of(PAIR, steps, scratch=1)) == []


WRONG = {
    "a deadlock names who waits for whom": (
        [
            (0, 1, 1, "rrc", (INPUT, 0), (OUTPUT, 0)),
            (0, 1, 1, "s", (INPUT, 0), None),
            (1, 0, 0, "rrc", (INPUT, 0), (OUTPUT, 0)),
            (1, 0, 0, "s", (INPUT, 0), None),
        ],
        r"rank 0 threadblock 0 step 0 \(rrc\) waits for a message from rank 1 on channel 0",
    ),
    "a full connection": (
        [(0, 1, -1, "s", (INPUT, 0), None)] * 3 + [(1, -1, 0, "nop", None, None)],
        r"rank 0 threadblock 0 step 2 \(s\) waits for rank 1 to receive on channel 0: all 2 places",
    ),
    "messages that nobody takes": (
        [*exchange(), (0, 1, 1, "s", (INPUT, 0), None)],
        r"rank 0 threadblock 0 sends 1 messages to rank 1 that nobody receives",
    ),
    "an unwritten slot": (
        [(0, -1, -1, "cpy", (SCRATCH, 0), (OUTPUT, 0)), *exchange()],
        r"rank 0 threadblock \d step 0 \(cpy\) reads s\[0\], which nothing has written",
    ),
    "a slot out of range": (
        [*exchange(), (1, -1, -1, "cpy", (INPUT, 1), (OUTPUT, 0))],
        r"rank 1 threadblock \d step 0 \(cpy\) reads i\[1:2\], but that buffer has 1 slots",
    ),
    "a send without a peer": (
        [*exchange(), (0, -1, -1, "s", (INPUT, 0), None)],
        r"rank 0 threadblock \d step 0 \(s\) sends, but its threadblock has no peer",
    ),
    "a missing contribution": (
        [
            (0, 1, -1, "s", (INPUT, 0), None),
            (1, -1, 0, "rrc", (INPUT, 0), (OUTPUT, 0)),
            (0, -1, -1, "cpy", (INPUT, 0), (OUTPUT, 0)),
        ],
        r"rank 0 must end with chunk 0 in o\[0\]: the contribution of rank 1 is missing",
    ),
    "a contribution added twice": (
        [*exchange(), (0, 1, 1, "s", (INPUT, 0), None), (1, 0, 0, "rrc", (OUTPUT, 0), (OUTPUT, 0))],
        r"rank 1 must end .*: rank 1 threadblock 0 step 2 \(rrc\) adds the contribution of rank 0",
    ),
    "a result that is never written": (
        [(0, 1, -1, "s", (INPUT, 0), None), (1, -1, 0, "rrc", (INPUT, 0), (OUTPUT, 0))],
        r"rank 0 must end with chunk 0 in o\[0\]: nothing is written there",
    ),
    "an input that is overwritten": (
        [
            (0, 1, 1, "s", (INPUT, 0), None),
            (0, 1, 1, "rrc", (INPUT, 0), (INPUT, 0)),
            (0, 1, 1, "cpy", (INPUT, 0), (OUTPUT, 0)),
            *exchange()[2:],
        ],
        r"rank 0 threadblock 0 step 1 \(rrc\) writes i\[0\], but out of place the input belongs",
    ),
    "a race between two threadblocks": (
        [
            (0, 1, -1, "s", (INPUT, 0), None),
            (0, -1, 1, "rrc", (INPUT, 0), (OUTPUT, 0)),
            (0, -1, -1, "cpy", (INPUT, 0), (OUTPUT, 0)),
            *exchange()[2:],
        ],
        r"rank 0 threadblock \d step 0 .* and rank 0 threadblock \d step 0 .* access o\[0\]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_is_found(name):
    steps, expected = WRONG[name]
    program = program_of(PAIR, steps, scratch=1, in_place=False)
    assert program.problems() == []
    found = judge(program)
    assert any(re.search(expected, finding) for finding in found), found


def test_what_is_right_apart_may_race_in_place():
    # Out of place the send reads the input and the receive writes the output; in place both are one.
    steps = []
    for me, peer in ((0, 1), (1, 0)):
        steps.append((me, peer, -1, "s", (INPUT, 0), None))
        steps.append((me, -1, peer, "rrc", (INPUT, 0), (OUTPUT, 0)))
    program = program_of(PAIR, steps)
    assert judge(replace(program, in_place=False)) == []
    found = judge(program)
    assert found
    assert all(finding.startswith("in place: ") for finding in found)
    ordered = [(*step, 2 * (at // 2)) if at % 2 else step for at, step in enumerate(steps)]
    assert judge(program_of(PAIR, ordered)) == []


def test_order_through_another_rank_is_no_race():
    # Rank 0's second receive can only follow its first send: rank 1 answers it.
    wanted = collective("broadcast", 2, 1)
    steps = [
        (0, 1, -1, "s", (INPUT, 0), None),
        (1, 0, 0, "r", None, (OUTPUT, 0)),
        (1, 0, 0, "s", (OUTPUT, 0), None),
        (0, -1, 1, "r", None, (OUTPUT, 0)),
    ]
    assert judge(program_of(wanted, steps)) == []


def test_two_threadblocks_on_one_connection():
    program = program_of(PAIR, [*exchange(), (0, 1, -1, "s", (INPUT, 0), None)])
    assert any("both send to rank 1 on channel 0" in finding for finding in judge(program))


def test_messages_of_another_length():
    program = program_of(
        collective("broadcast", 2, 2), [(0, 1, -1, "s", (INPUT, 0), None), (1, -1, 0, "r", None, (OUTPUT, 0))]
    )
    program = replace(program, count=ints([2, 1]))
    assert any("expects 1 chunks, the message has 2" in finding for finding in judge(program))


def test_a_smaller_fifo_can_deadlock():
    # Both send twice before they receive: two places are enough, one is not.
    wanted = collective("all_gather", 2, 2)
    steps = []
    for me, peer in ((0, 1), (1, 0)):
        steps += [(me, peer, peer, "s", (INPUT, slot), None) for slot in (0, 1)]
        steps += [(me, peer, peer, "r", None, (OUTPUT, 2 * peer + slot)) for slot in (0, 1)]
        steps += [(me, -1, -1, "cpy", (INPUT, slot), (OUTPUT, 2 * me + slot)) for slot in (0, 1)]
    program = program_of(wanted, steps)
    assert judge(program, depth=2) == []
    assert judge(program, depth=1)


def test_a_program_that_claims_no_placement_is_refused():
    assert judge(program_of(PAIR, exchange(), in_place=False, out_of_place=False))


def test_only_reducing_collectives_reduce():
    wanted = collective("broadcast", 2, 1)
    steps = [
        (0, 1, -1, "s", (INPUT, 0), None),
        (0, -1, -1, "cpy", (INPUT, 0), (OUTPUT, 0)),
        (0, 1, -1, "s", (INPUT, 0), None),
        (1, -1, 0, "r", None, (OUTPUT, 0)),
        (1, -1, 0, "rrc", (OUTPUT, 0), (OUTPUT, 0)),
    ]
    found = judge(program_of(wanted, steps, in_place=False))
    assert any("reduces chunk 0, which broadcast only copies" in finding for finding in found)


def test_columns_that_disagree_are_problems_of_the_file():
    program = program_of(PAIR, exchange())
    assert program.problems() == []
    wrong = {
        "tb_start": ints([0, 3, 1]),
        "count": ints([1, 1]),
        "wait_tb": ints([1, -1, -1, -1]),
        "op": bytes_of([99, 0, 0, 0]),
        "tb_rank": ints([1, 0]),
        "tb_send": ints([7, 0]),
        "scratch_chunks": (0,),
    }
    for name, column in wrong.items():
        assert any(name in problem for problem in replace(program, **{name: column}).problems()), name


def test_scratch_that_nothing_touches_is_a_caution():
    steps = []
    for me, peer in ((0, 1), (1, 0)):
        steps.append((me, peer, peer, "s", (INPUT, 0), None))
        steps.append((me, peer, peer, "r", None, (SCRATCH, 1 + me)))
        steps.append((me, peer, peer, "cpy", (INPUT, 0), (OUTPUT, 0)))
        steps.append((me, peer, peer, "re", (SCRATCH, 1 + me), (OUTPUT, 0)))
    found = examine(program_of(PAIR, steps, scratch=3, in_place=False))
    assert (found.findings, found.other_bits) == ((), ())
    assert found.cautions == (
        "no step touches 4 of 6 scratch slots, on 2 of 2 ranks: s[0] of rank 0 is the first",
    )


OVERLAPS = {
    "cpy": ("cpy", (SCRATCH, 0), (SCRATCH, 1)),
    "a copy downwards": ("cpy", (SCRATCH, 1), (SCRATCH, 0)),
    "re": ("re", (SCRATCH, 0), (SCRATCH, 1)),
    "rrc": ("rrc", (SCRATCH, 0), (SCRATCH, 1)),
    "rrcs": ("rrcs", (SCRATCH, 1), (SCRATCH, 0)),
}


def overlapping(op, src, dst):
    """Rank 1 writes two slots of which it reads one."""
    build = Assembler(collective("all_reduce", 2, 2))
    send = build.threadblock(0, send=1)
    build.step(send, OP["s"], src=(INPUT, 0), count=2)
    block = build.threadblock(1, send=0 if op == "rrcs" else -1, recv=0)
    build.step(block, OP["r"], dst=(SCRATCH, 0), count=2)
    build.step(block, OP[op], src=src, dst=dst, count=2)
    return replace(build.program("shift", [0, 3]), in_place=False)


@pytest.mark.parametrize("name", OVERLAPS)
def test_a_step_that_writes_a_part_of_what_it_reads_is_refused(name):
    op, src, dst = OVERLAPS[name]
    program = overlapping(op, src, dst)
    says = (
        rf"rank 1 threadblock 0 step 1 \({op}\) reads s\[{src[1]}:{src[1] + 2}\] and writes "
        rf"s\[{dst[1]}:{dst[1] + 2}\], which overlap partly"
    )
    assert re.search(says, program.problems()[0])
    with pytest.raises(DataError, match=says):
        read_xml(write_xml(program), "shift.xml")


def test_the_same_slots_and_slots_apart_are_no_overlap():
    for src, dst in ((0, 0), (0, 2)):
        assert overlapping("re", (SCRATCH, src), (SCRATCH, dst)).problems() == []


def test_an_overlap_that_only_sharing_memory_makes_is_found():
    # In place rank 1's input is o[2:4], of which the copy to o[1:3] would write one slot.
    build = Assembler(collective("all_gather", 2, 2))
    block = build.threadblock(1)
    build.step(block, OP["cpy"], src=(INPUT, 0), dst=(OUTPUT, 1), count=2)
    program = build.program("shift", [0, 0])
    assert program.problems() == []
    found = judge(program)
    assert any(
        re.match(r"in place: .* reads i\[0:2\] and writes o\[1:3\], which overlap", one) for one in found
    )
    assert not any("overlap" in one for one in judge(replace(program, in_place=False)))


def test_sizes_of_buffers_belong_to_collectives_that_are_unknown():
    right = program_of(PAIR, exchange())
    stray = replace(right, input_chunks=(1, 1), output_chunks=(1, 1))
    assert stray.problems()[0].startswith("input_chunks: expected none beside collective all_reduce")
    assert replace(right, min_bytes=8, max_bytes=4).problems()[0].startswith("min_bytes: ")
    read = read_xml(write_xml(right).replace(b'"allreduce"', b'"custom"'), "custom.xml")
    assert read.problems() == []
    assert replace(read, input_chunks=(1, 2)).problems()


def test_a_copy_of_slots_to_themselves_is_not_done():
    # Whenever it runs, before the slot is written or after: neither is it a read, nor a race.
    itself = (OUTPUT, 0), (OUTPUT, 0)
    steps = [*exchange(), (0, 1, 1, "cpy", *itself), (1, -1, -1, "cpy", *itself)]
    assert judge(program_of(PAIR, steps)) == []
    nothing = [(0, -1, -1, "cpy", (SCRATCH, 0), (SCRATCH, 0)), *exchange()]
    assert judge(program_of(PAIR, nothing, scratch=1)) == []


def test_of_very_many_wrong_slots_the_first_are_told_and_the_rest_counted():
    whole = collective("all_reduce", 2, 5000)
    found = judge(program_of(whole, exchange(), in_place=False))
    assert len(found) == 1001
    assert "rank 0 must end with chunk 1 in o[1]" in found[0]
    # Slot 0 of both ranks is right.
    assert found[-1] == f"{2 * 4999 - 1000} more output slots do not hold what they must"
