"""The kernels on a GPU: all ranks on one device, in one cooperative kernel."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cuda_on_host import bits_of
from hypothesis import assume, given, settings, strategies as st
from one_device import OneDevice
from posing_ranks import Pose
from sample_schedules import random_schedule, ring_all_reduce

from exec.cuda.kernel.elements import ELEMENTS, OPERATORS
from exec.cuda.streams.nccl import available as nccl_available
from exec.launcher.run import World, run_ranks
from exec.program import expected_output
from exec.program.interpreter import interpret
from exec.program.layout import Layout
from exec.run_once import fitting
from probes.base.columns import ints
from probes.base.errors import LostRankError, UnavailableError, UsageError
from synth import synthesize
from synth.collective import KINDS
from synth.compiler.lowering import lower
from synth.lang.algorithm_file import compiled_algorithm
from synth.networks import family
from synth.program import INPUT, OUTPUT

HELPERS = Path(__file__).parents[2] / "helpers"
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


def storage(dtype):
    """The type whose values the exact results are computed in."""
    return np.dtype("float32" if dtype == "bfloat16" else dtype)


def arrays(device, layout, dtype, redop, in_place):
    """(send, receive) arrays of the GPU for each rank, laid out for the placement."""
    of = "sum" if redop == "avg" else redop
    sends, recvs = [], []
    for rank in range(layout.program.ranks):
        held = bits_of(expected_output.given(layout, rank, storage(dtype), of), dtype)
        if in_place:
            total, where_in, where_out = layout.in_place(rank)
            whole = device.cupy.zeros(total, held.dtype)
            whole[where_in] = device.cupy.asarray(held)
            sends.append(whole[where_in])
            recvs.append(whole[where_out])
        else:
            sends.append(device.cupy.asarray(held))
            recvs.append(device.cupy.zeros(layout.elements(rank, OUTPUT), held.dtype))
    device.cupy.cuda.Device().synchronize()
    return sends, recvs


def wrong(device, program, count, dtype="float32", redop="sum", *, in_place=None, by="Simple", **how):
    """Elements that are not what they must be, over all ranks, after one launch."""
    layout = Layout(replace(program, protocol=by), count)
    in_place = not program.out_of_place if in_place is None else in_place
    sends, recvs = arrays(device, layout, dtype, redop, in_place)
    machine = OneDevice(device, layout, sends, recvs, dtype, redop, **how)
    machine.run()
    bad = 0
    for rank, recv in enumerate(recvs):
        right = expected_output.expected(layout, rank, storage(dtype), "sum" if redop == "avg" else redop)
        if redop == "avg" and program.collective.reduces:
            right = np.trunc(right / program.ranks) if right.dtype.kind in "iu" else right / program.ranks
        bad += int(np.count_nonzero(device.cupy.asnumpy(recv) != bits_of(right, dtype)))
    return bad


@pytest.mark.parametrize("by", ["Simple", "LL", "LL128"])
@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_exact(device, example, instances, by):
    program, _ = compiled_algorithm(str(example), {}, instances=instances)
    if program.threadblocks > device.multiprocessors:
        pytest.skip(f"{program.threadblocks} threadblocks, {device.multiprocessors} multiprocessors")
    for count in (1, 96, 3001, 1 << 20):
        for in_place in [False] * program.out_of_place + [True] * program.in_place:
            assert wrong(device, program, count, in_place=in_place, by=by) == 0


# The exact inputs have negative numbers, whose order uint8 does not keep.
CASES = [
    (dtype, redop)
    for dtype in ELEMENTS
    for redop in OPERATORS
    if dtype != "uint8" or redop in ("sum", "prod", "avg")
]


@pytest.mark.parametrize("by", ["Simple", "LL", "LL128"])
@pytest.mark.parametrize(("dtype", "redop"), CASES)
def test_types_and_operators_are_exact(device, dtype, redop, by):
    assert wrong(device, lower(ring_all_reduce(4)), 10007, dtype, redop, by=by, tile_bytes=4096) == 0


@settings(max_examples=150)
@given(
    kind=st.sampled_from(KINDS),
    ranks=st.integers(2, 6),
    chunks=st.integers(1, 3),
    count=st.integers(1, 5000),
    seed=st.integers(0, 1 << 30),
    tile_bytes=st.sampled_from([16, 64, 4096, 1 << 20]),
    slice_bytes=st.sampled_from([16, 48, 1 << 20]),
    by=st.sampled_from(["Simple", "LL", "LL128"]),
)
def test_random_programs_are_exact(device, kind, ranks, chunks, count, seed, tile_bytes, slice_bytes, by):
    program = lower(random_schedule(kind, ranks, chunks, seed))
    assume(program.threadblocks <= device.multiprocessors)
    cut = {"tile_bytes": tile_bytes, "slice_bytes": slice_bytes, "by": by}
    assert wrong(device, program, count, "int32", **cut) == 0


@pytest.mark.parametrize("by", ["Simple", "LL", "LL128"])
@pytest.mark.parametrize("count", [1000, 1 << 16, 1 << 20])
def test_many_runs_on_the_same_buffers(device, count, by):
    layout = Layout(replace(lower(ring_all_reduce(8)), protocol=by), count)
    sends, recvs = arrays(device, layout, "int32", "sum", False)
    machine = OneDevice(device, layout, sends, recvs, "int32")
    for _ in range(500):
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
    device.upload(machine._machine._tables[1], table)
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


POSES = {
    "interpreter over peer": Pose((0, 0, 0)),
    "interpreter over staged": Pose((0, 1, 2)),
    "interpreter over peer, staged": Pose((0, 0, 1)),
    "contexts over peer": Pose((0, 0, 0), contexts=True),
    "contexts over staged": Pose((0, 1, 2), contexts=True),
    "contexts over nccl": Pose((0, 1, 2), contexts=True, nccl=True),
}


@pytest.mark.mpi
@pytest.mark.alone
@pytest.mark.parametrize("how", POSES)
@pytest.mark.parametrize("name", ["ring", "all_to_all", "hierarchical"])
def test_ranks_that_pose_as_having_a_gpu_each_are_exact(name, how, monkeypatch):
    if "nccl" in how and not nccl_available():
        pytest.skip("CuPy finds no NCCL")
    monkeypatch.setenv("PYTHONPATH", str(HELPERS), prepend=os.pathsep)
    if name == "hierarchical":
        example = next(path for path in EXAMPLES if path.stem == "hierarchical_allreduce")
        program, _ = compiled_algorithm(str(example), {"nodes": 1, "gpus": 3})
    else:
        program = lower(ring_all_reduce(3) if name == "ring" else random_schedule("all_to_all", 3, 2, 5))
    cases = [(5000, "float32", "sum"), (300_000, "float16", "max"), (7, "int64", "avg")]
    request = (program, cases, POSES[how])
    assert run_ranks("posing_ranks:posing_task", request, World(3)) == ({how}, 0)


@pytest.mark.mpi
@pytest.mark.alone
def test_nccls_own_collectives_are_exact(monkeypatch):
    if not nccl_available():
        pytest.skip("CuPy finds no NCCL")
    monkeypatch.setenv("PYTHONPATH", str(HELPERS), prepend=os.pathsep)
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "reduce", "broadcast")
    kinds += ("all_to_all", "scatter", "gather", "all_to_next")
    # NCCL averages by multiplying by 1 / ranks, which is exact for four.
    layouts = [Layout(lower(random_schedule(kind, 4, 1, 3)), 1600) for kind in kinds]
    found = run_ranks("posing_ranks:nccl_task", (layouts, "float32"), World(4))
    assert {name: bad for name, bad in found.items() if bad} == {}
    assert len(found) >= 2 * len(kinds)


@pytest.mark.parametrize("by", ["Simple", "LL", "LL128"])
@pytest.mark.parametrize("network", ["ring:4", "switch:4", "fully_connected:4"])
def test_sums_in_a_fixed_order_are_the_same_bits_as_on_the_cpu(device, network, by):
    """Whatever the network, the number of chunks, the protocol and the tiles."""
    random = np.random.default_rng(1)
    inputs = [
        np.ascontiguousarray(random.standard_normal(4000) * 2.0 ** random.integers(-6, 7, 4000), np.float32)
        for _ in range(4)
    ]
    right: set[bytes] = set()
    for chunks in (4, 8):
        found = synthesize(
            family(network, [1e-6], [50e9]), "all_reduce", chunk_bytes=256, chunks=chunks, reproducible=True
        )
        program = lower(found.listed)
        right |= {output.tobytes() for output in interpret(program, inputs)}
        layout = Layout(replace(program, protocol=by), 4000)
        for tile_bytes in (1024, 1 << 20):
            sends = [device.cupy.asarray(each) for each in inputs]
            recvs = [device.cupy.zeros(4000, np.float32) for _ in inputs]
            OneDevice(device, layout, sends, recvs, "float32", "sum", tile_bytes=tile_bytes).run()
            right |= {device.cupy.asnumpy(each).tobytes() for each in recvs}
    assert len(right) == 1


@pytest.mark.mpi
@pytest.mark.alone
def test_the_log_of_a_real_job_of_nccl_is_read(run_ccctl, tmp_path, monkeypatch):
    if not nccl_available():
        pytest.skip("CuPy finds no NCCL")
    monkeypatch.setenv("PYTHONPATH", str(HELPERS), prepend=os.pathsep)
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("NCCL_DEBUG_SUBSYS", "INIT,ENV,GRAPH,TUNING,COLL,NET")
    monkeypatch.setenv("NCCL_DEBUG_FILE", str(tmp_path / "nccl.%p.log"))
    layouts = [Layout(lower(random_schedule(kind, 4, 1, 3)), 1600) for kind in ("all_reduce", "all_gather")]
    run_ranks("posing_ranks:nccl_task", (layouts, "float32"), World(4))
    logs = sorted(path.name for path in tmp_path.glob("nccl.*.log"))
    done = run_ccctl("explain", *logs, "--json")
    read = json.loads(done.stdout)["nccl"]
    assert read["size"] == 4, done.stdout
    assert {"AllReduce", "AllGather"} <= {choice["collective"] for choice in read["choices"]}
