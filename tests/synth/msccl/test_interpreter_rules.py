"""MSCCL's parser and kernel: their limits, and nops, reductions and steps of several chunks in them."""

from dataclasses import replace
from pathlib import Path

import pytest

from exec.runtimes.msccl import MSCCL_BUFFERS, run_xml
from synth.check.program import judge, stuck_in_chunks
from synth.lang import compiled_algorithm
from synth.msccl.limits import beyond, doubts, limits_of, uncut_bytes
from synth.msccl.read import read_xml
from synth.msccl.write import separate_reductions, write_xml
from synth.portfolio.runtime_limits import program_limits, stuck_above

EXAMPLES = Path(__file__).parents[3] / "examples"
FREE = (-1, -1)


def step(kind, src=("i", -1), dst=("o", -1), count=1, wait=FREE):
    return kind, src, dst, count, wait


def algo(gpus, kind="allreduce", proto="Simple", chunks=1, rest="", in_place=1):
    """A file of threadblocks (send, recv, steps) for each GPU; awaited steps have hasdep."""
    text = (
        f'<algo name="x" proto="{proto}" nchannels="1" nchunksperloop="{chunks}" ngpus="{len(gpus)}" '
        f'coll="{kind}" inplace="{in_place}" outofplace="{1 - in_place}" {rest}>'
    )
    for gpu, (scratch, blocks) in enumerate(gpus):
        awaited = {wait for _, _, steps in blocks for *_, wait in steps}
        text += f'<gpu id="{gpu}" i_chunks="{chunks}" o_chunks="{chunks}" s_chunks="{scratch}">'
        for tb, (send, recv, steps) in enumerate(blocks):
            text += f'<tb id="{tb}" send="{send}" recv="{recv}" chan="0">'
            for number, (op, src, dst, count, wait) in enumerate(steps):
                text += (
                    f'<step s="{number}" type="{op}" srcbuf="{src[0]}" srcoff="{src[1]}" dstbuf="{dst[0]}" '
                    f'dstoff="{dst[1]}" cnt="{count}" depid="{wait[0]}" deps="{wait[1]}" '
                    f'hasdep="{int((tb, number) in awaited)}"/>'
                )
            text += "</tb>"
        text += "</gpu>"
    return read_xml(f"{text}</algo>".encode(), "the file")


def pair(adds, chunks, copies=()):
    """Two ranks that exchange their input into scratch, and add it up in a threadblock of its own."""
    exchange = [step("s", ("i", 0), count=chunks), step("r", dst=("s", 0), count=chunks)]
    both = [(1 - rank, 1 - rank, exchange) for rank in range(2)]
    more = [(-1, -1, list(copies))] if copies else []
    return algo([(chunks + 1, [one, (-1, -1, adds), *more]) for one in both], chunks=chunks)


def add(at, count, wait=FREE):
    return step("re", ("s", at), ("i", at), count, wait)


def sums_of(chain):
    """One rank that adds slots of its scratch to one slot, in a chain after ``before`` other reductions."""
    fill = [step("cpy", ("i", 0), ("s", slot)) for slot in range(40)]
    return algo([(40, [(-1, -1, fill), (-1, -1, chain)])])


def test_reductions_that_become_one_must_have_as_many_chunks():
    # Both write i[0], so the parser makes them one step with the last count.
    adds = [
        step("re", ("s", 0), ("i", 0), 2, (0, 1)),
        step("re", ("s", 2), ("i", 0), 1),
    ]
    program = pair(adds, 2)
    said = beyond(program, "msccl")
    assert said[0] == (
        "msccl: rank 0 threadblock 1 step 0 (re) becomes one step with rank 0 threadblock 1 step 1 (re), "
        "which gives it 1 instead of 2 chunks"
    )
    assert beyond(replace(program, count=program.count * 0 + 1), "msccl") == []
    # The file that is written has a wait between the two.
    again = read_xml(write_xml(program), "again")
    assert beyond(again, "msccl") == beyond(again, "rccl") == []
    assert again.wait_tb.tolist()[3] == 1


