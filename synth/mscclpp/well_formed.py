"""Checks the form of a plan: ids that exist, operands that fit, and the executor's limits.

Limits are those of the library's executor (``execution_common.hpp``, the same from v0.5 on). The executor
itself checks only the number of operations; beyond other limits it writes past its structures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from synth.mscclpp.plan import (
    MOST_MIN_BYTES,
    PACKET_OPERATIONS,
    ExecutionPlan,
    Operand,
    Operation,
    PlanRank,
    Threadblock,
)

__all__ = [
    "MOST_BARRIERS",
    "MOST_BUFFERS",
    "MOST_CHANNELS",
    "MOST_CHANNELS_AN_OPERATION",
    "MOST_OPERANDS",
    "MOST_OPERATIONS",
    "MOST_SEMAPHORES",
    "form",
]

# Lengths of the arrays in MSCCL++'s execution_common.hpp (MAX_OPERATION, MAX_CHANNEL and others).
MOST_OPERATIONS = 64
MOST_CHANNELS = 16
MOST_BUFFERS = 16
MOST_CHANNELS_AN_OPERATION = 8
MOST_OPERANDS = 10
MOST_BARRIERS = 16
MOST_SEMAPHORES = 16
# Bits of the ids that a put over a port names, in fifo_device.hpp. Each rank registers its own three buffers.
_MOST_MEMORIES, _OWN_MEMORIES = 1 << 9, 3
_MOST_PORTS = 1 << 10
# Collectives whose input and output have the same number of chunks.
_ONE_SIZE = ("allreduce", "alltoall", "broadcast")


@dataclass(frozen=True)
class _Form:
    """The operands of an operation, one letter each; the last may repeat if ``more_src`` or ``more_dst``.

    ``l`` is a local buffer, ``r`` a remote one, ``w`` a switch channel; capitals must be scratch.
    """

    src: str = ""
    dst: str = ""
    more_src: bool = False
    more_dst: bool = False
    channels: tuple[str, ...] = ()
    paired: bool = False


_MEMORY, _EITHER = ("memory",), ("memory", "port")
_FORMS = {
    "put": _Form("l", "r", more_src=True, more_dst=True, channels=_EITHER, paired=True),
    "pws": _Form("l", "r", more_src=True, more_dst=True, channels=("port",), paired=True),
    "pwsf": _Form("l", "r", more_src=True, more_dst=True, channels=("port",), paired=True),
    "get": _Form("r", "l", more_src=True, more_dst=True, channels=_MEMORY, paired=True),
    "copy": _Form("l", "l"),
    "re": _Form("ll", "l", more_src=True),
    "res": _Form("ll", "lr", more_src=True, more_dst=True, channels=_MEMORY),
    "rre": _Form("lr", "l", more_src=True, channels=_MEMORY),
    "rres": _Form("lr", "lr", more_src=True, more_dst=True, channels=_MEMORY),
    "ppkt": _Form("l", "R", more_src=True, more_dst=True, channels=_EITHER, paired=True),
    "rppkt": _Form("L", "R", more_dst=True, channels=_EITHER),
    "cpkt": _Form("l", "L"),
    "upkt": _Form("L", "l"),
    "repkt": _Form("lL", "l", more_src=True),
    "respkt": _Form("lL", "lR", more_src=True, more_dst=True, channels=_MEMORY),
    "recpkt": _Form("lL", "lL", more_src=True),
    "recspkt": _Form("lL", "lLR", more_src=True, more_dst=True, channels=_MEMORY),
    "glres": _Form("w", "w", channels=("switch",)),
    "gstore": _Form("l", "w", channels=("switch",)),
}
_SIGNALS = ("signal", "wait", "rlxsignal", "rlxwait")


def form(plan: ExecutionPlan) -> list[str]:
    """Return findings with their places in the file: limits, missing ids, operands that do not fit."""
    found = _sizes(plan)
    for rank, gpu in enumerate(plan.gpus):
        found += _lists(plan, gpu, rank)
        for at, block in enumerate(gpu.threadblocks):
            found += _block(plan, gpu, block, f"gpus[{rank}].threadblocks[{at}]")
    return found or _barriers(plan)


def _sizes(plan: ExecutionPlan) -> list[str]:
    """Return findings on chunk sizes: input and output must have chunks of one size, on all ranks."""
    if not plan.gpus:
        return ["gpus: expected at least one"]
    found = []
    if plan.min_bytes > MOST_MIN_BYTES:
        found.append(
            f"min_message_size: the executor reads 32 bits with a sign, at most {MOST_MIN_BYTES}, "
            f"found {plan.min_bytes}"
        )
    for rank, gpu in enumerate(plan.gpus):
        for name in ("input_chunks", "output_chunks"):
            if getattr(gpu, name) < 1:
                found.append(f"gpus[{rank}].{name}: expected at least 1, the executor divides by it")
    ratio = {"allgather": (1, plan.ranks), "reducescatter": (plan.ranks, 1)}.get(
        plan.collective, (1, 1) if plan.collective in _ONE_SIZE else (0, 0)
    )
    if found or not any(ratio):
        return found
    for rank, gpu in enumerate(plan.gpus):
        sizes, first = (gpu.input_chunks, gpu.output_chunks), plan.gpus[0]
        if sizes[0] * ratio[1] != sizes[1] * ratio[0]:
            found.append(
                f"gpus[{rank}]: chunks of input and output must have one size, so {plan.collective} of "
                f"{plan.ranks} ranks has {ratio[0]} to {ratio[1]}, found {sizes[0]} to {sizes[1]}"
            )
        elif sizes != (first.input_chunks, first.output_chunks):
            found.append(f"gpus[{rank}]: it has other numbers of chunks than gpus[0]")
        elif plan.collective == "alltoall" and sizes[0] % plan.ranks:
            found.append(f"gpus[{rank}].input_chunks: expected a multiple of {plan.ranks}, found {sizes[0]}")
    return found


def _lists(plan: ExecutionPlan, gpu: PlanRank, rank: int) -> list[str]:
    path, found = f"gpus[{rank}]", []
    for kind in ("memory", "port"):
        for peer in gpu.peers(kind):
            if peer >= plan.ranks or peer == rank:
                found.append(
                    f"{path}.channels: a {kind} channel to rank {peer}, which is not another rank of the plan"
                )
    memories = _OWN_MEMORIES + sum("port" in buffer.access for buffer in gpu.remote_buffers)
    if memories > _MOST_MEMORIES:
        found.append(f"{path}: {memories} memories for ports, the executor takes {_MOST_MEMORIES}")
    if len(gpu.port) > _MOST_PORTS:
        found.append(f"{path}: {len(gpu.port)} port channels, the executor takes {_MOST_PORTS}")
    for at, buffer in enumerate(gpu.remote_buffers):
        if buffer.rank >= plan.ranks or buffer.rank == rank:
            found.append(f"{path}.remote_buffers[{at}].rank: {buffer.rank} is not another rank of the plan")
    for at, switch in enumerate(gpu.switch):
        if rank not in switch.ranks or max(switch.ranks) >= plan.ranks:
            found.append(
                f"{path}.channels: switch group {at} must be of ranks of the plan, {rank} among them"
            )
        elif any(switch not in plan.gpus[peer].switch for peer in switch.ranks):
            found.append(f"{path}.channels: switch group {at} is not declared by all of its ranks")
    return found


def _block(plan: ExecutionPlan, gpu: PlanRank, block: Threadblock, path: str) -> Iterator[str]:
    if block.stored > MOST_OPERATIONS:
        yield f"{path}: {block.stored} operations, the executor takes {MOST_OPERATIONS}"
    for kind in ("memory", "port", "switch"):
        ids: tuple[int, ...] = getattr(block, kind)
        available = len(getattr(gpu, kind))
        if len(ids) > MOST_CHANNELS:
            yield f"{path}: {len(ids)} {kind} channels, the executor takes {MOST_CHANNELS}"
        if any(number >= available for number in ids):
            yield f"{path}.channels: {kind} channel {max(ids)}, the rank has {available}"
            return
    for kind in ("memory", "port"):
        ids = getattr(block, f"{kind}_buffers")
        if len(ids) > MOST_BUFFERS:
            yield f"{path}: {len(ids)} remote buffers over {kind}, the executor takes {MOST_BUFFERS}"
        for number in ids:
            if number >= len(gpu.remote_buffers):
                have = len(gpu.remote_buffers)
                yield f"{path}.remote_buffer_refs: remote buffer {number}, the rank has {have}"
                return
            if kind not in gpu.remote_buffers[number].access:
                yield f"{path}.remote_buffer_refs: remote buffer {number} is not reached over {kind} channels"
    for at, operation in enumerate(block.operations):
        place = f"{path}.ops[{at}] ({operation.name})"
        yield from _operation(plan, gpu, block, operation, place)
        for number, inner in enumerate(operation.inner):
            where = f"{path}.ops[{at}].ops[{number}] ({inner.name})"
            yield from _operation(plan, gpu, block, inner, where)
            yield from _piece(operation, inner, where)
        if operation.name == "pipeline" and not (operation.unit_bytes and operation.chunks):
            yield f"{place}: iter_context is missing"


def _piece(pipeline: Operation, inner: Operation, place: str) -> Iterator[str]:
    """Yield findings on an operation in a pipeline: it must cover the pipeline's chunks exactly."""
    if inner.name == "pipeline" or inner.name in PACKET_OPERATIONS:
        yield f"{place}: the executor cannot repeat it in a pipeline"
    sizes = {operand.size for operand in (*inner.src, *inner.dst)}
    if sizes - {pipeline.chunks}:
        yield f"{place}: its operands have {max(sizes)} chunks, the pipeline runs over {pipeline.chunks}"
    if inner.slices > 1:
        yield f"{place}: tbg_info in a pipeline, whose units are not shared"


