"""NCCL and CUDA fail at each call in turn: the peer tells it as unavailable, and names library and GPU."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from exec.cuda.streams import nccl as connections
from exec.peers.nccl import NcclPeer
from probes.base.errors import UnavailableError
from synth.collective import collective

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "reduce", "broadcast", "all_to_all")


class CUDARuntimeError(RuntimeError):
    """CuPy's exception of the runtime."""


class CUDADriverError(RuntimeError):
    """CuPy's exception of the driver."""


class NcclError(RuntimeError):
    """CuPy's exception of NCCL."""


def one_rank():
    """Return a communicator of one rank."""
    return SimpleNamespace(
        Get_rank=lambda: 0,
        Get_size=lambda: 1,
        bcast=lambda value: value,
        allgather=lambda value: [value],
        send=lambda value, dest, tag: None,
        recv=lambda source, tag: (1, 2),
    )


class Recorder:
    """CuPy and its NCCL on one rank; the call number ``fails`` raises what its library raises."""

    def __init__(self, fails=-1):
        self.calls, self.fails = [], fails
        recorder = self

        class Array(np.ndarray):
            @property
            def data(self):
                return SimpleNamespace(ptr=int(self.ctypes.data))

            def set(self, content):
                recorder.call("set", CUDARuntimeError)
                self[...] = content

            def get(self, out):
                recorder.call("get", CUDARuntimeError)
                out[...] = self

        class Stream:
            ptr = 7

            def __init__(self, non_blocking=False):
                recorder.call("Stream", CUDARuntimeError)

            def synchronize(self):
                recorder.call("synchronize", CUDARuntimeError)

        class Communicator:
            def __init__(self, ndev, name, rank):
                recorder.call("NcclCommunicator", NcclError, ndev, rank)

            def __getattr__(self, name):
                return lambda *arguments: recorder.call(name, NcclError, *arguments)

        def asarray(content):
            recorder.call("asarray", MemoryError)
            return np.array(content).view(Array)

        def device(number):
            return SimpleNamespace(use=lambda: recorder.call("use", CUDARuntimeError, number))

        def told(name, result=None):
            def function():
                recorder.call(name, NcclError)
                return result

            return function

        self.asarray = asarray
        names = {f"NCCL_{word}": at for at, word in enumerate(("FLOAT32", "SUM"))}
        self.nccl = SimpleNamespace(
            NcclError=NcclError,
            NcclCommunicator=Communicator,
            get_unique_id=told("get_unique_id", (1, 2)),
            get_version=lambda: 22809,
            groupStart=told("groupStart"),
            groupEnd=told("groupEnd"),
            **names,
        )
        self.cuda = SimpleNamespace(
            Device=device,
            Stream=Stream,
            get_current_stream=Stream,
            nccl=self.nccl,
            memory=SimpleNamespace(OutOfMemoryError=MemoryError),
            runtime=SimpleNamespace(CUDARuntimeError=CUDARuntimeError, getDeviceCount=lambda: 1),
            driver=SimpleNamespace(CUDADriverError=CUDADriverError),
        )

    def call(self, name, failure, *arguments):
        assert all(type(one) is int for one in arguments), (name, arguments)
        self.calls.append((name, failure))
        if len(self.calls) - 1 == self.fails:
            raise failure(f"{name} fails")


def recorded(monkeypatch, fails=-1):
    recorder = Recorder(fails)
    monkeypatch.setitem(sys.modules, "cupy", recorder)
    monkeypatch.setitem(sys.modules, "cupy.cuda", recorder.cuda)
    return recorder


def compare(kind):
    """Run one collective by NCCL, from its communicator to its result."""
    peer = NcclPeer(one_rank())
    content = np.arange(8, dtype=np.float32)
    buffers = SimpleNamespace(
        dtype=content.dtype, in_place=False, whole=content, recv=content, send=content.copy()
    )
    call = peer.ready(collective(kind, 1), buffers, "sum")
    call.place()
    call.run()
    call.fetch()
    peer.close()


def connect(sends):
    """Connect two ranks, whose other one never fails."""
    stream = SimpleNamespace(ptr=7, synchronize=lambda: None)
    connections.connected(one_rank(), 1, 0, 64, stream, sends=sends)


@pytest.mark.parametrize(
    "run",
    [*(lambda kind=kind: compare(kind) for kind in KINDS), lambda: connect(True), lambda: connect(False)],
    ids=[*KINDS, "sender", "receiver"],
)
def test_a_fault_at_each_call_is_told(monkeypatch, run):
    whole = recorded(monkeypatch)
    run()
    for fails, (name, failure) in enumerate(whole.calls):
        broken = recorded(monkeypatch, fails)
        library = "NCCL" if failure is NcclError else "CUDA"
        with pytest.raises(UnavailableError, match=f"^{library}(?: on GPU 0)?: {name} fails$"):
            run()
        assert len(broken.calls) >= fails + 1


def test_without_nccl_cudas_errors_are_still_told(monkeypatch):
    recorder = recorded(monkeypatch, 0)
    del recorder.cuda.nccl.NcclError
    with pytest.raises(UnavailableError, match=r"^CUDA on GPU 0: use fails$"):
        NcclPeer(one_rank())
