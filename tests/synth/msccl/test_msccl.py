"""MSCCL XML: files that other tools made, what may be left out, and what is refused."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import assume, given, settings, strategies as st
from sample_schedules import random_schedule

from exec.program import expected_output
from exec.program.interpreter import interpret
from exec.program.layout import Layout
from probes.base.errors import DataError, UsageError
from synth.check.program import examine, judge
from synth.collective import KINDS, collective
from synth.compiler.lowering import lower
from synth.msccl.limits import beyond
from synth.msccl.read import read_xml
from synth.msccl.write import write_xml

FOLDER = Path(__file__).parents[3] / ".." / "shared" / "data" / "programs"
FILES = sorted(FOLDER.glob("*.xml"))
INDEX = {entry["file"]: entry for entry in json.loads((FOLDER / "index.json").read_text())} if FILES else {}
needs_files = pytest.mark.skipif(not FILES, reason="the shared sample programs are not here")


def same(one, two):
    """Whether two programs agree in every field that the format has: it knows no turns."""
    for field in fields(one):
        if field.name == "turn":
            continue
        a, b = getattr(one, field.name), getattr(two, field.name)
        if field.name == "collective":
            alike = (a.kind, a.ranks, a.chunks, a.root) == (b.kind, b.ranks, b.chunks, b.root)
        else:
            alike = np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
        if not alike:
            return False
    return True


@needs_files
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_verdict_is_that_of_the_index(path):
    program = read_xml(path.read_bytes(), path.name)
    said = INDEX.get(path.name, {})
    if said:
        assert program.steps == said["steps"]
        assert program.channels == said["nchannels"]
        assert program.threadblocks_max == said["max_tb_per_gpu"]
    for depth in (1, 2, 8):
        verdict = said.get("replay", {}).get(f"fifo_depth_{depth}", "ok")
        found = judge(program, depth)
        assert bool(found) == (verdict in ("deadlock", "wrong-result")), found
        if verdict == "deadlock":
            assert all("waits for" in finding or "deadlocks" in finding for finding in found)
        if verdict == "wrong-result":
            assert all("must end with chunk" in finding for finding in found)


@needs_files
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_reading_what_was_written_is_the_identity(path):
    program = read_xml(path.read_bytes(), path.name)
    written = write_xml(program)
    assert same(program, read_xml(written, path.name))
    assert write_xml(read_xml(written, path.name)) == written


@needs_files
def test_sums_in_another_order_on_each_rank_are_a_caution():
    found = {
        path.name: examine(read_xml(path.read_bytes(), path.name)).other_bits
        for path in FILES
        if "allreduce" in path.name
    }
    assert [name for name, cautions in found.items() if cautions] == ["allreduce_1step-4-1.xml"]


@given(kind=st.sampled_from(KINDS), ranks=st.integers(2, 5), seed=st.integers(0, 1 << 30))
def test_any_program_survives_xml(kind, ranks, seed):
    program = lower(random_schedule(kind, ranks, 2, seed))
    again = read_xml(write_xml(program), "again")
    assert same(program, again)
    assert judge(again) == []


STEP = (
    '<step s="0" type="{}" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" '
    'hasdep="0"/>'
)
PAIR = (
    '<algo name="pass" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="2" coll="broadcast" '
    'inplace="0">'
    '<gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0"><tb id="0" send="1" recv="-1" chan="0">'
    + STEP.format("s")
    + '</tb><tb id="1" send="-1" recv="-1" chan="0">'
    + STEP.format("cpy")
    + '</tb></gpu><gpu id="1" i_chunks="0" o_chunks="1" s_chunks="0"><tb id="0" send="-1" recv="0" chan="0">'
    + STEP.format("r")
    + "</tb></gpu></algo>"
)


def test_the_pair_is_right():
    assert judge(read_xml(PAIR.encode(), "pair")) == []


MAY_BE_LEFT_OUT = [
    ' proto="Simple"',
    ' nchannels="1"',
    ' nchunksperloop="1"',
    ' ngpus="2"',
    ' inplace="0"',
    ' name="pass"',
    ' s_chunks="0"',
    ' chan="0"',
    ' cnt="1"',
    ' depid="-1" deps="-1"',
    ' hasdep="0"',
    ' recv="-1"',
]


@pytest.mark.parametrize("words", MAY_BE_LEFT_OUT)
def test_what_may_be_left_out(words):
    assert words in PAIR
    assert judge(read_xml(PAIR.replace(words, "").encode(), "pair")) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<algo ", '<?xml version="1.0"?>\n<!-- a comment --><algo redop="sum" unknown="7" '),
        ('chan="0"', 'chan="0" unknown="x"'),
        ("<gpu id", "<extra><step/></extra><gpu id"),
        ("</tb>", "<note>words</note></tb>"),
        ('<gpu id="0"', '\n\n<gpu  maxBytes="x"  id="0"'),
    ],
)
def test_what_nobody_reads_is_passed_over(old, new):
    assert judge(read_xml(PAIR.replace(old, new).encode(), "pair")) == []


def test_elements_may_stand_in_any_order():
    gpus = PAIR.index("<gpu id"), PAIR.index('<gpu id="1"'), PAIR.index("</algo>")
    turned = PAIR[: gpus[0]] + PAIR[gpus[1] : gpus[2]] + PAIR[gpus[0] : gpus[1]] + "</algo>"
    assert same(read_xml(turned.encode(), "pair"), read_xml(PAIR.encode(), "pair"))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (PAIR, "", "no element found"),
        ("</algo>", "", "no element found"),
        ("</algo>", "</gpu>", "mismatched tag"),
        ("<algo ", "<graph ", "mismatched tag|expected an <algo>"),
        ('coll="broadcast"', 'coll="dance"', "coll: expected .* found 'dance'"),
        ('proto="Simple"', 'proto="Fast"', "proto: expected Simple"),
        ('ngpus="2"', 'ngpus="3"', "ngpus: 3 are announced, 2 are described"),
        ('<gpu id="1"', '<gpu id="7"', "gpu 1 is missing"),
        ('<tb id="1"', '<tb id="0"', "gpu 0: threadblock 1 is missing"),
        ('type="s"', 'type="sing"', "gpu 0 tb 0 step 0: type: expected one of"),
        ('type="s"', "", "gpu 0 tb 0 step 0: type"),
        ('srcoff="0"', 'srcoff="zero"', "srcoff: expected a whole number"),
        ('dstbuf="o"', 'dstbuf="q"', "dstbuf: expected one of i o s"),
        (
            'depid="-1" deps="-1"',
            'depid="5" deps="0"',
            "waits for step 0 of threadblock 5, which does not exist",
        ),
        ('depid="-1" deps="-1"', 'depid="1" deps="9"', "waits for step 9 of threadblock 1"),
        ('s="0" type="s"', 's="4" type="s"', "gpu 0 threadblock 0: step 0 is missing"),
        ('nchunksperloop="1"', 'nchunksperloop="999999999"', "nchunksperloop: 999999999 is more than"),
        ('coll="broadcast"', 'coll="allgather" x="1"', "chunks: expected a positive multiple of 2"),
        ('nchannels="1"', 'nchannels="one"', "nchannels: expected a whole number"),
        ('s_chunks="0"', 's_chunks="99999999999"', "scratch_chunks|s_chunks"),
        ('send="1"', 'send="5"', "tb_send"),
    ],
)
def test_broken_files_are_refused_with_the_place(old, new, says):
    broken = PAIR.replace(old, new) if old != PAIR else new
    with pytest.raises(DataError, match=says) as caught:
        read_xml(broken.encode(), "bad.xml")
    assert all(line.startswith("bad.xml: ") for line in caught.value.message.splitlines())


def test_entities_are_refused():
    bomb = '<!DOCTYPE algo [<!ENTITY a "ha">]>' + PAIR
    with pytest.raises(DataError, match="entities"):
        read_xml(bomb.encode(), "bomb.xml")


def test_limits_name_the_place():
    program = lower(random_schedule("all_to_all", 4, 200, 0), fuse=False)
    for target in ("msccl", "rccl"):
        assert any("steps, at most 64 are allowed" in finding for finding in beyond(program, target))
    program = lower(random_schedule("all_to_all", 4, 40, 0), fuse=False)
    assert beyond(program, "msccl") == []
    partly = replace(program, collective=collective("all_to_all", 4, 1, members=(0, 1)))
    assert any("it has no collective" in finding for finding in beyond(partly, "rccl"))
    with pytest.raises(UsageError, match="msccl or rccl"):
        beyond(program, "gpu")
    few = program.threadblocks_max - 1
    assert any(
        f"at most {few} threadblocks run at once on its GPU" in one for one in beyond(program, "msccl", few)
    )
    assert beyond(program, "msccl", few + 1) == []


RING = write_xml(lower(random_schedule("all_reduce", 4, 3, 7))).decode()


def test_a_wait_for_a_step_far_below_zero_is_refused():
    changed = re.sub(r'deps="[0-9]+"', 'deps="-111"', RING, count=1)
    with pytest.raises(DataError, match="waits for step -111"):
        read_xml(changed.encode(), "changed")


VALUES = [(at.start(1), at.end(1)) for at in re.finditer(r'"(-?\w+)"', RING)]


@settings(max_examples=drawn(400))
@given(data=st.data())
def test_whatever_a_file_says_it_is_judged_or_refused(data):
    """A changed file is refused as a file, or judged; what the judge accepts the interpreter runs right."""
    changed = RING
    for start, end in sorted(
        data.draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=3)), reverse=True
    ):
        word = data.draw(
            st.sampled_from(["-1", "0", "1", "2", "3", "7", "99", "i", "o", "s", "r", "rrcs", "nop", ""])
        )
        changed = changed[:start] + word + changed[end:]
    try:
        program = read_xml(changed.encode(), "changed")
    except DataError:
        return
    if program.input_chunks or judge(program) or program.collective.kind != "all_reduce":
        return
    layout = Layout(program, program.collective.chunks)
    inputs = [expected_output.given(layout, rank, np.dtype("int64"), "sum") for rank in range(program.ranks)]
    for in_place in (False, True):
        if program.in_place if in_place else program.out_of_place:
            for rank, output in enumerate(interpret(program, inputs, in_place=in_place)):
                right = expected_output.expected(layout, rank, np.dtype("int64"), "sum")
                np.testing.assert_array_equal(output, right)


@given(cut=st.integers(0, len(RING.rstrip()) - 1), noise=st.binary(max_size=4))
def test_a_file_cut_anywhere_is_refused(cut, noise):
    assume(RING.rstrip().encode() != (RING.encode()[:cut] + noise).rstrip())
    with pytest.raises(DataError):
        read_xml(RING.encode()[:cut] + noise, "cut")


ALGO = '<algo name="x" coll="allreduce" ngpus="1" nchunksperloop="1"><gpu id="0" i_chunks="{}"/></algo>'


@pytest.mark.parametrize("encoding", ["utf-7", "utf-32", "idna", "punycode", "rot13", "cp037", "x"])
def test_an_encoding_that_is_not_xmls_is_refused(encoding):
    with pytest.raises(DataError):
        read_xml(f'<?xml version="1.0" encoding="{encoding}"?>{ALGO.format(1)}'.encode(), "x")


@pytest.mark.parametrize("number", ["-1", "9999999999", "9" * 5000, "²", "1_0", "-" + "9" * 20, "nan"])
@pytest.mark.parametrize("coll", ["allreduce", "custom"])
def test_chunks_are_counted_from_0_to_a_bound(number, coll):
    with pytest.raises(DataError, match="i_chunks"):
        read_xml(ALGO.replace("allreduce", coll).format(number).encode(), "x")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"<algo " + b" ".join(b'a%d=""' % number for number in range(300_000)), "a tag of more than"),
        (b"<algo>" + b"<a>" * 10_000, "nested deeper than 64"),
        (b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><algo name="&b;"/>', "entities"),
    ],
)
def test_what_would_grow_without_end_is_refused(content, problem):
    with pytest.raises(DataError, match=problem):
        read_xml(content, "x")


def test_a_name_that_no_xml_may_hold_is_written_without_what_is_forbidden(samples):
    text = write_xml(replace(samples["program"], name="a\x00b\ud800"))
    assert read_xml(text, "odd").name == "a_b_"


@pytest.mark.parametrize("most", [0, (1 << 63) - 1])
def test_the_largest_limit_of_a_size_is_read_again(samples, most):
    text = write_xml(replace(samples["program"], min_bytes=(1 << 63) - 1, max_bytes=most))
    assert read_xml(text, "large").min_bytes == (1 << 63) - 1


def test_a_file_that_says_in_place_of_what_cannot_run_so_is_refused():
    claimed = PAIR.replace('coll="broadcast"', 'coll="alltoall"')
    claimed = claimed.replace('nchunksperloop="1"', 'nchunksperloop="2"')
    claimed = claimed.replace('inplace="0"', 'inplace="1" outofplace="0"')
    with pytest.raises(DataError, match="all_to_all cannot run in place") as refused:
        read_xml(claimed.encode(), "claimed")
    assert 'inplace="0" outofplace="1"' in refused.value.hint


def test_a_program_without_steps_proves_nothing():
    empty = (
        '<algo name="x" coll="custom" inplace="0"><gpu id="0" i_chunks="0" o_chunks="0" s_chunks="0"/>'
        '<gpu id="1" i_chunks="0" o_chunks="0" s_chunks="0"/></algo>'
    )
    (finding,) = judge(read_xml(empty.encode(), "empty"))
    assert "no steps" in finding
