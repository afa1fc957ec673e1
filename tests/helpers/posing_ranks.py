"""Ranks that share one GPU and pose as what they are not: ranks with a GPU each, or on hosts of their own.

One GPU then runs what otherwise takes several. The kernels of several processes take turns on it, a few
milliseconds each, so the results count and the times do not.
"""

import os
from dataclasses import dataclass, replace

import numpy as np

import exec.cuda.plan
from exec.cuda.plan import CudaPlan
from exec.peers import nccl
from exec.program import Buffers
from exec.program.layout import Layout


@dataclass(frozen=True)
class Pose:
    """The facts that all ranks believe. ``host_of``: the host of each rank."""

    host_of: tuple[int, ...]
    contexts: bool = False
    nccl: bool = False


def _pose(pose, rank):
    gathered = exec.cuda.plan.gathered
    # NCCL refuses two ranks on a GPU only if they are on one host, and this variable names the host.
    os.environ.update(NCCL_HOSTID=f"host{rank}", NCCL_SOCKET_IFNAME="lo")

    def posing(comm, device, room):
        facts = gathered(comm, device, room)
        gpus = tuple(f"gpu{at}" for at in range(len(facts.gpus)))
        hosts = tuple(f"host{host}" for host in pose.host_of)
        reachable = frozenset((host, own, other) for host in hosts for own in gpus for other in gpus)
        room_of = tuple(0 if pose.contexts else most for most in facts.room)
        return replace(
            facts, hosts=hosts, gpus=gpus, reachable=reachable, room=room_of, nccl=pose.nccl, cuda_aware=False
        )

    exec.cuda.plan.gathered = posing


def posing_task(comm, request, progress):
    """Return the executor with its wires, and the number of wrong elements over three runs of each case."""
    program, cases, pose = request
    _pose(pose, comm.Get_rank())
    bad, how = 0, set()
    for count, dtype, redop in cases:
        layout = Layout(program, count)
        buffers = Buffers(layout, comm.Get_rank(), np.dtype(dtype), in_place=not program.out_of_place)
        plan = CudaPlan(layout, comm, buffers.send, buffers.recv, redop)
        for _ in range(3):
            buffers.fill(redop)
            plan.place()
            plan.run()
            plan.fetch()
            bad += buffers.wrong(buffers.recv, redop)
        plan.close()
        how.add(f"{plan.choice.executor} over {', '.join(sorted(set(plan.choice.wires.values())))}")
    return how, comm.allreduce(bad)


def nccl_task(comm, request, progress):
    """Return the number of wrong elements of NCCL's own collectives, by the name of each."""
    layouts, dtype = request
    _pose(Pose(tuple(range(comm.Get_size()))), comm.Get_rank())
    nccl._device = _first_gpu
    peer = nccl.NcclPeer(comm)
    found = {}
    for layout in layouts:
        wanted = layout.program.collective
        for redop in ("sum", "max", "avg") if wanted.reduces else ("sum",):
            for in_place in [False] * layout.program.out_of_place + [True] * layout.program.in_place:
                buffers = Buffers(layout, comm.Get_rank(), np.dtype(dtype), in_place=in_place)
                buffers.fill(redop)
                call = peer.ready(wanted, buffers, redop)
                call.place()
                call.run()
                call.fetch()
                name = f"{wanted.kind} {redop} {'in' if in_place else 'out of'} place"
                found[name] = comm.allreduce(buffers.wrong(call.result, redop))
    peer.close()
    return found


def _first_gpu(_):
    import cupy
    from cupy.cuda import nccl as module

    return cupy, module, 0