def test_the_wait_that_is_written_keeps_the_sums_right():
    sums = [step("re", ("s", 0), ("i", 0), 2, (0, 1))]
    spoilt = [*sums, step("re", ("s", 2), ("i", 0), 1)]
    for adds, right in ((sums, True), (spoilt, False)):
        program = pair(adds, 2)
        # The scratch slot s[2] is never written, so only chunk 1 can be right.
        wrong = run_xml(program, 8, in_place=True).wrong
        assert (wrong == 0) == right
    mended = run_xml(separate_reductions(pair(spoilt, 2)), 8, in_place=True).wrong
    assert mended < run_xml(pair(spoilt, 2), 8, in_place=True).wrong


def test_at_most_16_reductions_become_one():
    chain = [step("re", ("s", slot), ("o", 0)) for slot in range(23)]
    other = [step("re", ("s", slot), ("s", 39)) for slot in range(16)]
    # The parser ends a step with the 16th reduction of a threadblock, and with none after it.
    assert not [one for one in beyond(sums_of(chain), "msccl") if "reductions" in one]
    program = sums_of([*other, *chain])
    assert [one for one in beyond(program, "msccl") if "reductions" in one] == [
        "msccl: rank 0 threadblock 1 step 16 (re) begins 23 reductions that become one step, at most 16 are "
        "allowed"
    ]
    assert not [one for one in beyond(separate_reductions(program), "msccl") if "reductions" in one]
    assert run_xml(program, 8, in_place=True).findings
    assert not any("become one step" in one for one in run_xml(separate_reductions(program), 8).findings)


@pytest.mark.parametrize(
    ("adds", "copies", "said"),
    [
        ([add(0, 2, (0, 1))], (), None),
        ([step("nop", wait=(0, 0)), add(0, 2, (0, 1))], (), None),
        ([step("nop", wait=(0, 1)), add(0, 2)], (), "follows a nop that waits, and must itself wait"),
        (
            [add(0, 2, (0, 1)), step("nop", wait=(0, 1))],
            [step("cpy", ("s", 0), ("s", 2), wait=(1, 1))],
            "is awaited, and a nop never tells",
        ),
        (
            [step("nop"), add(0, 2, (0, 1))],
            [step("cpy", ("s", 0), ("s", 2), wait=(1, 1))],
            "is awaited for ever: the runtime does not count the nops before it",
        ),
        ([step("nop"), add(0, 2, (0, 1))], (), None),
    ],
)
def test_nops_are_waits_of_the_next_step(adds, copies, said):
    program = pair(adds, 2, copies)
    assert judge(program) == []
    for target in ("msccl", "rccl"):
        found = beyond(program, target)
        assert all(said in one for one in found) if said else not found
        assert bool(found) == bool(said)
    # The machine that runs the file finds the same.
    assert run_xml(program, 8, in_place=True).right == (said is None)


def test_threadblocks_on_hopper_are_started_in_clusters():
    most = {number: limits_of("msccl", number).most_threadblocks for number in (0, 108, 132, 148)}
    assert most == {0: 216, 108: 108, 132: 120, 148: 148}
    assert limits_of("rccl", 132).most_threadblocks == 64
    assert limits_of("msccl", 132).allowed_threadblocks == "at most 120 threadblocks run at once on its GPU"


def test_a_threadblock_has_at_most_64_steps():
    copies = [step("cpy", ("i", 0), ("s", 0))] * 65
    for number, wrong in ((64, False), (65, True)):
        program = algo([(1, [(-1, -1, copies[:number])])])
        for target in ("msccl", "rccl"):
            assert bool([one for one in beyond(program, target) if "at most 64" in one]) == wrong


def test_a_rank_reads_at_most_4095_elements():
    copies = [step("cpy", ("i", 0), ("s", 0))]
    # 1 for the algo, 1 for the gpu, 63 threadblocks of 63 steps, and the rest in the last one.
    blocks = [(-1, -1, copies * 63)] * 63
    for rest, wrong in ((60, False), (61, True)):
        program = algo([(1, [*blocks, (-1, -1, copies * rest)])])
        found = [one for one in beyond(program, "msccl") if "elements" in one]
        assert bool(found) == wrong
    assert found == [
        "msccl: rank 0 reads 4096 elements (the algo, each gpu, its own threadblocks and steps), "
        "at most 4095 are allowed"
    ]