def _operation(
    plan: ExecutionPlan, gpu: PlanRank, block: Threadblock, operation: Operation, place: str
) -> Iterator[str]:
    name, kind = operation.name, operation.channel_type
    if len(operation.channels) > MOST_CHANNELS_AN_OPERATION:
        yield f"{place}: {len(operation.channels)} channels, the executor takes {MOST_CHANNELS_AN_OPERATION}"
    if max(len(operation.src), len(operation.dst)) > MOST_OPERANDS:
        yield f"{place}: more than {MOST_OPERANDS} operands"
    if operation.reduce_op not in ("", "sum"):
        yield f"{place}: reduce_op {operation.reduce_op!r}, the executor only adds up"
    if name in _SIGNALS:
        if kind not in ("memory", "port") or not operation.channels:
            yield f"{place}: expected channels of type memory or port, found {len(operation.channels)} {kind}"
            return
        if len(set(operation.channels)) < len(operation.channels):
            yield f"{place}: it names a channel twice"
    if name in (*_SIGNALS, "pws", "pwsf", "flush") or (name in ("put", "ppkt", "rppkt") and kind == "port"):
        available = len(getattr(block, kind if kind in ("memory", "port") else "port"))
        if any(number >= available for number in operation.channels):
            yield f"{place}: {kind} channel {max(operation.channels)}, the threadblock has {available}"
            return
        if name not in (*_SIGNALS, "flush") and len(operation.channels) != len(operation.dst):
            yield f"{place}: {len(operation.channels)} channels for {len(operation.dst)} destinations"
            return
    if name in ("sem_acquire", "sem_release"):
        yield from _semaphores(gpu, operation, place)
    if name == "barrier" and not (0 <= operation.barrier < MOST_BARRIERS and operation.blocks >= 1):
        yield f"{place}: expected a barrier_id below {MOST_BARRIERS}, and num_threadblocks"
    if name in _FORMS:
        yield from _operands(plan, gpu, block, operation, place)


