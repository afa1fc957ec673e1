"""The kernels on a GPU: all ranks on one device, in one cooperative kernel."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from one_device import OneDevice
from sample_schedules import random_schedule, ring_all_reduce

from exec.cuda.kernel.elements import ELEMENTS
from exec.launcher.run import World, run_ranks
from exec.program import expected_output
from exec.program.layout import Layout
from exec.run_once import fitting
from probes.base.columns import ints
from probes.base.errors import LostRankError, UnavailableError, UsageError
from synth.compiler.lowering import lower
from synth.lang.algorithm_file import compiled_algorithm
from synth.program import INPUT, OUTPUT

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.py"))


def no_gpu():
    """Why the tests cannot run here; nothing where they can."""
    from exec.cuda.kernel.device import Device

    try:
        Device()
    except UnavailableError as error:
        return error.message
    return ""


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(no_gpu()), reason=no_gpu() or "there is a GPU")]


@pytest.fixture(scope="module")
def device():
    from exec.cuda.kernel.device import Device

    return Device()


def arrays(device, layout, dtype, redop, in_place):
    """(send, receive, whole) arrays of the GPU for each rank, laid out for the placement."""
    sends, recvs = [], []
    for rank in range(layout.program.ranks):
        given = device.cupy.asarray(expected_output.given(layout, rank, np.dtype(dtype), redop))
        if in_place:
            total, where_in, where_out = layout.in_place(rank)
            whole = device.cupy.zeros(total, dtype)
            whole[where_in] = given
            sends.append(whole[where_in])
            recvs.append(whole[where_out])
        else:
            sends.append(given)
            recvs.append(device.cupy.zeros(layout.elements(rank, OUTPUT), dtype))
    device.cupy.cuda.Device().synchronize()
    return sends, recvs


def wrong(device, program, count, dtype="float32", redop="sum", **how):
    layout = Layout(program, count)
    in_place = not program.out_of_place
    sends, recvs = arrays(device, layout, dtype, redop, in_place)
    machine = OneDevice(device, layout, sends, recvs, dtype, redop, **how)
    machine.run()
    bad = 0
    for rank, recv in enumerate(recvs):
        right = expected_output.expected(layout, rank, np.dtype(dtype), redop)
        bad += int(np.count_nonzero(device.cupy.asnumpy(recv) != right))
    return bad


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_exact(device, example, instances):
    program, _ = compiled_algorithm(str(example), {}, instances=instances)
    if program.threadblocks > device.multiprocessors:
        pytest.skip(f"{program.threadblocks} threadblocks, {device.multiprocessors} multiprocessors")
    for count in (1, 96, 3001, 1 << 20):
        assert wrong(device, program, count) == 0


@pytest.mark.parametrize("redop", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("dtype", [name for name in ELEMENTS if name not in ("bfloat16", "uint8")])
def test_types_and_operators_are_exact(device, dtype, redop):
    assert wrong(device, lower(ring_all_reduce(4)), 10007, dtype, redop, tile_bytes=4096) == 0


def test_many_runs_on_the_same_buffers(device):
    layout = Layout(lower(ring_all_reduce(4)), 1 << 16)
    sends, recvs = arrays(device, layout, "int32", "sum", False)
    machine = OneDevice(device, layout, sends, recvs, "int32")
    for _ in range(50):
        machine.start()
    machine.finish()
    for rank, recv in enumerate(recvs):
        right = expected_output.expected(layout, rank, np.dtype("int32"), "sum")
        np.testing.assert_array_equal(device.cupy.asnumpy(recv), right)


def test_a_stuck_program_names_who_waits(device):
    program = lower(ring_all_reduce(3), fuse=False)
    layout = Layout(program, 300)
    sends, recvs = arrays(device, layout, "float32", "sum", False)
    machine = OneDevice(device, layout, sends, recvs, "float32", limit_s=0.5)
    # Rank 1's rows of steps are told to send nothing.
    table = machine.encoded.steps.copy()
    rows = np.flatnonzero(table[:, 0] & 16)
    table[rows[:1], 0] = 0
    machine._machine._tables[1] = device.uploaded(table)
    with pytest.raises(LostRankError, match="waits for a message from rank"):
        machine.run()


def test_too_many_threadblocks_are_refused(device):
    many = 1 + 2048 * device.multiprocessors // 512
    program = lower(ring_all_reduce(2))
    wide = replace(
        program,
        tb_rank=ints(np.sort(np.arange(many) % 2)),
        tb_send=ints(np.full(many, -1)),
        tb_recv=ints(np.full(many, -1)),
        tb_channel=ints(np.zeros(many)),
        tb_start=ints(np.zeros(many + 1)),
        **{
            name: getattr(program, name)[:0]
            for name in ("op", "src_buffer", "src_slot", "dst_buffer", "dst_slot", "count", "wait_tb")
        },
        wait_step=program.wait_step[:0],
    )
    layout = Layout(wide, 10)
    sends, recvs = arrays(device, layout, "float32", "sum", False)
    with pytest.raises(UnavailableError, match="threadblocks on this GPU, which holds"):
        OneDevice(device, layout, sends, recvs, "float32")


def test_buffers_that_do_not_fit_are_refused(device):
    layout = Layout(lower(ring_all_reduce(2)), 10)
    sends, recvs = arrays(device, layout, "float32", "sum", False)
    assert layout.elements(0, INPUT) == 10
    with pytest.raises(UsageError, match="send buffer of rank 0: expected 40 contiguous bytes, found 36"):
        OneDevice(device, layout, [each[:-1] for each in sends], recvs, "float32")


@pytest.mark.mpi
@pytest.mark.alone
@pytest.mark.parametrize("name", ["ring", "all_to_all"])
def test_processes_that_share_the_gpu_use_contexts(name):
    program = lower(ring_all_reduce(2) if name == "ring" else random_schedule("all_to_all", 3, 2, 5))
    layout = Layout(program, 5000)
    dtype = np.dtype("float32")
    inputs = tuple(expected_output.given(layout, rank, dtype, "sum") for rank in range(program.ranks))
    request = fitting(program, inputs, "sum", device="cuda")
    outputs, how = run_ranks("exec.run_once:run_task", request, World(program.ranks))
    assert how.startswith("contexts over peer: ranks 0 and 1 share GPU")
    for rank, output in enumerate(outputs):
        np.testing.assert_array_equal(output, expected_output.expected(layout, rank, dtype, "sum"))
