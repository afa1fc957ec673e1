"""MSCCL's interpreter: right on what is written, and no mutant passes that the judge of programs rejects."""

import random
from pathlib import Path

import pytest
from drawn_examples import chessboard, drawn
from hypothesis import given, strategies as st
from sample_networks import named
from sample_schedules import random_schedule, ring_all_reduce
from xml_mutants import MUTATIONS, mutant

from exec.runtimes.msccl import MSCCL_BUFFERS, run_xml
from probes.base.errors import DataError, UsageError
from synth import compile as compiled
from synth.check.program import judge
from synth.collective import KINDS, collective
from synth.compiler.lowering import lower
from synth.errors import NotApplicableError
from synth.msccl import read_xml, write_xml
from synth.portfolio.attempts import METHODS
from synth.portfolio.rank_subsets import serve

FOLDER = Path(__file__).parents[3] / ".." / "shared" / "data" / "programs"
FILES = sorted(FOLDER.glob("*.xml"))


def written(program):
    """A program as it is read back from its own file."""
    return read_xml(write_xml(program), "the file")


def small(program):
    """Buffers for messages of 16 elements, so that a few dozen elements take several tiles."""
    buffer = MSCCL_BUFFERS[program.protocol]
    return buffer.shrunk(buffer.message_bytes // 64)


@given(
    kind=st.sampled_from(KINDS),
    ranks=st.integers(1, 5),
    chunks=st.integers(1, 3),
    elements=st.sampled_from((1, 5, 70)),
    tiles=st.booleans(),
    inside=st.booleans(),
    seed=st.integers(0, 1 << 30),
)
def test_random_trees_are_right_in_the_file(kind, ranks, chunks, elements, tiles, inside, seed):
    program = written(lower(random_schedule(kind, ranks, chunks, seed)))
    buffer = small(program) if tiles else None
    report = run_xml(program, elements, seed, in_place=inside and program.in_place, buffer=buffer)
    assert (report.wrong, report.findings) == (0, ())


@pytest.mark.parametrize(
    ("name", "kind"),
    chessboard(
        ["line of 4", "fully connected", "hosts of two"],
        ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"],
    ),
)
def test_each_method_of_the_registry_is_right_in_the_file(name, kind):
    network, ran = named(name), 0
    shape = collective(kind, network.ranks, 1)
    # Solvers take seconds, and their schedules are like those of the others.
    for method, made in METHODS.items():
        if made.solves:
            continue
        try:
            schedule = serve(made.synthesize, network, shape, 4096, relays=made.relays, others=(), seed=0)
        except (NotApplicableError, UsageError):
            continue
        program = written(compiled(schedule))
        report = run_xml(program, 40, ran, buffer=small(program))
        assert (method, report.wrong, report.findings) == (method, 0, ())
        assert report.elements
        ran += 1
    assert ran


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_judge_and_the_runtime_agree_on_mutants(mutation):
    caught, seeds = 0, drawn(120)
    for seed in range(seeds):
        draw = random.Random(f"{mutation} {seed}")
        schedule = random_schedule(KINDS[seed % len(KINDS)], 2 + seed % 4, 1 + seed % 3, seed)
        text = write_xml(lower(schedule)).decode()
        try:
            program = read_xml(mutant(text, mutation, draw).encode(), "mutant")
        except DataError:
            caught += 1
            continue
        reports = [run_xml(program, 40, seed, buffer=buffer) for buffer in (None, small(program))]
        wrong = any(not report.right for report in reports)
        # The runtime knows more rules: what its parser refuses, and connections with one end.
        assert wrong or not judge(program)
        caught += wrong
    assert caught > seeds / 6


@pytest.mark.skipif(not FILES, reason="the shared sample programs are not here")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_of_other_tools_are_right_as_far_as_they_are(path):
    program = read_xml(path.read_bytes(), path.name)
    for buffer in (None, small(program)):
        report = run_xml(program, 40, 1, buffer=buffer)
        assert bool(report.wrong) == bool(judge(program, report.launches))


def test_protocols_differ_in_slices_and_tiles():
    text = write_xml(lower(ring_all_reduce(3))).decode()
    actions = {}
    for protocol in ("Simple", "LL", "LL128"):
        program = read_xml(text.replace('proto="Simple"', f'proto="{protocol}"').encode(), protocol)
        assert program.protocol == protocol
        report = run_xml(program, 40_000)
        assert report.right
        actions[protocol] = report.actions
    # 160,000 bytes a chunk: a message of two slices, five tiles of 32 KiB, a message of one slice.
    assert actions["Simple"] == 2 * actions["LL128"]
    assert actions["LL"] == 5 * actions["LL128"]


def step(number, kind, target, waits='depid="-1" deps="-1"', told=0):
    """A step on chunk 0 of the input and of ``target``."""
    places = f'srcbuf="i" srcoff="0" dstbuf="{target}" dstoff="0"'
    return f'<step s="{number}" type="{kind}" {places} cnt="1" {waits} hasdep="{told}"/>'


def awaiting(waits='depid="-1" deps="-1"', told=0, first="s", second="rrc", other=-1):
    """Two ranks that both send to the other; rank 0 adds what it got, another threadblock copies."""
    gpu = 'i_chunks="1" o_chunks="1" s_chunks="0"'
    return f"""<algo name="x" proto="Simple" nchannels="2" nchunksperloop="1" ngpus="2" coll="allreduce"
      inplace="0" outofplace="1">
    <gpu id="0" {gpu}>
      <tb id="0" send="1" recv="1" chan="0">
        {step(0, first, "i" if first == "s" else "o")}{step(1, second, "o", waits)}
      </tb>
      <tb id="1" send="{other}" recv="-1" chan="1">{step(0, "cpy", "o", told=told)}</tb>
    </gpu>
    <gpu id="1" {gpu}>
      <tb id="0" send="0" recv="0" chan="0">
        {step(0, first, "i" if first == "s" else "o")}{step(1, second, "o")}
      </tb>
    </gpu></algo>""".encode()


def test_a_wait_orders_two_threadblocks_and_its_lack_is_a_race():
    assert run_xml(read_xml(awaiting('depid="1" deps="0"', 1), "the file"), 8).right
    report = run_xml(read_xml(awaiting(), "the file"), 8)
    assert any(
        finding.startswith("race on o[0] of rank 0: ") and "nothing orders the two" in finding
        for finding in report.findings
    )


def test_a_step_that_may_not_tell_is_refused_with_its_place():
    with pytest.raises(DataError, match=r'step 0: hasdep="0" says that no step waits'):
        read_xml(awaiting('depid="1" deps="0"', 0), "the file")


def test_a_deadlock_names_what_each_threadblock_waits_for():
    report = run_xml(read_xml(awaiting(first="r", second="s"), "the file"), 8)
    for rank in (0, 1):
        place = f"rank {rank} threadblock 0 step 0 (r)"
        assert f"{place} waits for ever: no message from rank {1 - rank} on channel 0" in report.findings
    assert report.elements == 0


def test_a_connection_with_one_end_is_never_set_up():
    report = run_xml(read_xml(awaiting(other=1), "the file"), 8)
    assert report.findings == (
        "rank 0 to rank 1 on channel 1: 1 threadblocks send and 0 receive, the runtime connects one with one",
    )


def test_a_size_that_needs_too_much_memory_is_refused():
    with pytest.raises(UsageError, match="too many to run"):
        run_xml(lower(ring_all_reduce(4)), 1 << 26)
