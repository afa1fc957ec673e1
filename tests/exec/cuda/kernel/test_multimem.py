"""The instructions of switches in the kernel, on threads of the host: every element is exact.

On the host a multicast address stands for the memory of all members of a group, in `blocks_as_threads.h`.
"""

import functools
from collections import Counter

import numpy as np
import pytest
from cuda_on_host import COMPILER, run_on_host, wrong
from drawn_examples import chessboard
from switch_programs import copied_first

from exec.cuda.kernel.elements import SWITCH_ELEMENTS
from exec.cuda.kernel.encode import encoded
from exec.cuda.kernel.launch import waiters
from exec.cuda.kernel.rows import BY_SWITCH, DOES, STEP
from exec.cuda.kernel.source import kernels
from exec.program import expected_output
from exec.program.layout import Layout
from probes.base import UsageError
from synth.collective import collective
from synth.compiler import lower
from synth.methods import nvls
from synth.networks.dgx import pod
from synth.program import OPS

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="g++ is not installed")
KINDS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce")


@functools.cache
def made(kind="all_reduce", laps=2, instances=1, hosts=1):
    network = pod(f"dgx-h100+nvls:{hosts}")
    shape = collective(kind, 8 * hosts, laps * (1 if kind == "all_gather" else 8 * hosts))
    return lower(nvls.synthesize(network, shape, 1 << 12), instances=instances)


@needs_compiler
@pytest.mark.parametrize(("kind", "dtype"), chessboard(KINDS, SWITCH_ELEMENTS))
def test_every_type_is_exact(kind, dtype):
    program = made(kind)
    for in_place in (False, True)[: 1 + program.in_place]:
        for count, threads in ((32, 3), (16 * 37 * 2, 1), (16 * 602, 2)):
            assert wrong(program, count, dtype, in_place=in_place, threads=threads, launches=2) == 0


@needs_compiler
@pytest.mark.parametrize("kind", KINDS)
def test_a_launch_for_each_rank_and_chunks_of_any_length_are_exact(kind):
    program = made(kind, instances=3)
    for count in (1, 5, 999):
        assert wrong(program, count, launches=3, apart=True) == 0


@needs_compiler
@pytest.mark.parametrize("kind", KINDS[:3])
def test_what_switches_of_two_hosts_exchange_is_exact(kind):
    program = made(kind, hosts=2)
    for in_place in (False, True)[: 1 + program.in_place]:
        assert wrong(program, 997, "int32", in_place=in_place, threads=2, launches=3) == 0


@needs_compiler
@pytest.mark.parametrize("apart", [False, True])
def test_what_ranks_have_just_written_is_summed(apart):
    assert wrong(copied_first(4), 997, "int32", threads=3, launches=5, apart=apart) == 0


@needs_compiler
def test_an_average_is_exact():
    assert wrong(made(), 1024, "float32", "avg", in_place=True) == 0


@needs_compiler
def test_a_lost_signal_names_who_waits():
    program = made()
    table = encoded(Layout(program, 64), 4)
    does = table.steps[:, STEP.index("does")]
    # A signal sends, and neither reads nor writes.
    lost = np.flatnonzero(does == DOES["sends"])[0]
    assert OPS[program.op[table.steps[lost, STEP.index("origin")]]] == "signal"
    table.steps[lost, STEP.index("does")] = 0
    inputs = [expected_output.given(table.layout, rank, np.dtype("float32"), "sum") for rank in range(8)]
    told = waiters(table, run_on_host(table, inputs, "float32", "sum", limit_s=0.5).records)
    assert any("(wait) waits for a message from rank 0 on channel 0" in line for line in told)


def test_rows_say_what_a_switch_does():
    table = encoded(Layout(made(), 64), 4)
    does = Counter(table.steps[:, STEP.index("does")].tolist())
    local = DOES["reads"] | DOES["writes"]
    assert does[local | BY_SWITCH["sums"]] == does[local | BY_SWITCH["spreads"]] == 16
    assert does[DOES["sends"]] == does[DOES["receives"]] == 2 * 8 * 3
    assert table.moved_bytes == 2 * 16 * 2 * 4 * 4


def test_a_part_of_a_word_is_refused():
    program = made()
    assert len(encoded(Layout(program, 96), 2).steps)
    for count in (16, 40):
        with pytest.raises(UsageError, match=f"words of 4 bytes, and chunks .* end within one at {count} el"):
            encoded(Layout(program, count), 2)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("float64", "sum"), "lets switches sum float32, float16, bfloat16, int32, not float64"),
        (("int8", "sum"), "not int8"),
        (("float32", "max"), "switches only sum .* they have no max"),
    ],
)
def test_what_switches_do_not_sum_is_refused(arguments, reason):
    with pytest.raises(UsageError, match=reason):
        kernels(*arguments, multimem=True)
