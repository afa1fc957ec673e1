"""A model of a program on one host, whose ranks copy and add in shared memory.

There are no links: a message is a copy that its receiver makes. Each rank is one process, which runs the
ready steps of its threadblocks one after the other (``exec.mpi``) on one of the host's cores. So a run takes
as long as its ranks copy and add, at the costs that ``profile`` measured while all ranks copied at once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

import numpy as np

from probes.base import Floats, Indices, Mask, floats
from probes.link_costs import HostMemory
from synth.kernels import compiled
from synth.network import Network
from synth.prediction.host_transfers import BOUNCE_BYTES, FETCHED_BYTES, TILE_BYTES
from synth.program import INPUT, OPS, READS_SRC, SCRATCH, SENDS, WRITES_DST, Program
from synth.simulation import links_of, links_used

__all__ = ["HostTiming", "Spent", "host_timing"]

Spent = Literal["memory", "core", "step"]

# Interpreter seconds for a step that moves nothing, for a run, and for a core that switches ranks, from
# benchmarks/small_messages.py and docs/explanation/mpi.md.
_STEP_S, _RUN_S, _SWITCH_S = 0.1e-6, 0.4e-6, 3e-6
# The tiles that are simulated; a second run with half of them gives the time of each further tile.
_TILES = 4
# A step's ``cause`` tells why it did not start earlier: 0, its rank was busy; 1, its input was missing; 2
# (_CORE), no core was free.
_CORE = 2
# The cost of a compiled sum, which reads two operands and writes one, relative to a copy.
_SUM = 1.5
_SEND, _COPY, _FORWARD_SUM = OPS.index("s"), OPS.index("cpy"), OPS.index("rrs")
_ADDS = tuple(op in ("re", "rrc", "rrs", "rrcs") for op in OPS)


@dataclass(frozen=True)
class HostTiming:
    """Predicted seconds of a run; ``spent`` divides the critical path's seconds by (kind, rank).

    *memory*: the rank copies and adds; *core*: it waits for a core; *step*: it moves on to its next step, or
    has yet to notice a message. All seconds add up to ``time_s``.
    """

    time_s: float
    spent: dict[tuple[Spent, int], float]


def host_timing(program: Program, network: Network, chunk_bytes: int, memory: HostMemory) -> HostTiming:
    """Predict the time of a program on ranks of one host; infinite if it deadlocks.

    ``memory`` gives the costs of copies and fetches. A few tiles are simulated, and the others extrapolated.
    The model has no limit on FIFOs. Raises UsageError if the network lacks a rank or a link of the program.
    O(steps · threadblocks).
    """
    links = links_of(program)
    tiles = max(1, -(-int(program.count.max(initial=1)) * chunk_bytes // TILE_BYTES))
    some = min(tiles, _TILES)
    work_s = _work_s(program, chunk_bytes / tiles, chunk_bytes, memory, links.sender)
    alpha_s = network.alpha_s[links_used(program, network, chunk_bytes)]
    hop_s = np.where(links.sender >= 0, alpha_s[links.sender], 0.0)
    wiring = (
        program.tb_start.astype(np.int64),
        program.tb_rank.astype(np.int64),
        links.goal,
        links.sender,
        work_s + _STEP_S,
        floats(hop_s),
    )
    cores = memory.cores or program.ranks
    start_s, end_s, cause, culprit = _run(*wiring, some, cores, _SWITCH_S)
    whole_s = float(end_s.max(initial=0.0))
    if not np.isfinite(whole_s):
        return HostTiming(whole_s, {})
    time_s = whole_s
    if tiles > some:
        fewer_s = float(_run(*wiring, some // 2, cores, _SWITCH_S)[1].max(initial=0.0))
        time_s += (tiles - some) * (whole_s - fewer_s) / (some - some // 2)
    spent = _spent(program, work_s, start_s, end_s, cause, culprit)
    longer = time_s / whole_s if whole_s else 1.0
    spent = {key: value * longer for key, value in spent.items()}
    if program.steps:
        spent["step", int(program.tb_rank[program.tb_of[int(end_s[-1].argmax())]])] += _RUN_S
    return HostTiming(time_s + _RUN_S * bool(program.steps), spent)


def _work_s(
    program: Program, tile_bytes: float, chunk_bytes: int, memory: HostMemory, sender: Indices
) -> Floats:
    """Return the seconds that each step copies and adds in one tile.

    A tile is short enough to stay in the caches while ranks work on it. If buffers do not fit the caches,
    reading an input buffer and writing any buffer cost more. A copy reads a buffer and writes a buffer, so
    each access takes half of a copy's extra cost.
    """
    size_bytes = floats(program.count * tile_bytes)
    in_place = _read_in_place(program, float(size_bytes.max(initial=0.0)), memory)
    costs = _Costs.at(memory, _buffer_bytes(program, chunk_bytes))
    per_byte_s = (
        _received_s_per_byte(program, sender, in_place, size_bytes, memory, costs)
        + _local_s_per_byte(program, costs)
        + _sent_s_per_byte(program, in_place, costs)
    )
    return floats(per_byte_s * size_bytes)


@dataclass(frozen=True)
class _Costs:
    """Seconds a byte, for buffers of one size.

    ``copy_s``: a copy within the caches. ``beyond_s``: extra, to read or to write a buffer. ``fetch_s``: a
    read of another rank's memory that no rank has written since the last read. ``transfer_s``: extra, for
    cache lines that another core has just written or read.
    """

    copy_s: float
    beyond_s: float
    fetch_s: float
    transfer_s: float

    @staticmethod
    def at(memory: HostMemory, buffer_bytes: float) -> _Costs:
        copy_s = min(memory.copy_s_per_byte)
        beyond_s = max(0.0, float(_at(memory, memory.copy_s_per_byte, buffer_bytes)) - copy_s) / 2
        unwritten_s, written_s = (
            float(_at(memory, costs, buffer_bytes))
            for costs in (memory.fetch_s_per_byte, memory.written_fetch_s_per_byte)
        )
        # A measured fetch includes the write to a buffer, which is counted apart and so subtracted here.
        return _Costs(copy_s, beyond_s, max(0.0, unwritten_s - beyond_s), max(0.0, written_s - unwritten_s))


def _received_s_per_byte(
    program: Program,
    sender: Indices,
    in_place: Mask,
    size_bytes: Floats,
    memory: HostMemory,
    costs: _Costs,
) -> Floats:
    """Return the cost per byte of each receiving step to read its message, from a slot or sender's memory."""
    op, receives = program.op, sender >= 0
    sent_from = _sent_from(program)
    fetches = receives & in_place[sender] & (sent_from[sender] != SCRATCH)
    of_input = receives & (op[sender] == _SEND) & (sent_from[sender] == INPUT)
    # Fetched addends arrive in blocks.
    call_bytes = np.minimum(size_bytes, np.where(np.array(_ADDS)[op], BOUNCE_BYTES, np.inf))
    fetched_s = np.where(
        of_input,
        np.maximum(_at(memory, memory.fetch_s_per_byte, call_bytes), costs.fetch_s),
        _at(memory, memory.written_fetch_s_per_byte, call_bytes),
    )
    return floats(np.where(receives, np.where(fetches, fetched_s, costs.copy_s + costs.transfer_s), 0.0))


