"""CUDA, NCCL and NVML on the host, with the parameters of CuPy 14: each call is noted, and one may fail.

Nothing is copied and no kernel runs. What a rank takes and gives back is counted, so that a test sees what a
fault leaves. Ranks are threads; a rank's communicator ends its waits when another rank has failed, as a
launcher ends all processes of a run.
"""

import functools
import itertools
import sys
import threading
from collections import Counter, defaultdict, deque
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

__all__ = ["EndedError", "RecordedCuda", "RecordedRanks"]

ROOT = Path(__file__).parents[2]


@functools.cache
def _name_in_source(file):
    """The name of a file of the product; empty for any other, tests included."""
    path = Path(file)
    return path.name if ROOT in path.parents and "tests" not in path.parts else ""


class CUDARuntimeError(RuntimeError):
    """CuPy's exception of the runtime."""


class CUDADriverError(RuntimeError):
    """CuPy's exception of the driver."""


class OutOfMemoryError(MemoryError):
    """CuPy's exception of its pool."""


class NcclError(RuntimeError):
    """CuPy's exception of NCCL."""


class NVMLError(Exception):
    """The exception of pynvml."""


class EndedError(Exception):
    """Another rank has failed."""


class RecordedCuda:
    """The modules ``cupy`` and ``pynvml``; ``calls`` are those of rank 0, each with its place in the source.

    ``passed`` are its calls with their arguments; those that stand for memory or streams are left out.
    ``fault`` is (call, how many of its calls come before the one that fails); ``failed``: it has come.
    ``live`` counts what each rank holds, by its kind. ``gpus`` is their number. ``reach``: they read each
    other's memory. ``passes``: events are reached at once.
    """

    def __init__(self, *, gpus=1, reach=True, has_nccl=True, passes=True, fault=None):
        self.calls, self.passed, self.live = [], [], defaultdict(Counter)
        self._passes, self._counting = passes, threading.RLock()
        self._fault, self._before, self.failed = fault, 0, False
        self._local, self._addresses = threading.local(), itertools.count(1 << 20, 1 << 20)
        self.cuda = self._cuda(gpus, reach)
        self.cuda.nccl = self._nccl(has_nccl)
        self.pynvml = self._pynvml()

    @property
    def rank(self):
        """The rank of this thread."""
        return getattr(self._local, "rank", 0)

    @rank.setter
    def rank(self, rank):
        self._local.rank = rank

    def install(self, monkeypatch):
        """Put these modules in the place of the real ones."""
        monkeypatch.setitem(sys.modules, "cupy", self)
        monkeypatch.setitem(sys.modules, "cupy.cuda", self.cuda)
        monkeypatch.setitem(sys.modules, "pynvml", self.pynvml)

    def call(self, name, failure, *arguments):
        """Note a call of rank 0, and fail if it is its turn."""
        kinds = (int, bool, bytes, tuple, type(None), str)
        assert all(type(one) in kinds for one in arguments), (name, arguments)
        if self.rank:
            return
        frame = sys._getframe(1)
        while not (file := _name_in_source(frame.f_code.co_filename)) and frame.f_back is not None:
            frame = frame.f_back
        made = (name, f"{file}:{frame.f_lineno}")
        self.calls.append(made)
        self.passed.append((name, arguments))
        if self._fault is not None and made == self._fault[0]:
            if self._before == self._fault[1]:
                self.failed = True
                raise failure(f"{name} fails")
            self._before += 1

    def _taken(self, kind, by=1, rank=None):
        # An object may go while its thread counts another one.
        with self._counting:
            self.live[self.rank if rank is None else rank][kind] += by

    def _holding(self, kind, failure, **methods):
        """A class whose objects are counted while they live."""
        recorder = self

        class Held:
            def __init__(self, *arguments, **named):
                recorder.call(kind, failure, *arguments, *named.values())
                self._rank, self.ptr = recorder.rank, next(recorder._addresses)
                recorder._taken(kind)

            def __del__(self):
                if hasattr(self, "_rank"):
                    recorder._taken(kind, -1, self._rank)

        for name, result in methods.items():
            told = f"{kind}.{name}"

            def method(self, *arguments, _told=told, _result=result):
                recorder.call(_told, failure, *(one for one in arguments if not hasattr(one, "ptr")))
                return _result

            setattr(Held, name, method)
        Held.__name__ = kind
        return Held

    def _function(self, name, count, failure=CUDARuntimeError, result=None):
        def function(*arguments):
            assert len(arguments) == count, (name, arguments)
            self.call(name, failure, *arguments)
            return result(*arguments) if callable(result) else result

        return function

    def _cuda(self, gpus, reach):
        runtime = partial(self._function, failure=CUDARuntimeError)
        driver = partial(self._function, failure=CUDADriverError)
        recorder = self

        class Stream(self._holding("Stream", CUDARuntimeError, synchronize=None)):
            def __init__(self, null=False, non_blocking=False, ptds=False, priority=None):
                super().__init__(null, non_blocking, ptds, priority)

        class Event(self._holding("Event", CUDARuntimeError, record=None, synchronize=None)):
            def __init__(self, block=False, disable_timing=False, interprocess=False):
                super().__init__(block, disable_timing, interprocess)

            @property
            def done(self):
                recorder.call("Event.done", CUDARuntimeError)
                return recorder._passes

        class Function:
            ptr = 9

            def __call__(self, grid, block, args, *, shared_mem=0, stream=None):
                recorder.call("Function", CUDADriverError, *grid, *block, shared_mem, stream.ptr)
                assert {type(one) for one in args} <= {np.int64, np.int32}

        class Module(self._holding("Module", CUDADriverError)):
            def load(self, cubin):
                recorder.call("Module.load", CUDADriverError, cubin)

            def get_function(self, name):
                recorder.call("Module.get_function", CUDADriverError, name)
                return Function()

        class Device:
            compute_capability = "90"

            def __init__(self, device=None):
                recorder.call("Device", CUDARuntimeError, device)
                self.attributes = {"MultiProcessorCount": 4, "L2CacheSize": 1 << 20}

            def use(self):
                recorder.call("Device.use", CUDARuntimeError)

            def __enter__(self):
                recorder.call("Device.__enter__", CUDARuntimeError)

            def __exit__(self, *error):
                recorder.call("Device.__exit__", CUDARuntimeError)

        class PinnedMemory(bytearray):
            ptr = 5

            def __del__(self):
                recorder._taken("pinned", -1, self.rank)

        def alloc_pinned_memory(size):
            recorder.call("alloc_pinned_memory", CUDARuntimeError, size)
            memory = PinnedMemory(size)
            memory.rank = recorder.rank
            recorder._taken("pinned")
            return memory

        class Array(np.ndarray):
            @property
            def data(self):
                return SimpleNamespace(ptr=int(self.ctypes.data))

            def set(self, content):
                recorder.call("ndarray.set", CUDARuntimeError)
                self[...] = content

            def get(self, out):
                recorder.call("ndarray.get", CUDARuntimeError)
                out[...] = self

        def asarray(content):
            recorder.call("asarray", OutOfMemoryError)
            return np.array(content).view(Array)

        self.asarray, owners = asarray, {}

        def opened(kind):
            def function(*_):
                address = next(self._addresses)
                owners[address] = self.rank
                self._taken(kind)
                return address

            return function

        def closed(kind):
            # Any thread may collect what nothing refers to.
            return lambda address: self._taken(kind, -1, owners.pop(address))

        def exported(address):
            return str(address).encode()

        return SimpleNamespace(
            Memory=self._holding("Memory", CUDARuntimeError),
            alloc=self._holding("alloc", OutOfMemoryError),
            alloc_pinned_memory=alloc_pinned_memory,
            Stream=Stream,
            Event=Event,
            Device=Device,
            get_current_stream=lambda: Stream(),
            get_elapsed_time=lambda first, last: self.call("get_elapsed_time", CUDARuntimeError) or 0.25,
            function=SimpleNamespace(Module=Module),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            runtime=SimpleNamespace(
                CUDARuntimeError=CUDARuntimeError,
                getDeviceCount=runtime("getDeviceCount", 0, result=gpus),
                getDeviceProperties=runtime("getDeviceProperties", 1, result={"name": b"recorded"}),
                deviceGetPCIBusId=runtime("deviceGetPCIBusId", 1, result=lambda gpu: f"0000:{gpu:02x}:00.0"),
                deviceGetByPCIBusId=runtime("deviceGetByPCIBusId", 1, result=lambda name: int(name[5:7], 16)),
                deviceCanAccessPeer=runtime("deviceCanAccessPeer", 2, result=int(reach)),
                deviceSynchronize=runtime("deviceSynchronize", 0),
                memset=runtime("memset", 3),
                memcpy=runtime("memcpy", 4),
                memcpyAsync=runtime("memcpyAsync", 5),
                eventRecord=runtime("eventRecord", 2),
                streamWaitEvent=runtime("streamWaitEvent", 2),
                eventDestroy=runtime("eventDestroy", 1, result=closed("event of a peer")),
                ipcGetMemHandle=runtime("ipcGetMemHandle", 1, result=exported),
                ipcOpenMemHandle=_first_of(runtime, "ipcOpenMemHandle", opened("memory of a peer")),
                ipcCloseMemHandle=runtime("ipcCloseMemHandle", 1, result=closed("memory of a peer")),
                ipcGetEventHandle=runtime("ipcGetEventHandle", 1, result=exported),
                ipcOpenEventHandle=runtime("ipcOpenEventHandle", 1, result=opened("event of a peer")),
            ),
            driver=SimpleNamespace(
                CUDADriverError=CUDADriverError,
                occupancyMaxActiveBlocksPerMultiprocessor=driver(
                    "occupancyMaxActiveBlocksPerMultiprocessor", 3, result=2
                ),
                launchCooperativeKernel=driver("launchCooperativeKernel", 10),
            ),
        )

    def _nccl(self, available):
        recorder = self

        class NcclCommunicator(self._holding("NcclCommunicator", NcclError)):
            def __init__(self, ndev, commId, rank):  # noqa: N803 - CuPy's name
                super().__init__(ndev, commId, rank)

            def __getattr__(self, name):
                if name.startswith("_"):
                    raise AttributeError(name)
                return lambda *arguments: recorder.call(name, NcclError, *arguments)

        told = partial(self._function, failure=NcclError)
        names = {f"NCCL_{word}": at for at, word in enumerate(("FLOAT32", "SUM"))}
        return SimpleNamespace(
            available=available,
            NcclError=NcclError,
            NcclCommunicator=NcclCommunicator,
            get_unique_id=told("get_unique_id", 0, result=b"unique"),
            get_version=told("get_version", 0, result=22809),
            groupStart=told("groupStart", 0),
            groupEnd=told("groupEnd", 0),
            **names,
        )

    def _pynvml(self):
        told = partial(self._function, failure=NVMLError)

        def started():
            self._taken("NVML")

        def shut():
            self._taken("NVML", -1)

        return SimpleNamespace(
            NVMLError=NVMLError,
            NVML_P2P_CAPS_INDEX_NVLINK=2,
            NVML_P2P_STATUS_OK=0,
            nvmlInit=told("nvmlInit", 0, result=started),
            nvmlShutdown=told("nvmlShutdown", 0, result=shut),
            nvmlDeviceGetHandleByPciBusId=told("nvmlDeviceGetHandleByPciBusId", 1, result=7),
            nvmlDeviceGetP2PStatus=told("nvmlDeviceGetP2PStatus", 3, result=0),
        )


