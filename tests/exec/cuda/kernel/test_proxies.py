"""The kernel across hosts: FIFOs between them carried by proxies, over MPI between processes."""

from pathlib import Path
from threading import enumerate as threads
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_on_host import COMPILER
from sample_schedules import random_schedule, ring_all_reduce

from exec.cuda.kernel.encode import encoded
from exec.cuda.kernel.fifo_memory import arenas
from exec.cuda.kernel.proxies import Proxy, RemoteFifos
from exec.cuda.plan import _Kernel
from exec.launcher.run import World, run_ranks
from exec.program.layout import Layout
from probes.base import UnavailableError
from synth.compiler.lowering import lower
from synth.lang.algorithm_file import compiled_algorithm

ROOT = Path(__file__).parents[4]


def zeros(size):
    return np.zeros(size, dtype=np.uint8)


def tables(program, hosts, count=4000, **cut):
    table = encoded(Layout(program, count), 4, **cut)
    places = arenas(table, hosts)
    ends = [
        RemoteFifos(table, places, range(rank, rank + 1), hosts, range(len(hosts)), zeros).ends
        for rank in range(len(hosts))
    ]
    return table, places, ends


def test_both_ends_of_a_fifo_cut_its_messages_alike():
    table, _, ends = tables(lower(ring_all_reduce(4)), [0, 0, 1, 1], tile_bytes=512, slice_bytes=64)
    assert [len(of_rank) for of_rank in ends] == [1, 1, 1, 1]
    by_fifo = {}
    for end in (end for of_rank in ends for end in of_rank):
        by_fifo.setdefault(end.fifo, []).append(end)
    for one, other in by_fifo.values():
        assert {one.outgoing, other.outgoing} == {True, False}
        assert one.spans == other.spans
        assert (one.room, len(one.places)) == (other.room, int(table.room[one.fifo]))
        # All that crosses: each chunk of the ring twice less one, whole.
        assert sum(length for _, length in one.spans) == 6 * 4000 // 4 * 4


def test_what_stays_on_a_host_has_no_places_elsewhere():
    _, places, ends = tables(lower(ring_all_reduce(4)), [0, 0, 0, 0])
    assert ends == [[]] * 4
    _, near, _ = tables(lower(ring_all_reduce(4)), [0, 0, 1, 1])
    assert (near.sizes <= places.sizes).all()
    assert near.sizes.sum() < places.sizes.sum()


class Failing:
    """A communicator whose network is gone."""

    def Irecv(self, *arguments):  # noqa: N802 - MPI's name
        raise OSError("no network")

    Isend = Irecv


def test_what_goes_wrong_in_the_thread_is_raised_at_the_end():
    _, _, ends = tables(lower(ring_all_reduce(2)), [0, 1])
    proxy = Proxy(Failing(), ends[0])
    proxy.begin()
    with pytest.raises(OSError, match="no network"):
        proxy.end()


@pytest.mark.parametrize("call", ["launch", "finish"])
def test_a_kernel_that_fails_ends_the_thread(call):
    _, _, ends = tables(lower(ring_all_reduce(2)), [0, 1])
    waits = SimpleNamespace(Test=lambda: False)
    silent = SimpleNamespace(Isend=lambda *_: waits, Irecv=lambda *_: waits)

    def fails(*_):
        raise UnavailableError("CUDA: no")

    kernel = object.__new__(_Kernel)
    kernel._proxy = Proxy(silent, ends[0])
    kernel._machine = SimpleNamespace(**{"launch": print, "finish": print, call: fails})
    with pytest.raises(UnavailableError, match="CUDA: no"):
        kernel.run((0, 0, 0))
    assert kernel._proxy._thread is None
    assert not any(thread.name == "proxy of a NIC" for thread in threads())


@pytest.mark.mpi
@pytest.mark.skipif(COMPILER is None, reason="g++ is not installed")
@pytest.mark.parametrize(
    "cases",
    [
        [
            ("ring", [0, 0, 1, 1], 3001),
            ("two_step_alltoall", [0, 0, 1, 1], 96),
            ("hierarchical_allreduce", [0, 0, 1, 1], 1999),
            ("random", [0, 1, 1], 700),
        ],
        [("ring", [0, 1, 2], 17)],
    ],
    ids=["two hosts", "three hosts"],
)
def test_hosts_joined_by_proxies_are_exact(cases, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "helpers"))
    processes = max(max(hosts) for _, hosts, _ in cases) + 1
    found = run_ranks("proxied_kernels:proxied_task", [*map(request, cases)], World(processes))
    assert found == [0] * len(cases)


def request(case):
    """The arguments of one run: a program, and how it is cut and launched."""
    name, hosts, count = case
    if name == "ring":
        program = lower(ring_all_reduce(len(hosts)))
    elif name == "random":
        program = lower(random_schedule("all_to_all", len(hosts), 2, 5))
    else:
        program, _ = compiled_algorithm(str(ROOT / "examples" / f"{name}.py"), {"nodes": 2, "gpus": 2})
    # Places are used again and again, and three launches end at no multiple of them.
    return program, count, "float32", 256, 64, 3, hosts