def _local_s_per_byte(program: Program, costs: _Costs) -> Floats:
    """Return the cost per byte of each step to copy and add in its own rank's memory, apart from slots."""
    op = program.op
    operand = np.array(READS_SRC)[op] & (op != _SEND) & (program.src_buffer == INPUT)
    found = np.where(np.array(_ADDS)[op], _SUM * costs.copy_s, 0.0)
    found += np.where(op == _COPY, costs.copy_s, 0.0)
    found += costs.beyond_s * operand + costs.beyond_s * np.array(WRITES_DST)[op]
    return floats(found)


def _sent_s_per_byte(program: Program, in_place: Mask, costs: _Costs) -> Floats:
    """Return the cost per byte of each sending step to hand over its message, without computing it."""
    op, sends = program.op, np.array(SENDS)[program.op]
    into_slot = sends & ~in_place
    # rrs adds directly into the slot.
    found = np.where(into_slot & (op != _FORWARD_SUM), costs.copy_s, 0.0)
    found += np.where(into_slot & (op == _SEND) & (program.src_buffer == INPUT), costs.beyond_s, 0.0)
    # Before a rank writes memory that others have read, its core takes the cache lines back from their cores.
    found += np.where(sends & in_place & np.array(WRITES_DST)[op], costs.transfer_s, 0.0)
    return floats(found)


def _sent_from(program: Program) -> Indices:
    """Return the buffer that each step sends from: its source, or its destination if it computed the data."""
    return np.where(program.op == _SEND, program.src_buffer, program.dst_buffer)


def _read_in_place(program: Program, most_bytes: float, memory: HostMemory) -> Mask:
    """Return whether receivers read each step's message in place; else the sender copies it to a slot."""
    fetchable = bool(memory.fetch_s_per_byte) and most_bytes >= FETCHED_BYTES
    readable = (_sent_from(program) == SCRATCH) | fetchable
    return np.asarray(readable & (program.op != _FORWARD_SUM) & (program.protocol == "Simple"))


def _buffer_bytes(program: Program, chunk_bytes: int) -> float:
    """Return half of a rank's mean bytes of input and output, because a measured copy has two buffers."""
    if program.input_chunks:
        slots = sum(program.input_chunks) + sum(program.output_chunks)
    else:
        shape = program.collective
        slots = sum(
            len(shape.input_slots(rank)) + len(shape.output_slots(rank)) for rank in range(program.ranks)
        )
    return slots * chunk_bytes / 2 / max(1, program.ranks)