def _semaphores(gpu: PlanRank, operation: Operation, place: str) -> Iterator[str]:
    ids = operation.semaphores
    if not ids or len(ids) > MOST_SEMAPHORES:
        yield f"{place}: {len(ids)} semaphores, expected 1 to {MOST_SEMAPHORES}"
    elif max(ids) >= len(gpu.semaphores):
        yield f"{place}: semaphore {max(ids)}, the rank has {len(gpu.semaphores)}"
    elif len(set(ids)) < len(ids):
        yield f"{place}: it names a semaphore twice"


def _operands(
    plan: ExecutionPlan, gpu: PlanRank, block: Threadblock, operation: Operation, place: str
) -> Iterator[str]:
    wanted, name, kind = _FORMS[operation.name], operation.name, operation.channel_type
    if wanted.channels and kind not in wanted.channels:
        yield f"{place}: it runs over {' or '.join(wanted.channels)} channels, found {kind}"
        return
    for side, operands, letters, more in (
        ("src_buff", operation.src, wanted.src, wanted.more_src),
        ("dst_buff", operation.dst, wanted.dst, wanted.more_dst),
    ):
        # "res" and similar operations may have only the local destination.
        least = len(letters) - (len(letters) > 1 and more)
        if len(operands) < least or (len(operands) > len(letters) and not more):
            yield f"{place}.{side}: expected {least}{' or more' if more else ''}, found {len(operands)}"
            return
        for at, operand in enumerate(operands):
            letter = letters[min(at, len(letters) - 1)]
            if problem := _operand(plan, gpu, block, operand, letter, kind):
                yield f"{place}.{side}[{at}]: {problem}"
                return
    sizes = {operand.size for operand in (*operation.src, *operation.dst)}
    if wanted.paired:
        if len(operation.src) != len(operation.dst):
            yield f"{place}: {len(operation.src)} sources for {len(operation.dst)} destinations"
            return
        sizes = set()
        for one, two in zip(operation.src, operation.dst, strict=True):
            if one.size != two.size:
                sizes = {one.size, two.size}
    if len(sizes) > 1:
        yield f"{place}: operands of {min(sizes)} and of {max(sizes)} chunks"
    yield from _pitfalls(plan, gpu, block, operation, place)
    if name in PACKET_OPERATIONS and plan.protocol != "LL":
        yield f"{place}: packets need protocol LL, with {plan.protocol} scratch has no room for their flags"


