"""The instruction DAG: every operation as the instructions of its two ranks (GC3 Sec. 5.2).

A remote copy is a send and a receive, a remote reduce a send and a receiveReduceCopy. Local operations are a
copy, a reduce, or a sum or copy of a switch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.base import Indices, Mask
from synth.compiler.chunk_dag import LOAD_REDUCE, REDUCE, STORE, ChunkDag
from synth.compiler.hazards import Dependences, dependences
from synth.program import GLRE, GSTORE, OPS, READS_SRC, RECEIVES, SENDS, WRITES_DST

__all__ = ["InstructionDag", "instructions_of"]

_S, _R, _CPY, _RE, _RRC = (OPS.index(op) for op in ("s", "r", "cpy", "re", "rrc"))


@dataclass(frozen=True, eq=False)
class InstructionDag:
    """Row n runs ``op[n]`` on ``rank[n]``; the order of the rows is a valid order of execution.

    ``send_to`` and ``recv_from`` are peers; ``sender`` and ``receiver`` are the rows at the other end of the
    row's messages (-1: none). A row depends only on rows of its own rank. ``tb`` and ``channel`` are the
    author's choices (-1: none); ``when`` is the time in the schedule, if there is one.
    """

    dag: ChunkDag
    op: Indices
    rank: Indices
    src_buffer: Indices
    src_slot: Indices
    dst_buffer: Indices
    dst_slot: Indices
    count: Indices
    send_to: Indices
    recv_from: Indices
    sender: Indices
    receiver: Indices
    tb: Indices
    channel: Indices
    instance: Indices
    line: Indices
    when: Indices
    needs: Dependences

    @property
    def rows(self) -> int:
        return len(self.op)

    def sends(self) -> Mask:
        return np.asarray(np.array(SENDS)[self.op])

    def receives(self) -> Mask:
        return np.asarray(np.array(RECEIVES)[self.op])


def instructions_of(dag: ChunkDag) -> InstructionDag:
    """Expand every operation; O(operations + slots touched)."""
    remote = dag.src_rank != dag.dst_rank
    row = np.repeat(np.arange(dag.operations), 1 + remote)
    first = np.cumsum(1 + remote) - (1 + remote)
    at_sender = remote[row] & (np.arange(len(row)) == first[row])
    at_receiver = remote[row] & ~at_sender
    reduces = dag.op[row] == REDUCE
    op = np.where(reduces, np.where(at_receiver, _RRC, _RE), np.where(at_receiver, _R, _CPY))
    op = np.where(at_sender, _S, op)
    for by_switch, step in ((LOAD_REDUCE, GLRE), (STORE, GSTORE)):
        op = np.where(dag.op[row] == by_switch, step, op)
    rank = np.where(at_sender, dag.src_rank[row], dag.dst_rank[row])
    local_operand = at_receiver & reduces
    src_buffer = np.where(local_operand, dag.with_buffer[row], dag.src_buffer[row])
    src_slot = np.where(local_operand, dag.with_slot[row], dag.src_slot[row])
    numbers = np.arange(len(row))
    columns = {
        "op": op,
        "rank": rank,
        "src_buffer": np.where(op == _R, 0, src_buffer),
        "src_slot": np.where(op == _R, -1, src_slot),
        "dst_buffer": np.where(at_sender, 0, dag.dst_buffer[row]),
        "dst_slot": np.where(at_sender, -1, dag.dst_slot[row]),
        "count": dag.count[row],
        "send_to": np.where(at_sender, dag.dst_rank[row], -1),
        "recv_from": np.where(at_receiver, dag.src_rank[row], -1),
        "sender": np.where(at_receiver, numbers - 1, -1),
        "receiver": np.where(at_sender, numbers + 1, -1),
        "tb": _author_threadblock(dag, row, at_sender, remote[row]),
        "channel": dag.channel[row],
        "instance": dag.instance[row],
        "line": dag.line[row],
        "when": np.where(at_sender, dag.starts[row], dag.ends[row]) if len(dag.starts) else dag.starts,
    }
    return InstructionDag(dag, **columns, needs=_needs(dag, columns))


def _author_threadblock(dag: ChunkDag, row: Indices, at_sender: Mask, remote: Mask) -> Indices:
    either = np.maximum(dag.send_tb, dag.recv_tb)[row]
    end: Indices = np.where(at_sender, dag.send_tb[row], dag.recv_tb[row])
    return np.where(remote, end, either)


def _needs(dag: ChunkDag, columns: dict[str, Indices]) -> Dependences:
    cells, op, count = dag.cells(), columns["op"], columns["count"]
    src = cells.first[columns["rank"], columns["src_buffer"]] + columns["src_slot"]
    dst = cells.first[columns["rank"], columns["dst_buffer"]] + columns["dst_slot"]
    reads, writes = np.array(READS_SRC)[op], np.array(WRITES_DST)[op]
    return dependences(
        cells,
        (src, np.where(reads, count, 0)),
        # A switch also writes where it has read, so it is no copy of an input onto itself.
        (dst, np.where(np.isin(op, (_RE, GLRE, GSTORE)), count, 0)),
        (dst, np.where(writes, count, 0)),
    )
