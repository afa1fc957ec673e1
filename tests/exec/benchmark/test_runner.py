"""The benchmark over every collective, ours and the library's, with what they must end with."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, strategies as st
from joined import run_over_mpi
from sample_schedules import random_schedule, ring_all_reduce

from exec.benchmark.runner import BenchRequest, Contender, busbw_factor
from exec.program import expected_output
from exec.program.buffers import Buffers
from exec.program.dtypes import DTYPES, REDOPS, dtype_name, dtype_of, ufunc_of
from exec.program.layout import Layout
from probes.base.errors import UsageError
from synth import synthesize
from synth.collective import KINDS, UNEVEN_KINDS
from synth.compiler.lowering import lower
from synth.network import Link, build
from synth.portfolio.request import Request
from synth.portfolio.uneven import uneven_request
from synth.redistribution import MeshLayout, Moved, redistribution

WORKER = """
import pickle, sys
from exec.benchmark.runner import bench_all_task
from probes.base.progress import SILENT

with open(sys.argv[4], "rb") as stream:
    requests = pickle.load(stream)
reports = [bench_all_task(comm, (request,), SILENT) for request in requests]
if rank == 0:
    with open(sys.argv[5], "wb") as stream:
        pickle.dump(reports, stream)
"""


@given(
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from(DTYPES),
    redop=st.sampled_from(REDOPS),
    count=st.integers(1, 40),
    in_place=st.booleans(),
)
def test_buffers_of_every_type_know_what_they_must_end_with(kind, dtype, redop, count, in_place):
    layout = Layout(lower(random_schedule(kind, 3, 2, 0)), count)
    in_place = in_place and layout.program.in_place
    for rank in range(3):
        buffers = Buffers(layout, rank, dtype_of(dtype), in_place=in_place)
        buffers.fill(redop)
        if not in_place:
            assert buffers.wrong(buffers.recv, redop) == buffers.recv.size
        right = expected_output.expected(layout, rank, buffers.dtype, redop)
        assert right.dtype == buffers.recv.dtype and right.size == buffers.recv.size
        buffers.recv[:] = right
        assert buffers.wrong(buffers.recv, redop) == 0


def uneven_program(kind):
    """A program on three ranks with blocks of different sizes, one of them empty."""
    sizes = [0, 5, 2, 9, 0, 0, 1, 3, 3] if kind == "all_to_all" else [3, 0, 7]
    links = [Link(a, b, 1e-6, 1e-9) for a in range(3) for b in range(3) if a != b]
    one, size_bytes = uneven_request(kind, 3, [size << 10 for size in sizes], root=2)
    network = build("pairs", ["host"] * 3, links)
    request = Request(network, "custom", size_bytes=size_bytes, collectives=(one,), jobs=0)
    return lower(synthesize(request).listed)


def redistribution_program():
    """A program that moves two tensors from two replicas and from halves to three ranks."""
    replicas, halves = MeshLayout((0, 2), (2,), (None,)), MeshLayout((1, 2), (2,), (0,))
    thirds, everywhere = MeshLayout((0, 1, 2), (3,), (1,)), MeshLayout((0, 1, 2), (3,), (None,))
    links = [Link(a, b, 1e-6, 1e-9) for a in range(3) for b in range(3) if a != b]
    plan = redistribution(3, [Moved((5, 7), 4, replicas, thirds), Moved((9, 4), 4, halves, everywhere)])
    one, size_bytes = plan.request()
    network = build("pairs", ["host"] * 3, links)
    request = Request(network, "custom", size_bytes=size_bytes, collectives=(one,), jobs=0)
    return lower(synthesize(request).listed)


@pytest.mark.mpi
def test_every_collective_is_right_in_each_placement_and_so_is_the_library(tmp_path):
    requests = []
    for number, kind in enumerate(KINDS):
        program = lower(random_schedule(kind, 3, 2, 1))
        placements = (False, True)[: 1 + program.in_place]
        order = placements[:: 1 - 2 * (number % 2)]
        dtype, redop = ("float32", "int64")[number // 2 % 2], REDOPS[number % 4]
        ours = (Contender(program.name, program, (1e-6, None, 1e-3)),)
        requests.append(BenchRequest(ours, (1, 9001), dtype, redop, 1, 2, order, ("mpi",)))
    uneven_programs = [uneven_program(kind) for kind in UNEVEN_KINDS]
    for program in [redistribution_program(), *uneven_programs]:
        ours = (Contender(program.name, program, None),)
        peers = ("mpi",) if program.collective.blocks.kind != "custom" else ()
        requests.append(BenchRequest(ours, (1, 17), "float32", "sum", 1, 2, (False,), peers))
    (tmp_path / "requests").write_bytes(pickle.dumps(requests))
    run_over_mpi(tmp_path, 3, WORKER, str(tmp_path / "requests"), str(tmp_path / "reports"))
    reports = pickle.loads((tmp_path / "reports").read_bytes())
    for report in reports[-len(uneven_programs) :]:
        for row in report.rows:
            assert row.out_of_place.wrong == row.peers["mpi"].wrong == 0, row
    even = len(requests) - len(uneven_programs) - 1
    assert [row.out_of_place.wrong for row in reports[even].rows] == [0, 0]
    for request, report in zip(requests[:even], reports[:even], strict=True):
        assert report.ranks == 3
        for row, count in zip(report.rows, request.counts, strict=True):
            owned = ("all_gather", "reduce_scatter", "all_to_all", "scatter", "gather")
            blocks = 3 if row.collective in owned else 1
            assert (row.count, row.size_bytes) == (count, blocks * count * dtype_of(request.dtype).itemsize)
            found = {False: row.out_of_place, True: row.in_place}
            for in_place, measured in found.items():
                assert (measured is None) == (in_place not in request.placements)
            for measured in [*filter(None, found.values()), row.peers["mpi"]]:
                assert measured.wrong == 0, (row.collective, row.count)
                assert 0 < measured.p50_s <= measured.p99_s
                assert 0 <= measured.slowest_rank < 3
                factor = busbw_factor(row.collective, 3)
                assert measured.busbw_gbs == pytest.approx(measured.algbw_gbs * factor)


def test_ranks_that_run_and_measure_load_nothing_that_plans():
    planning = {"scipy.sparse", "pulp", "synth.bounds", "synth.compiler"}
    script = f"import sys, exec.benchmark.runner, exec.run_once; print({planning} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_bandwidth_factors_are_those_of_nccl_tests():
    factors = {kind: busbw_factor(kind, 4) for kind in KINDS}
    assert factors.pop("all_reduce") == 1.5
    assert factors.pop("broadcast") == factors.pop("reduce") == factors.pop("all_to_next") == 1.0
    assert set(factors.values()) == {0.75}


@given(
    kind=st.sampled_from(KINDS),
    count=st.integers(1, 9000),
    redop=st.sampled_from(REDOPS),
    element=st.integers(0, 1 << 30),
)
def test_one_wrong_element_is_counted(kind, count, redop, element):
    layout = Layout(lower(random_schedule(kind, 3, 1, 0)), count)
    rank = layout.program.collective.root
    buffers = Buffers(layout, rank, np.dtype("float32"), in_place=False)
    buffers.fill(redop)
    assert buffers.wrong(buffers.recv, redop) == buffers.recv.size
    buffers.recv[:] = expected_output.expected(layout, rank, buffers.dtype, redop)
    assert buffers.wrong(buffers.recv, redop) == 0
    buffers.recv[element % buffers.recv.size] += 1
    assert buffers.wrong(buffers.recv, redop) == 1


@pytest.mark.parametrize("ranks", [11, 12, 16, 64])
def test_elements_that_are_never_written_are_wrong_for_sums_of_many_ranks(ranks):
    layout = Layout(lower(ring_all_reduce(ranks)), 9000)
    buffers = Buffers(layout, 0, np.dtype("int32"), in_place=False)
    buffers.fill("sum")
    assert buffers.wrong(buffers.recv, "sum") == buffers.recv.size


def test_out_of_place_a_changed_input_is_wrong():
    layout = Layout(lower(ring_all_reduce(2)), 8)
    buffers = Buffers(layout, 0, np.dtype("int32"), in_place=False)
    buffers.fill("sum")
    buffers.recv[:] = expected_output.expected(layout, 0, buffers.dtype, "sum")
    buffers.send[3] += 1
    assert buffers.wrong(buffers.recv, "sum") == 1


def test_names_of_types_and_operators():
    assert dtype_of("double") == dtype_of("float64") == np.float64
    assert dtype_of("float") == np.float32
    assert dtype_of("half") == np.float16
    assert [dtype_name(dtype_of(name)) for name in DTYPES] == list(DTYPES)
    for refused in ("void16", "", "uint16", "object"):
        with pytest.raises(UsageError, match="dtype"):
            dtype_of(refused)
    with pytest.raises(UsageError, match="op"):
        ufunc_of("mean")
