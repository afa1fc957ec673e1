"""Streams on the host: queues of work that run in any order that the events allow, as on a GPU."""

import contextlib
import ctypes
import random
from collections import deque

import numpy as np
from cuda_on_host import bits_of, library

from exec.cuda.kernel.encode import encoded
from exec.cuda.kernel.fifo_memory import arenas
from exec.cuda.streams.contexts import StreamContexts
from exec.cuda.streams.endpoints import Endpoints
from exec.program import dtype_of, expected_output
from exec.program.layout import Layout
from synth.program import OUTPUT, SCRATCH

__all__ = ["HostDevice", "HostStreams", "buffers_of", "contexts_task"]


class Event:
    """``issued`` counts records asked for, ``passed`` those that the streams have come to."""

    def __init__(self):
        self.issued = self.passed = 0


class HostStreams:
    """Streams whose work runs when ``pump`` is called; a wait means the last record asked for before it."""

    def __init__(self, dtype="float32", redop="sum", seed=0):
        self._dtype, self._redop = dtype, redop
        self._random = random.Random(seed)
        self.queues = []

    def stream(self):
        self.queues.append(deque())
        return self.queues[-1]

    def event(self):
        return Event()

    def record(self, event, stream):
        event.issued += 1
        number = event.issued

        def passes():
            event.passed = max(event.passed, number)
            return True

        stream.append(passes)

    def wait(self, stream, event):
        number = event.issued
        stream.append(lambda: event.passed >= number)

    def copy(self, to, source, size_bytes, stream):
        def copies():
            ctypes.memmove(to, source, size_bytes)
            return True

        stream.append(copies)

    def combine(self, first, second, into, also, elements, stream):
        def combines():
            pointers = (ctypes.c_void_p(address or None) for address in (first, second, into, also))
            library(self._dtype, self._redop).run_combine(
                ctypes.c_int64(1), 1, *pointers, ctypes.c_int64(elements)
            )
            return True

        stream.append(combines)

    def done(self, event):
        self.pump(3)
        return event.passed == event.issued

    def pump(self, times):
        """Try the head of a stream chosen at random, so often."""
        for _ in range(times if self.queues else 0):
            queue = self._random.choice(self.queues)
            if queue and queue[0]():
                queue.popleft()

    def synchronize(self):
        while any(self.queues):
            self.pump(1)


class HostDevice:
    """Memory of the host in place of a GPU's: what staging needs of one."""

    def pinned(self, shape, dtype):
        return np.zeros(shape, dtype)

    def translating_errors(self):
        return contextlib.nullcontext()


def buffers_of(layout, rank, dtype, redop):
    storage = np.dtype("float32" if dtype == "bfloat16" else dtype)
    given = bits_of(expected_output.given(layout, rank, storage, redop), dtype)
    scratch = np.zeros(max(layout.elements(rank, SCRATCH), 1), given.dtype)
    if layout.program.out_of_place:
        return given, np.zeros(layout.elements(rank, OUTPUT), given.dtype), scratch
    total, where_in, where_out = layout.in_place(rank)
    whole = np.zeros(total, given.dtype)
    whole[where_in] = given
    return whole[where_in], whole[where_out], scratch


def contexts_task(comm, requests, progress):
    """Return for each request how many elements of all ranks are wrong."""
    return [_wrong(comm, *request) for request in requests]


def _wrong(comm, program, count, tile_bytes):
    """Run a program over MPI messages, twice."""
    layout, rank = Layout(program, count), comm.Get_rank()
    table = encoded(layout, dtype_of("float32").itemsize, tile_bytes=tile_bytes)
    streams = HostStreams(seed=rank)
    places = arenas(table)
    pairs = zip(places.sender.tolist(), places.receiver.tolist(), strict=True)
    ends = Endpoints(comm, HostDevice(), streams, table, places, dict.fromkeys(pairs, "staged"))
    contexts = StreamContexts(table, rank, streams, ends.outgoing, ends.incoming)
    for _ in range(2):
        buffers = buffers_of(layout, rank, "float32", "sum")
        contexts.run([each.ctypes.data for each in buffers])
    ends.close()
    right = expected_output.expected(layout, rank, np.dtype("float32"), "sum")
    return comm.allreduce(int(np.count_nonzero(buffers[OUTPUT] != right)))
