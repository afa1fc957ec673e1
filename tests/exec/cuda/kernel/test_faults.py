"""CUDA fails at each call in turn: the error names the GPU, and everything that was allocated is freed.

A recorder stands where CuPy stands, with the parameters of CuPy 13; it checks the type of each argument.
"""

import gc
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from sample_schedules import ring_all_reduce

from exec.cuda.kernel import device as devices
from exec.cuda.kernel.compile import Cubin
from exec.cuda.kernel.device import Device, Kernels
from exec.cuda.kernel.encode import encoded
from exec.cuda.kernel.fifo_memory import arenas
from exec.cuda.kernel.launch import Interpreter, divide_sums
from exec.program.layout import Layout
from probes.base.errors import UnavailableError
from synth.compiler.lowering import lower

RANKS = 3


class CUDARuntimeError(RuntimeError):
    """CuPy's exception of the runtime."""


class CUDADriverError(RuntimeError):
    """CuPy's exception of the driver."""


class Recorder:
    """CuPy's part that the kernel uses; the call number ``fails`` raises what its interface raises."""

    def __init__(self, fails=-1):
        self.calls, self.fails, self.live = [], fails, 0
        recorder = self

        class Memory:
            """Memory of the GPU, here of the host; its address is ``ptr``."""

            def __init__(self, size):
                recorder.call("Memory", CUDARuntimeError, size)
                self._content = np.zeros(size, np.uint8)
                self.ptr = int(self._content.ctypes.data)
                recorder.live += 1

            def __del__(self):
                recorder.live -= hasattr(self, "ptr")

        class Stream:
            def __init__(self, null=False, non_blocking=False, ptds=False, priority=None):
                recorder.call("Stream", CUDARuntimeError, null, non_blocking)
                self.ptr = 7

            def synchronize(self):
                recorder.call("Stream.synchronize", CUDARuntimeError)

        class Function:
            ptr = 9

            def __call__(self, grid, block, args, *, shared_mem=0, stream=None):
                recorder.call("Function", CUDADriverError, *grid, *block, shared_mem, stream.ptr)
                assert [type(one) for one in args] == [np.int64, np.int64, np.int32]

        class Module:
            def load(self, cubin):
                assert type(cubin) is bytes
                recorder.call("Module.load", CUDADriverError)

            def get_function(self, name):
                assert type(name) is str
                recorder.call("Module.get_function", CUDADriverError)
                return Function()

        class OneDevice:
            compute_capability = "90"

            def __init__(self, device=None):
                recorder.call("Device", CUDARuntimeError, device)
                self.attributes = {"MultiProcessorCount": 4, "L2CacheSize": 1 << 20}

            def use(self):
                recorder.call("Device.use", CUDARuntimeError)

        def runtime(name, *types, result=None):
            def function(*arguments):
                assert len(arguments) == len(types), (name, arguments)
                recorder.call(name, CUDARuntimeError, *arguments)
                return result

            return function

        def driver(name, count, result=None):
            def function(*arguments):
                assert len(arguments) == count, (name, arguments)
                recorder.call(name, CUDADriverError, *arguments)
                return result

            return function

        def alloc_pinned_memory(size):
            recorder.call("alloc_pinned_memory", CUDARuntimeError, size)
            return bytearray(size)

        self.cuda = SimpleNamespace(
            Memory=Memory,
            Stream=Stream,
            Device=OneDevice,
            alloc_pinned_memory=alloc_pinned_memory,
            function=SimpleNamespace(Module=Module),
            runtime=SimpleNamespace(
                CUDARuntimeError=CUDARuntimeError,
                getDeviceCount=runtime("getDeviceCount", result=1),
                getDeviceProperties=runtime("getDeviceProperties", int, result={"name": b"recorded"}),
                memset=runtime("memset", int, int, int),
                memcpy=runtime("memcpy", int, int, int, int),
                deviceSynchronize=runtime("deviceSynchronize"),
            ),
            driver=SimpleNamespace(
                CUDADriverError=CUDADriverError,
                occupancyMaxActiveBlocksPerMultiprocessor=driver("occupancy", 3, result=2),
                launchCooperativeKernel=driver("launchCooperativeKernel", 10),
            ),
        )

    def call(self, name, failure, *arguments):
        assert all(type(one) in (int, bool) for one in arguments), (name, arguments)
        self.calls.append(name)
        if len(self.calls) - 1 == self.fails:
            raise failure(f"{name} fails")


def carry_out():
    """Make one kernel for all ranks, launch it twice with other buffers, and divide a sum."""
    layout = Layout(lower(ring_all_reduce(RANKS)), 100)
    device = Device()
    kernels = Kernels(device, "float32", "avg")
    table = encoded(layout, 4)
    places = arenas(table)
    memory = [device.memory(int(size)) for size in places.sizes]
    bases = [one.ptr for one in memory]
    interpreter = Interpreter(device, kernels, table, places, bases, range(RANKS))
    for launch in range(2):
        interpreter.launch(tuple((launch, launch, launch) for _ in range(RANKS)))
    interpreter.finish()
    divide_sums(device, kernels, [(0, 100, RANKS)], bases[0], 4)
    device.synchronize()


def recorded(monkeypatch, fails=-1):
    recorder = Recorder(fails)
    monkeypatch.setitem(sys.modules, "cupy", recorder)
    monkeypatch.setattr(devices, "cubin", lambda *_: Cubin(b"code", {}))
    return recorder


def test_each_call_has_the_types_that_cupy_takes(monkeypatch):
    recorder = recorded(monkeypatch)
    carry_out()
    gc.collect()
    assert recorder.live == 0
    assert {"Memory", "memset", "memcpy", "launchCooperativeKernel", "occupancy", "Function"} < {
        *recorder.calls
    }


def test_a_fault_at_each_call_is_told_and_leaves_nothing_allocated(monkeypatch):
    recorder = recorded(monkeypatch)
    carry_out()
    gc.collect()
    # A collection after each fault then looks at little more than what the fault left.
    gc.freeze()
    for fails, name in enumerate(recorder.calls):
        broken = recorded(monkeypatch, fails)
        with pytest.raises(UnavailableError, match=f"^CUDA(?: on GPU 0)?: {name} fails$") as caught:
            carry_out()
        assert "ccctl doctor" in caught.value.hint
        assert len(broken.calls) == fails + 1
        assert ("on GPU 0" in caught.value.message) == (name != "getDeviceCount")
        del caught
        gc.collect()
        assert broken.live == 0, name
