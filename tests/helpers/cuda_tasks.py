"""Work of ccctl by CUDA, NCCL and NVML, each task from its first call to its last, on a `RecordedCuda`."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
from limits import HANG_S
from recorded_cuda import RecordedCuda, RecordedRanks
from sample_schedules import ring_all_reduce

from exec.cuda import capabilities
from exec.cuda.kernel import device
from exec.cuda.kernel.compile import Cubin
from exec.cuda.plan import CudaPlan
from exec.peers.nccl import NcclPeer
from exec.program.layout import Layout
from probes.live import cuda_copies, cuda_links
from probes.live.cuda_copies import CudaCopies
from probes.live.cuda_links import cuda_end
from synth.collective import collective
from synth.compiler.lowering import lower

__all__ = ["TASKS"]

RANKS = 2
# GPUs and what joins them, by the executor and the wires that follow from it.
MACHINES = {
    "interpreter over peer": {"gpus": RANKS},
    "contexts over peer": {"gpus": 1},
    "contexts over nccl": {"gpus": RANKS, "reach": False},
    "contexts over staged": {"gpus": RANKS, "reach": False, "has_nccl": False},
    "contexts over direct": {"gpus": RANKS, "reach": False, "has_nccl": False},
}
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "reduce", "broadcast", "all_to_all")
GPUS = ("0000:00:00.0", "0000:01:00.0")


def carried_out(monkeypatch, task, ranks=1, fault=None, **machine):
    """Run ``task(comm)`` on a machine; return (what CUDA has noted, the error of rank 0)."""
    cuda = RecordedCuda(fault=fault, **machine)
    cuda.install(monkeypatch)
    return cuda, RecordedRanks(cuda, [0] * ranks).on_all(task, HANG_S)


def plan(monkeypatch, machine, fault=None):
    """Make a plan whose wires may have whole lines, run it twice, and close it; as `carried_out`."""
    monkeypatch.setattr(device, "cubin", lambda *_: Cubin(b"code", {}))
    monkeypatch.setattr(capabilities, "cuda_aware", lambda: machine.endswith("direct"))
    program = replace(lower(ring_all_reduce(RANKS)), protocol="LL128")

    def task(comm):
        send, recv = (np.ones(100, np.float32) for _ in range(2))
        made = CudaPlan(Layout(program, 100), comm, send, recv, "avg")
        for _ in range(2):
            made.place()
            made.run()
            made.fetch()
        made.close()
        found = f"{made.choice.executor} over {', '.join(set(made.choice.wires.values()))}"
        # A fault that says that memory is out of reach leads to another executor.
        assert fault is not None or found == machine, (found, made.choice.why)

    return carried_out(monkeypatch, task, RANKS, fault, **MACHINES[machine])


def peer(monkeypatch, kind, fault=None):
    """Run one collective by NCCL, from its communicator to its result; as `carried_out`."""

    def task(comm):
        made = NcclPeer(comm)
        content = np.arange(8, dtype=np.float32)
        buffers = SimpleNamespace(
            dtype=content.dtype, in_place=False, whole=content, recv=content, send=content.copy()
        )
        call = made.ready(collective(kind, 1), buffers, "sum")
        call.place()
        call.run()
        call.fetch()
        made.close()

    return carried_out(monkeypatch, task, fault=fault)


def links(monkeypatch, fault=None):
    """Time copies of each kind, as for the links of a GPU; as `carried_out`."""
    monkeypatch.setattr(cuda_links, "BUFFER_BYTES", 1 << 10)

    def task(comm):
        end = cuda_end("cuda", 0)
        end.lend()
        with end.borrowed(b"handle") as address:
            end.pull_s(address, 8)
        end.from_host_s(8)
        end.to_host_s(8)

    return carried_out(monkeypatch, task, fault=fault)


def copies(monkeypatch, fault=None):
    """Time copies to the host alone, beside those of another GPU, and under load; as `carried_out`."""
    # Few and small copies make the same calls.
    monkeypatch.setattr(cuda_copies, "_ROUNDS", (1, 2))
    monkeypatch.setattr(cuda_copies, "_COPY_BYTES", 1 << 10)

    def task(comm):
        both = CudaCopies(GPUS, {})
        both.alone_gbs(GPUS[0])
        both.beside_gbs(*GPUS)
        with both.running(GPUS[1]):
            pass

    return carried_out(monkeypatch, task, fault=fault, gpus=2, passes=False)


TASKS = {
    **{f"plan: {machine}": partial(plan, machine=machine) for machine in MACHINES},
    **{f"peer nccl: {kind}": partial(peer, kind=kind) for kind in KINDS},
    "links of GPUs": links,
    "copies beside others": copies,
}