def _at(memory: HostMemory, costs_s_per_byte: tuple[float, ...], size_bytes: float | Floats) -> Floats:
    """Return a cost at a size, interpolated over the logarithm of the measured sizes; 0 if there are none."""
    if not costs_s_per_byte:
        return np.zeros_like(size_bytes, dtype=np.float64)
    sizes = np.log(memory.sizes_bytes)
    return floats(np.interp(np.log(np.maximum(size_bytes, 1.0)), sizes, costs_s_per_byte))


@compiled
def _run(
    tb_start: Indices,
    tb_rank: Indices,
    goal: Indices,
    sender: Indices,
    work_s: Floats,
    hop_s: Floats,
    tiles: int,
    cores: int,
    switch_s: float,
) -> tuple[Floats, Floats, Indices, Indices]:
    """Return, for each tile and step: start, end, cause of its last wait, and the step it waited for.

    The step that can begin soonest always runs next. A waiting rank frees its core. Steps that never run end
    at infinity.
    """
    blocks, steps = len(tb_rank), len(goal)
    ranks = tb_rank[blocks - 1] + 1 if blocks else 0
    start_s, end_s = np.full((tiles, steps), np.inf), np.full((tiles, steps), np.inf)
    cause, culprit = np.zeros((tiles, steps), np.int64), np.full((tiles, steps), -1)
    at_step, at_tile = tb_start[:-1].copy(), np.zeros(blocks, np.int64)
    rank_free_s, rank_last = np.zeros(ranks), np.full(ranks, -1)
    rank_core = np.full(ranks, -1)
    core_free_s, core_rank, core_last = np.zeros(cores), np.full(cores, -1), np.full(cores, -1)
    while True:
        best, best_s, best_core, best_cause, best_culprit = -1, np.inf, -1, 0, -1
        for block in range(blocks):
            tile, step = at_tile[block], at_step[block]
            if tile >= tiles or step >= tb_start[block + 1]:
                continue
            rank = tb_rank[block]
            ready_s, why, whose = rank_free_s[rank], 0, rank_last[rank]
            if goal[step] >= 0:
                there_s = end_s[tile, goal[step]]
                if there_s > ready_s:
                    ready_s, why, whose = there_s, 1, tile * steps + goal[step]
            if sender[step] >= 0:
                there_s = end_s[tile, sender[step]] + hop_s[step]
                if there_s > ready_s:
                    ready_s, why, whose = there_s, 1, tile * steps + sender[step]
            if ready_s >= best_s:
                continue
            core = rank_core[rank]
            if core < 0 or core_rank[core] != rank:
                core = 0
                for other in range(1, cores):
                    if core_free_s[other] < core_free_s[core]:
                        core = other
                there_s = core_free_s[core] + (switch_s if core_rank[core] >= 0 else 0.0)
                if there_s > ready_s:
                    ready_s, why, whose = there_s, 2, core_last[core]
            if ready_s < best_s:
                best, best_s, best_core, best_cause, best_culprit = block, ready_s, core, why, whose
        if best < 0:
            return start_s, end_s, cause, culprit
        tile, step, rank = at_tile[best], at_step[best], tb_rank[best]
        start_s[tile, step], end_s[tile, step] = best_s, best_s + work_s[step]
        cause[tile, step], culprit[tile, step] = best_cause, best_culprit
        rank_free_s[rank] = core_free_s[best_core] = end_s[tile, step]
        rank_last[rank] = core_last[best_core] = tile * steps + step
        rank_core[rank], core_rank[best_core] = best_core, rank
        at_step[best] += 1
        if at_step[best] == tb_start[best + 1]:
            at_step[best] = tb_start[best]
            at_tile[best] += 1


def _spent(
    program: Program, work_s: Floats, start_s: Floats, end_s: Floats, cause: Indices, culprit: Indices
) -> dict[tuple[Spent, int], float]:
    """Return the seconds on the critical path, by (kind, rank)."""
    spent: defaultdict[tuple[Spent, int], float] = defaultdict(float)
    if not end_s.size:
        return spent
    steps, at = program.steps, int(end_s.argmax())
    until_s = float(end_s.flat[at])
    while at >= 0:
        rank, why = int(program.tb_rank[program.tb_of[at % steps]]), int(cause.flat[at])
        begin_s = float(start_s.flat[at])
        spent["memory", rank] += min(float(work_s[at % steps]), until_s - begin_s)
        spent["step", rank] += max(0.0, until_s - begin_s - float(work_s[at % steps]))
        at = int(culprit.flat[at])
        until_s = float(end_s.flat[at]) if at >= 0 else 0.0
        spent["core" if why == _CORE else "step", rank] += begin_s - until_s
    return spent
