"""The persistent kernel on hosts that are processes, each with some ranks, blocks as threads and a proxy."""

import numpy as np
from cuda_on_host import _aligned, _buffers, _Launch, bits_of, library

from exec.cuda.kernel.encode import SPARE_SLOTS, encoded
from exec.cuda.kernel.fifo_memory import arenas
from exec.cuda.kernel.launch import waiters
from exec.cuda.kernel.proxies import Proxy, RemoteFifos
from exec.program import dtype_of, expected_output
from exec.program.layout import Layout
from synth.program import OUTPUT


def proxied_task(comm, requests, progress):
    """Return the number of wrong elements of each request, over all hosts and launches."""
    return [_wrong(comm, *request) for request in requests]


def _wrong(comm, program, count, dtype, tile_bytes, slice_bytes, launches, hosts):
    host = comm.Get_rank()
    layout = Layout(program, count)
    cut = {"tile_bytes": tile_bytes, "slice_bytes": slice_bytes, "spare_slots": SPARE_SLOTS}
    table = encoded(layout, dtype_of(dtype).itemsize, **cut)
    places = arenas(table, hosts)
    own = range(hosts.index(host), hosts.index(host) + hosts.count(host))
    memory = [_aligned(int(size)) for size in places.sizes]
    remote = RemoteFifos(table, places, own, hosts, hosts, _aligned)
    assert remote.ends, "nothing crosses hosts"
    launch = _Launch(library(dtype, "sum"), table, places.links, [each.ctypes.data for each in memory], own)
    first = table.blocks_of(own[0]).start
    remote.point(launch.links, range(first, first + len(launch.blocks)))
    proxy, bad = Proxy(comm, remote.ends), 0
    for number in range(launches):
        inputs = {
            rank: bits_of(expected_output.given(layout, rank, np.dtype(dtype), "sum"), dtype) for rank in own
        }
        buffers = {rank: _buffers(layout, rank, inputs[rank], not program.out_of_place) for rank in own}
        proxy.begin()
        launch.run(buffers, dict.fromkeys(own, ()), 1, number, 60.0)
        proxy.end()
        assert waiters(table, launch.records) == []
        for rank in own:
            right = expected_output.expected(layout, rank, np.dtype(dtype), "sum")
            bad += int(np.count_nonzero(buffers[rank][OUTPUT] != bits_of(right, dtype)))
    proxy.close()
    return comm.allreduce(bad)