def test_a_collective_that_no_runtime_has_is_refused():
    copies = [(-1, -1, [step("cpy", ("i", 0), ("s", 0))])]
    for kind, known in (("alltonext", ()), ("gather", ("rccl",)), ("allreduce", ("msccl", "rccl"))):
        program = algo([(1, copies)] * 2, kind, chunks=2, in_place=0)
        for target in ("msccl", "rccl"):
            assert any("it has no collective" in one for one in beyond(program, target)) != (target in known)


def test_the_root_of_a_broadcast_is_not_compared():
    gpus = [(0, [(1, -1, [step("s", ("i", 0))])]), (0, [(-1, 0, [step("r", dst=("o", 0))])])]
    for proto, number in (("LL", 1), ("Simple", 2)):
        found = doubts(algo(gpus, "broadcast", proto), "msccl")
        assert len(found) == number
        assert "right only for root 0" in found[0]
    assert doubts(algo(gpus, "allreduce"), "msccl") == doubts(algo(gpus, "broadcast"), "rccl") == []


def ring_of_three(count, rest=""):
    """Each rank sends ``count`` chunks before it receives and forwards; slots do not matter here."""
    steps = [step("s", ("i", 0), count=count), step("rcs", dst=("s", 0), count=count)]
    steps += [step("r", dst=("s", 0), count=count)]
    blocks = [[((rank + 1) % 3, (rank - 1) % 3, steps)] for rank in range(3)]
    return algo([(count, one) for one in blocks], chunks=count, rest=rest)


def test_steps_of_several_chunks_may_fill_a_connection():
    assert stuck_in_chunks(ring_of_three(1)) == ""
    assert stuck_in_chunks(ring_of_three(2)) == "rank 0 threadblock 0 step 1 (rcs)"
    assert stuck_in_chunks(ring_of_three(2), 3) == ""
    program = ring_of_three(2)
    small, large = uncut_bytes(program) // 4 // 2, uncut_bytes(program) // 2
    assert not any("waits for ever" in one for one in run_xml(program, small, in_place=True).findings)
    shrunk = MSCCL_BUFFERS["Simple"].shrunk(1 << 14)
    assert any("waits for ever" in one for one in run_xml(program, large >> 12, buffer=shrunk).findings)


def test_the_size_above_which_it_deadlocks_is_told_unless_the_file_ends_there():
    assert uncut_bytes(ring_of_three(2)) == 2 << 20
    said = stuck_above(ring_of_three(2))
    assert said.startswith("buffers of more than 2097152 bytes (maxBytes) deadlock at rank 0 threadblock 0")
    assert f"msccl: {said}" in program_limits(ring_of_three(2), "msccl")
    assert stuck_above(ring_of_three(2, 'minBytes="0" maxBytes="2097152"')) == ""
    # With LL a connection holds eight messages.
    assert stuck_above(replace(ring_of_three(2), protocol="LL")) == ""


def test_the_hierarchical_example_is_right_at_all_sizes():
    program, _ = compiled_algorithm(str(EXAMPLES / "hierarchical_allreduce.py"))
    assert program.count.max() == 2
    assert judge(program) == []
    assert program_limits(program, "msccl") == []
    buffer = MSCCL_BUFFERS["Simple"]
    # Chunks of 40 elements in messages of 16.
    assert run_xml(program, 40, in_place=True, buffer=buffer.shrunk(buffer.message_bytes // 64)).right


@pytest.mark.parametrize("name", ['a"b', "a'b", "<&>", "é \n", "x" * 300, "direct all_reduce-2.1"])
def test_a_name_is_one_that_the_parser_can_read(name):
    program = replace(ring_of_three(1), name=name)
    text = write_xml(program).decode()
    written = text.split('name="')[1].split('"')[0]
    assert len(written) <= 200
    assert all(one.isascii() and (one.isalnum() or one in "_. -") for one in written)
    assert "'" not in text
    assert (written == name) == (name == "direct all_reduce-2.1")