def _operand(
    plan: ExecutionPlan, gpu: PlanRank, block: Threadblock, operand: Operand, letter: str, kind: str
) -> str:
    """Return the problem of an operand, "" if none; ``letter`` says which kind of operand it must be."""
    if letter in "lL":
        if not operand.buffer:
            return "expected a buffer of the rank itself"
        buffer, owner = operand.buffer, gpu
    elif letter in "rR":
        ids = block.memory_buffers if kind == "memory" else block.port_buffers
        if operand.remote < 0:
            return "expected a remote buffer"
        if operand.remote >= len(ids):
            return f"remote buffer {operand.remote}, the threadblock has {len(ids)} over {kind}"
        number = ids[operand.remote]
        remote = gpu.remote_buffers[number]
        if remote.rank >= len(plan.gpus):
            return f"remote buffer {number} is of rank {remote.rank}, the plan has {len(plan.gpus)} ranks"
        buffer, owner = remote.buffer, plan.gpus[remote.rank]
    else:
        if operand.switch < 0:
            return "expected a switch channel"
        if operand.switch >= len(block.switch):
            return f"switch channel {operand.switch}, the threadblock has {len(block.switch)}"
        buffer, owner = gpu.switch[block.switch[operand.switch]].buffer, gpu
    if letter in "LR" and buffer != "s":
        return f"packets lie in scratch, found {buffer}"
    end = operand.index + operand.size
    if end > owner.chunks(buffer):
        return f"{buffer}[{operand.index}:{end}], the buffer has {owner.chunks(buffer)} chunks"
    return ""


