"""The interpreter kernel, built for this machine's processor, against the exact results."""

import functools
import itertools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cuda_on_host import COMPILER, library, run_on_host, values_of, wrong
from drawn_examples import chessboard, drawn
from fixed_order import drawn_inputs, fixed_sum, reproducible_program
from hypothesis import given, settings, strategies as st
from limits import HANG_S
from sample_schedules import random_schedule, ring_all_reduce

from ccctl.arguments.proven import proven_program
from ccctl.errors import CcctlError
from exec.cuda.kernel.elements import ELEMENTS, OPERATORS
from exec.cuda.kernel.encode import BLOCK, encoded
from exec.cuda.kernel.fifo_memory import arenas
from exec.cuda.kernel.launch import waiters
from exec.cuda.kernel.rows import STEP
from exec.program import dtype_of, expected_output
from exec.program.layout import Layout
from probes.base.columns import bytes_of
from synth.collective import KINDS
from synth.compiler.lowering import lower
from synth.lang.algorithm_file import compiled_algorithm
from synth.networks.families import family
from synth.program import OPS

pytestmark = pytest.mark.skipif(COMPILER is None, reason="g++ is not installed")
# Threads of blocks that spin take the time of these tests.
EXAMPLES = sorted((Path(__file__).parents[4] / "examples").glob("*.py"))
SHARED = Path(__file__).parents[5] / "shared" / "data" / "programs"
HELPERS = Path(__file__).parents[3] / "helpers"


def stem(value):
    """Return the name of an example without its folder; pytest names other values itself."""
    return value.stem if isinstance(value, Path) else None


@pytest.mark.parametrize(("example", "instances"), chessboard(EXAMPLES, [1, 3]), ids=stem)
def test_every_example_is_exact(example, instances):
    program, _ = compiled_algorithm(str(example), {}, instances=instances)
    for count in (1, 96, 3001):
        for in_place in [False] * program.out_of_place + [True] * program.in_place:
            assert wrong(program, count, in_place=in_place, launches=2) == 0


@pytest.mark.parametrize(("example", "by"), chessboard(EXAMPLES, ["LL", "LL128"]), ids=stem)
def test_every_example_is_exact_by_lines(example, by):
    program, _ = compiled_algorithm(str(example), {}, instances=2)
    # Places are used again, and no launch ends at a multiple of them.
    for in_place in [False] * program.out_of_place + [True] * program.in_place:
        for count, threads in ((1, 1), (997, 3)):
            how = {"in_place": in_place, "threads": threads, "launches": 3}
            assert wrong(program, count, tile_bytes=256, by=by, **how) == 0


FOR_ALL_OPERATORS = ("float16", "bfloat16", "int8", "int64")
# The exact inputs have negative numbers, whose order uint8 does not keep.
CASES = [
    (dtype, redop)
    for dtype in ELEMENTS
    for redop in OPERATORS
    if (dtype in FOR_ALL_OPERATORS or redop in ("sum", "avg", "max")) and (dtype, redop) != ("uint8", "max")
]
PROTOCOLS = ("Simple", "LL", "LL128")


def compiled_by(dtype, redop):
    """The protocol with which `make test` runs a case: "avg" is compiled as "sum"."""
    row = [*ELEMENTS].index(dtype) + [*OPERATORS].index("sum" if redop == "avg" else redop)
    return PROTOCOLS[row % 3]


@pytest.mark.parametrize(
    ("dtype", "redop", "by"),
    [
        pytest.param(*case, by, marks=[pytest.mark.long] * (by != compiled_by(*case)))
        for case in CASES
        for by in PROTOCOLS
    ],
)
def test_types_and_operators_are_exact(dtype, redop, by):
    example = next(path for path in EXAMPLES if path.stem == "hierarchical_allreduce")
    program, _ = compiled_algorithm(str(example), {"nodes": 2, "gpus": 2}, instances=2)
    # Lines that are filled in part, and places that are used again.
    cut = {"tile_bytes": 240, "slice_bytes": 64, "threads": 2, "launches": 2}
    assert wrong(program, 1999, dtype, redop, in_place=True, by=by, **cut) == 0


@pytest.mark.parametrize("example", EXAMPLES, ids=stem)
def test_every_example_is_exact_with_a_launch_for_each_rank(example):
    program, _ = compiled_algorithm(str(example), {}, instances=2)
    assert wrong(program, 999, in_place=not program.out_of_place, launches=2, apart=True) == 0


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared programs are not here")
def test_every_correct_xml_is_exact():
    ran = 0
    for path in sorted(SHARED.glob("*.xml")):
        try:
            program = proven_program(str(path)).program
        except CcctlError:
            continue
        if program.ranks <= 16:
            ran += 1
            assert wrong(program, 7 * program.collective.share, in_place=not program.out_of_place) == 0
    assert ran > 10