def _first_of(runtime, name, result):
    """A function of CuPy whose second argument has a default."""
    both = runtime(name, 2, result=result)
    return lambda handle, flags=1: both(handle, flags)


class RecordedRanks:
    """Ranks as threads that use one `RecordedCuda`; ``hosts[rank]`` is the host of each."""

    def __init__(self, cuda, hosts):
        self.cuda, self.hosts, self.ended = cuda, hosts, False
        self.changed = threading.Condition()
        self.said, self.boxes = defaultdict(dict), defaultdict(deque)

    def on_all(self, work, patience_s):
        """Run ``work(comm)`` of each rank; return rank 0's error. No rank may outlive the first failure."""
        errors = {}

        def run(rank):
            self.cuda.rank = rank
            try:
                work(RecordedComm(self, rank, (), range(len(self.hosts))))
            except BaseException as error:
                errors[rank] = error
                with self.changed:
                    self.ended = True
                    self.changed.notify_all()

        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(len(self.hosts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(patience_s)
        assert not any(thread.is_alive() for thread in threads)
        assert all(isinstance(errors[rank], EndedError) for rank in set(errors) - {0}), errors
        return errors.get(0)


class RecordedComm:
    """The calls of a communicator of mpi4py that executors and peers make."""

    def __init__(self, world, rank, name, members):
        self._world, self._rank, self._name, self._members = world, rank, name, list(members)
        self._collectives = self._children = 0

    def Get_rank(self):  # noqa: N802 - as mpi4py names it
        return self._members.index(self._rank)

    def Get_size(self):  # noqa: N802
        return len(self._members)

    def allgather(self, value):
        self._collectives += 1
        return self._met((self._name, self._collectives), value)

    def _met(self, key, value):
        world = self._world
        with world.changed:
            world.said[key][self._rank] = value
            world.changed.notify_all()
            self._until(lambda: len(world.said[key]) == len(self._members))
            return [world.said[key][rank] for rank in self._members]

    def _until(self, holds):
        while not holds():
            if self._world.ended:
                raise EndedError
            self._world.changed.wait(1.0)

    def Barrier(self):  # noqa: N802
        self.allgather(None)

    def allreduce(self, value, op=None):
        return all(self.allgather(value))

    def bcast(self, value, root=0):
        return self.allgather(value)[root]

    def _child(self, members):
        self._children += 1
        return RecordedComm(self._world, self._rank, (*self._name, self._children, *members), members)

    def Dup(self):  # noqa: N802
        return self._child(self._members)

    def Split_type(self, kind):  # noqa: N802
        hosts = self._world.hosts
        return self._child([rank for rank in self._members if hosts[rank] == hosts[self._rank]])

    def Free(self):  # noqa: N802
        pass

    def _box(self, source, dest, tag):
        return self._world.boxes[self._name, self._members[source], self._members[dest], tag]

    def send(self, value, dest, tag=0):
        with self._world.changed:
            self._box(self.Get_rank(), dest, tag).append(value)
            self._world.changed.notify_all()

    def recv(self, source, tag=0):
        box = self._box(source, self.Get_rank(), tag)
        with self._world.changed:
            self._until(lambda: box)
            return box.popleft()

    def Isend(self, content, dest, tag=0):  # noqa: N802
        self.send(None, dest, tag)
        return SimpleNamespace(Test=lambda: True, Cancel=lambda: None, Wait=lambda: None)

    def Irecv(self, content, source, tag=0):  # noqa: N802
        box, here = self._box(source, self.Get_rank(), tag), []

        def test():
            if self._world.ended:
                raise EndedError
            if not here and box:
                here.append(box.popleft())
            return bool(here)

        return SimpleNamespace(Test=test, Cancel=lambda: None, Wait=lambda: None)

    def Iprobe(self, source, tag):  # noqa: N802
        if self._world.ended:
            raise EndedError
        return bool(self._box(source, self.Get_rank(), tag))

    def Recv(self, content, source, tag):  # noqa: N802
        self.recv(source, tag)
