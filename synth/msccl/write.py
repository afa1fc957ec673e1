"""Writes a program as MSCCL XML, with all attributes that its executors require."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from probes.base import ints
from synth.memory_layout import cells_of
from synth.msccl.limits import MOST_FUSED, joined_reductions
from synth.msccl.names import COLL, chunks_per_loop
from synth.multimem import refuse_switches
from synth.program import BUFFERS, OPS, Program

__all__ = ["separate_reductions", "write_xml"]

_NOP, _RRS = OPS.index("nop"), OPS.index("rrs")
# The parser ends a value only at a double quote, knows no entities, and has room for 255 bytes.
_UNSAFE, _MOST_NAME = re.compile(r"[^A-Za-z0-9_. -]"), 200


def write_xml(program: Program) -> bytes:
    """Return the ``<algo>`` element; raise UsageError if switches carry out some steps. O(steps).

    The src of rrc, rrs and rrcs is the local operand, as the runtime expects. A slot that a step does not use
    is -1, except the dst of rrs, which repeats its src.
    """
    refuse_switches(program, "MSCCL XML")
    return "".join(_lines(separate_reductions(program))).encode()


def separate_reductions(program: Program) -> Program:
    """Return the program with waits between reductions that a runtime must not join.

    These are reductions of different numbers of chunks, and the 17th in a row: each waits for the step before
    it.
    """
    wait_tb, wait_step = program.wait_tb.copy(), program.wait_step.copy()
    real = np.flatnonzero(program.op != _NOP)
    joined, length = joined_reductions(program)[real], 1
    if not joined.any():
        return program
    for before, row, joins in zip(real.tolist(), real[1:].tolist(), joined[1:].tolist(), strict=False):
        length = length + 1 if joins else 1
        if joins and (program.count[row] != program.count[before] or length > MOST_FUSED):
            tb, length = program.tb_of[row], 1
            wait_tb[row], wait_step[row] = tb, before - program.tb_start[tb]
    return replace(program, wait_tb=ints(wait_tb), wait_step=ints(wait_step))


def _lines(program: Program) -> Iterator[str]:
    wanted = program.collective
    unknown = bool(program.input_chunks)
    coll = "custom" if unknown else COLL.get(wanted.kind, "custom")
    sizes = cells_of(program, in_place=False).size
    loop = int(sizes[:, :2].max(initial=1)) if coll == "custom" else chunks_per_loop(wanted)
    root = f' root="{wanted.root}"' if wanted.root else ""
    yield (
        f'<algo name="{_UNSAFE.sub("_", program.name)[:_MOST_NAME]}" proto="{program.protocol}" '
        f'nchannels="{program.channels}" nchunksperloop="{loop}" ngpus="{program.ranks}" coll="{coll}" '
        f'inplace="{int(program.in_place)}" outofplace="{int(program.out_of_place)}" '
        f'minBytes="{program.min_bytes}" maxBytes="{program.max_bytes}"{root}>\n'
    )
    first = np.searchsorted(program.tb_rank, np.arange(program.ranks + 1)).tolist()
    steps = _steps(program)
    for rank in range(program.ranks):
        i, o, s = sizes[rank].tolist()
        yield f'  <gpu id="{rank}" i_chunks="{i}" o_chunks="{o}" s_chunks="{s}">\n'
        for tb in range(first[rank], first[rank + 1]):
            yield (
                f'    <tb id="{tb - first[rank]}" send="{program.tb_send[tb]}" recv="{program.tb_recv[tb]}" '
                f'chan="{program.tb_channel[tb]}">\n'
            )
            yield from steps[program.tb_start[tb] : program.tb_start[tb + 1]]
            yield "    </tb>\n"
        yield "  </gpu>\n"
    yield "</algo>\n"


def _steps(program: Program) -> list[str]:
    rank = program.tb_rank[program.tb_of]
    first = np.searchsorted(program.tb_rank, rank)
    waits = program.wait_tb >= 0
    has_dep = np.zeros(program.steps + 1, dtype=np.int64)
    has_dep[np.where(waits, program.tb_start[program.wait_tb] + program.wait_step, -1)] = 1
    forwards = program.op == _RRS
    columns = (
        np.arange(program.steps) - program.tb_start[program.tb_of],
        program.op,
        program.src_buffer,
        program.src_slot,
        np.where(forwards, program.src_buffer, program.dst_buffer),
        np.where(forwards, program.src_slot, program.dst_slot),
        np.where(program.op == _NOP, 0, program.count),
        np.where(waits, program.wait_tb - first, -1),
        program.wait_step,
        has_dep[:-1],
    )
    return [
        f'      <step s="{s}" type="{OPS[op]}" srcbuf="{BUFFERS[sb]}" srcoff="{so}" dstbuf="{BUFFERS[db]}" '
        f'dstoff="{do}" cnt="{count}" depid="{tb}" deps="{step}" hasdep="{dep}"/>\n'
        for s, op, sb, so, db, do, count, tb, step, dep in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]