@settings(max_examples=drawn(60))
@given(
    kind=st.sampled_from(KINDS),
    ranks=st.integers(2, 5),
    chunks=st.integers(1, 3),
    count=st.integers(1, 200),
    seed=st.integers(0, 1 << 30),
    tile_bytes=st.sampled_from([16, 64, 1 << 20]),
    slice_bytes=st.sampled_from([16, 48, 1 << 20]),
    threads=st.sampled_from([1, 1, 3]),
    by=st.sampled_from(["Simple", "LL", "LL128"]),
)
def test_random_programs_are_exact(kind, ranks, chunks, count, seed, tile_bytes, slice_bytes, threads, by):
    program = lower(random_schedule(kind, ranks, chunks, seed))
    cut = {"tile_bytes": tile_bytes, "slice_bytes": slice_bytes, "by": by}
    assert wrong(program, count, "int32", threads=threads, launches=2, **cut) == 0


def test_local_reductions_of_many_sources_are_exact():
    program, _ = compiled_algorithm(
        str(next(path for path in EXAMPLES if path.stem == "allpairs_allreduce")), {}, instances=1
    )
    table = encoded(Layout(program, 800), 4)
    assert table.steps[:, 10].max() > 0
    assert wrong(program, 800, in_place=not program.out_of_place, threads=2) == 0


@functools.cache
def reproducible(spec):
    return reproducible_program(family(spec, [1e-6], [1e9]), size_bytes=4096, method="aligned")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_fixed_order_of_sums_gives_the_bits_of_its_definition(dtype):
    inputs = drawn_inputs(6, 700, dtype)
    for spec in ("switch:6", "torus:2x3"):
        program = reproducible(spec)
        table = encoded(Layout(program, 700), dtype_of(dtype).itemsize)
        stored = [each.view(f"u{each.itemsize}") if dtype == "bfloat16" else each for each in inputs]
        found = run_on_host(table, stored, dtype, "sum", threads=2)
        assert {output.tobytes() for output in found.outputs} == {fixed_sum(inputs).tobytes()}


def without(program, op, rank):
    """The program with one step of ``rank`` left out."""
    steps = np.flatnonzero((program.op == OPS.index(op)) & (program.tb_rank[program.tb_of] == rank))
    changed = program.op.copy()
    changed[steps[0]] = OPS.index("nop")
    return replace(program, op=bytes_of(changed)), int(steps[0])


def test_a_missing_send_names_who_waits():
    program = lower(ring_all_reduce(3), fuse=False)
    table = encoded(Layout(program, 300), 4)
    broken, step = without(program, "s", 1)
    tb = int(broken.tb_of[step])
    row = int(table.blocks[tb, 2]) + step - int(program.tb_start[tb])
    steps = table.steps.copy()
    steps[row, 0] = 0
    inputs = [expected_output.given(table.layout, rank, np.dtype("float32"), "sum") for rank in range(3)]
    found = run_on_host(replace(table, steps=steps), inputs, "float32", "sum", limit_s=0.5)
    told = waiters(table, found.records)
    to = int(program.tb_send[tb])
    assert told
    assert any(line.startswith(f"rank {to} ") and "a message from rank 1 on channel" in line for line in told)
    assert all(line.startswith("rank ") and " threadblock " in line and " step " in line for line in told)


@pytest.mark.parametrize("by", ["LL", "LL128"])
def test_a_message_by_lines_that_never_comes_names_who_waits(by):
    program = lower(ring_all_reduce(3), fuse=False)
    table = encoded(Layout(program, 300), 4, wire_protocol=by)
    broken, step = without(program, "s", 1)
    tb = int(broken.tb_of[step])
    steps = table.steps.copy()
    steps[int(table.blocks[tb, 2]) + step - int(program.tb_start[tb]), 0] = 0
    inputs = [expected_output.given(table.layout, rank, np.dtype("float32"), "sum") for rank in range(3)]
    found = run_on_host(replace(table, steps=steps), inputs, "float32", "sum", limit_s=0.5, threads=2)
    told = waiters(table, found.records)
    assert any("a message from rank 1 on channel" in line for line in told)