def _pitfalls(
    plan: ExecutionPlan, gpu: PlanRank, block: Threadblock, operation: Operation, place: str
) -> Iterator[str]:
    """Yield findings on plans that the format allows but the executor runs differently."""
    name, kind = operation.name, operation.channel_type
    # The executor ignores the channel type of an operation that uses no channels.
    over_port = kind == "port" and bool(_FORMS[name].channels)
    if name == "get" and any(a.index != b.index for a, b in zip(operation.src, operation.dst, strict=True)):
        yield f"{place}: the executor exchanges the offsets of source and destination, so they must be equal"
    if name == "put" and kind == "memory" and len({operand.buffer for operand in operation.src}) > 1:
        yield f"{place}: the executor takes all sources from the buffer of the first"
    yield from _at_wrong_part(plan, gpu, block, operation, place)
    if over_port:
        for at, operand in enumerate(operation.dst):
            to = gpu.remote_buffers[block.port_buffers[operand.remote]].rank
            by = gpu.port[block.port[operation.channels[at]]]
            if to != by:
                yield f"{place}.dst_buff[{at}]: a buffer of rank {to}, but the channel leads to rank {by}"
    if plan.double_scratch and name not in PACKET_OPERATIONS:
        ids = block.memory_buffers if kind == "memory" else block.port_buffers
        for operand in (*operation.src, *operation.dst):
            remote = operand.remote >= 0 and gpu.remote_buffers[ids[operand.remote]].buffer == "s"
            if remote or (over_port and operand.buffer == "s"):
                yield (
                    f"{place}: with use_double_scratch_buffer, only packets and operations within a rank use "
                    "the right half of scratch"
                )
                return


def _at_wrong_part(
    plan: ExecutionPlan, gpu: PlanRank, block: Threadblock, operation: Operation, place: str
) -> Iterator[str]:
    """Yield a finding if, in place, the executor takes another part of the whole buffer than is named.

    To the place of a remote buffer it adds the offset of the rank itself, to what a port reads none.
    """
    part, over_port = plan.part(), operation.channel_type == "port" and bool(operation.channels)
    if not part:
        return
    ids = block.port_buffers if operation.channel_type == "port" else block.memory_buffers
    for operand in (*operation.src, *operation.dst):
        far = (operand.remote >= 0 and gpu.remote_buffers[ids[operand.remote]].buffer == part) or (
            operand.switch >= 0 and gpu.switch[block.switch[operand.switch]].buffer == part
        )
        if far:
            yield (
                f"{place}: in place, the executor looks for {part} of a peer at this rank's own part of the "
                "whole buffer"
            )
            return
        if over_port and operand.buffer == part and gpu is not plan.gpus[0]:
            yield f"{place}: in place, a port reads {part} at the start of the whole buffer"
            return


def _barriers(plan: ExecutionPlan) -> list[str]:
    """Return findings on barriers with a wrong number of threadblocks, or used unequally often by them."""
    found = []
    for rank, gpu in enumerate(plan.gpus):
        uses: dict[int, list[int]] = {}
        declared: dict[int, set[int]] = {}
        for block in gpu.threadblocks:
            counts: dict[int, int] = {}
            for operation in (*block.operations, *(i for o in block.operations for i in o.inner)):
                if operation.name == "barrier":
                    counts[operation.barrier] = counts.get(operation.barrier, 0) + 1
                    declared.setdefault(operation.barrier, set()).add(operation.blocks)
            for barrier, count in counts.items():
                uses.setdefault(barrier, []).append(count)
        for barrier, times in uses.items():
            if declared[barrier] != {len(times)} or len(set(times)) > 1:
                sizes = ", ".join(map(str, sorted(declared[barrier])))
                found.append(
                    f"gpus[{rank}]: barrier {barrier} is for {sizes} threadblocks, "
                    f"and {len(times)} come to it, {min(times)} to {max(times)} times"
                )
    return found
