"""Writes a plan as JSON of MSCCL++."""

from __future__ import annotations

from typing import Any

from probes.base import gc_paused
from synth.mscclpp.plan import ExecutionPlan, Operand, Operation, PlanRank, Threadblock

__all__ = ["write_plan"]


@gc_paused()
def write_plan(plan: ExecutionPlan) -> bytes:
    """Return the JSON text of a plan; reading it gives the same plan."""
    import msgspec

    document = {
        "name": plan.name,
        "collective": plan.collective,
        "protocol": plan.protocol,
        "inplace": plan.in_place,
        "reuse_resources": plan.reuse_resources,
        "gpus": [_gpu(gpu, rank) for rank, gpu in enumerate(plan.gpus)],
        "num_threads_per_block": plan.threads,
        "use_double_scratch_buffer": plan.double_scratch,
        "buffer_alignment": plan.alignment,
        "min_message_size": plan.min_bytes,
        "max_message_size": plan.max_bytes,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def _gpu(gpu: PlanRank, rank: int) -> dict[str, Any]:
    channels: list[dict[str, Any]] = [
        {"channel_type": kind, "connected_to": gpu.peers(kind)}
        for kind in ("memory", "port")
        if gpu.peers(kind)
    ]
    channels += [
        {
            "channel_type": "switch",
            "buffer_type": switch.buffer,
            "rank_groups": [{"size": len(switch.ranks), "ranks": switch.ranks}],
        }
        for switch in gpu.switch
    ]
    return {
        "id": rank,
        "input_chunks": gpu.input_chunks,
        "output_chunks": gpu.output_chunks,
        "scratch_chunks": gpu.scratch_chunks,
        "threadblocks": [_threadblock(block, at) for at, block in enumerate(gpu.threadblocks)],
        "channels": channels,
        "remote_buffers": [
            {"rank": buffer.rank, "type": buffer.buffer, "access_channel_types": buffer.access}
            for buffer in gpu.remote_buffers
        ],
        "semaphores": [{"init_value": value} for value in gpu.semaphores],
    }


def _threadblock(block: Threadblock, at: int) -> dict[str, Any]:
    channels = {"memory": block.memory, "port": block.port, "switch": block.switch}
    buffers = {"memory": block.memory_buffers, "port": block.port_buffers}
    return {
        "id": at,
        "ops": [_operation(operation) for operation in block.operations],
        "channels": [{"channel_type": kind, "channel_ids": ids} for kind, ids in channels.items() if ids],
        "remote_buffer_refs": [
            {"access_channel_type": kind, "remote_buffer_ids": ids} for kind, ids in buffers.items() if ids
        ],
    }


def _operation(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {"name": operation.name}
    if operation.inner:
        found["iter_context"] = {"unit_size": operation.unit_bytes, "num_chunks": operation.chunks}
        found["ops"] = [_operation(one) for one in operation.inner]
    if operation.src:
        found["src_buff"] = [_operand(operand) for operand in operation.src]
    if operation.dst:
        found["dst_buff"] = [_operand(operand) for operand in operation.dst]
    if operation.channels:
        found["channel_ids"] = operation.channels
    if operation.channel_type != "none":
        found["channel_type"] = operation.channel_type
    if operation.slices > 1:
        found["tbg_info"] = {"tb_id": operation.slice, "tbg_size": operation.slices}
    if operation.barrier >= 0:
        found["barrier_id"] = operation.barrier
        found["num_threadblocks"] = operation.blocks
    if operation.semaphores:
        found["semaphore_ids"] = operation.semaphores
    if operation.reduce_op:
        found["reduce_op"] = operation.reduce_op
    return found


def _operand(operand: Operand) -> dict[str, Any]:
    place = {"index": operand.index, "size": operand.size}
    if operand.buffer:
        return {"type": operand.buffer, **place}
    if operand.remote >= 0:
        return {"buffer_id": operand.remote, **place}
    return {"switch_channel_id": operand.switch, **place}