@pytest.mark.parametrize("by", ["LL", "LL128"])
def test_a_message_by_lines_of_which_a_part_never_comes_names_who_waits(by):
    program = lower(ring_all_reduce(3), fuse=False)
    table = encoded(Layout(program, 300), 4, wire_protocol=by)
    broken, step = without(program, "s", 1)
    tb = int(broken.tb_of[step])
    row = int(table.blocks[tb, BLOCK.index("first")]) + step - int(program.tb_start[tb])
    steps = table.steps.copy()
    # One line of 2 elements: the first thread of the receiver gets its line, the second waits in vain.
    steps[row, STEP.index("length")] = 2
    inputs = [expected_output.given(table.layout, rank, np.dtype("float32"), "sum") for rank in range(3)]
    found = run_on_host(replace(table, steps=steps), inputs, "float32", "sum", limit_s=0.5, threads=2)
    told = waiters(table, found.records)
    to = int(program.tb_send[tb])
    assert any(line.startswith(f"rank {to} ") and "a message from rank 1 on channel" in line for line in told)


def test_a_missing_receive_names_who_waits_for_room():
    program = lower(ring_all_reduce(2), fuse=False)
    table = encoded(Layout(program, 4000), 4, tile_bytes=64)
    rows = np.flatnonzero(table.steps[:, 0] & 1)
    steps = table.steps.copy()
    steps[rows, 0] = 0
    inputs = [np.ones(4000, np.float32)] * 2
    found = run_on_host(replace(table, steps=steps), inputs, "float32", "sum", limit_s=0.5)
    assert any("to receive on channel 0" in line for line in waiters(table, found.records))


def test_arenas_do_not_overlap():
    program = lower(random_schedule("all_to_all", 4, 2, 7))
    table = encoded(Layout(program, 1000), 4)
    places = arenas(table)
    spans = [
        (int(owner[fifo]), int(offset[fifo]), int(size))
        for owner, offset, sizes in (
            (places.receiver, places.head, np.full(len(table.room), 8)),
            (places.sender, places.credit, np.full(len(table.room), 8)),
            (places.receiver, places.slots, table.room * table.place_bytes),
        )
        for fifo, size in enumerate(sizes)
    ]
    spans.sort()
    for (rank, start, size), (other, following, _) in itertools.pairwise(spans):
        assert other > rank or start + size <= following
    assert all(start + size <= places.sizes[rank] for rank, start, size in spans)


@pytest.mark.parametrize("redop", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "uint8", "int32", "int64"])
def test_arithmetic_is_numpys_on_any_bits(dtype, redop):
    storage_type = np.dtype("uint16" if dtype == "bfloat16" else dtype)
    random = np.random.default_rng(5)
    first, second = (
        np.frombuffer(random.bytes(4096 * storage_type.itemsize), storage_type).copy() for _ in range(2)
    )
    combined = np.zeros_like(first)
    # Arithmetic is the same by every protocol, and compiling takes long: this one serves other tests, too.
    kernel = library(dtype, redop, wire_protocol=compiled_by(dtype, redop))
    addresses = (each.ctypes.data for each in (first, second, combined))
    kernel.run_combine(1, 1, *map(_address, addresses), None, _count(len(first)))
    function = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[redop]
    with np.errstate(all="ignore"):
        right = function(values_of(first, dtype), values_of(second, dtype))
    if dtype != "bfloat16":
        np.testing.assert_array_equal(combined, right)
        return
    # Rounded to the nearest of two neighbours: half of the distance between them is the most it is off.
    found = values_of(combined, dtype)
    sane = np.isfinite(right) & np.isfinite(found) & (np.abs(right) > 1e-37)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(right))
    assert (np.abs(found[sane] - right[sane]) <= np.abs(right[sane]) / 256).all()
    assert sane.sum() > 2000


def _address(number):
    from ctypes import c_void_p

    return c_void_p(number)


def _count(number):
    from ctypes import c_int64

    return c_int64(number)


def sanitized(*flags):
    """The exit status of programs run with ThreadSanitizer; a skip where it is not installed."""
    found = subprocess.run([COMPILER, "-print-file-name=libtsan.so"], capture_output=True, text=True)
    if not Path(found.stdout.strip()).is_absolute():
        pytest.skip("ThreadSanitizer is not installed")
    environment = {
        **os.environ,
        "LD_PRELOAD": found.stdout.strip(),
        "TSAN_OPTIONS": "exitcode=66:halt_on_error=1",
        "PYTHONPATH": str(HELPERS),
    }
    # The sanitizer wants the memory laid out as it expects it.
    command = ["setarch", "-R", sys.executable, "-P", str(HELPERS / "interpret_sanitized.py")]
    done = subprocess.run(
        [*command, "-fsanitize=thread", *flags],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    if done.returncode not in (0, 1, 66) or "unexpected memory mapping" in done.stderr:
        pytest.skip(f"ThreadSanitizer does not run here: {done.stderr[-200:]}")
    return done.returncode


@pytest.mark.long
def test_no_data_races():
    assert sanitized() == 0


@pytest.mark.long
def test_without_release_order_there_would_be_data_races():
    assert sanitized("-DCCCTL_RELEASE=__ATOMIC_RELAXED") == 66
