"""The chunk DAG: a program's operations on chunks, one per row, in a valid order (GC3 Sec. 5.1).

The DAG is traced from an algorithm or lowered from a schedule; all later forms are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from probes.base import Indices
from synth.collective import Collective
from synth.compiler.hazards import Dependences, dependences
from synth.memory_layout import Cells, memory_of
from synth.program import Protocol

__all__ = ["ASSIGN", "LOAD_REDUCE", "REDUCE", "STORE", "ChunkDag", "replicated"]

ASSIGN, REDUCE, LOAD_REDUCE, STORE = range(4)
_COLUMNS = (
    "op",
    "src_rank",
    "src_buffer",
    "src_slot",
    "dst_rank",
    "dst_buffer",
    "dst_slot",
    "with_buffer",
    "with_slot",
    "count",
    "send_tb",
    "recv_tb",
    "channel",
    "line",
)


@dataclass(frozen=True, eq=False)
class ChunkDag:
    """Operations on chunks: row n copies ``count[n]`` chunks (ASSIGN) or adds them up (REDUCE).

    ASSIGN copies from ``src`` to ``dst``. REDUCE writes the sums of ``src`` and ``with`` to ``dst``; ``with``
    lies on the rank of ``dst`` and mostly is ``dst`` itself. LOAD_REDUCE adds up what all ranks of a group
    have at ``src``, and STORE writes to ``dst`` at all of them; both are of one rank, and ``group`` is the
    number of each rank's group. ``send_tb``, ``recv_tb`` and ``channel`` are the
    author's choices, or -1; ``line`` is the line of the author's statement, or 0; ``instance`` is the number
    of the parallel instance.
    """

    name: str
    collective: Collective
    protocol: Protocol
    scratch_chunks: tuple[int, ...]
    op: Indices
    src_rank: Indices
    src_buffer: Indices
    src_slot: Indices
    dst_rank: Indices
    dst_buffer: Indices
    dst_slot: Indices
    with_buffer: Indices
    with_slot: Indices
    count: Indices
    send_tb: Indices
    recv_tb: Indices
    channel: Indices
    line: Indices
    out_of_place: bool = True
    in_place: bool = False
    source: str = ""
    # Start and end of each operation, if known: numbers that rise with time.
    starts: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    ends: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    instances: int = 1
    instance: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    group: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def operations(self) -> int:
        return len(self.op)

    @property
    def by_hand(self) -> bool:
        """Whether the author assigns the threadblocks."""
        return bool(((self.send_tb >= 0) | (self.recv_tb >= 0)).any())

    def cells(self) -> Cells:
        """Return the memory of all ranks; input and output share cells if the program may run in place."""
        return memory_of(self.collective, self.scratch_chunks, in_place=self.in_place)

    def dependences(self) -> Dependences:
        """Return the true, anti and output dependences between the operations."""
        cells = self.cells()
        return dependences(
            cells,
            (self.where(cells, "src"), self.count),
            (self.where(cells, "with"), np.where(self.op == REDUCE, self.count, 0)),
            (self.where(cells, "dst"), self.count),
        )

    def where(self, cells: Cells, side: Literal["src", "with", "dst"]) -> Indices:
        """Return the first slot of each operand, numbered through all memory."""
        rank = self.src_rank if side == "src" else self.dst_rank
        first: Indices = cells.first[rank, getattr(self, f"{side}_buffer")] + getattr(self, f"{side}_slot")
        return first


def replicated(dag: ChunkDag, instances: int) -> ChunkDag:
    """Split every chunk into ``instances`` chunks, one for each parallel instance (GC3 Sec. 5.3.2).

    A range of several chunks is cut as a whole into contiguous parts, one for each instance. So an instance
    of one operation may depend on another instance of a second operation, and dependences are tracked only
    afterwards.
    """
    if instances == 1:
        return replace(dag, instance=np.zeros(dag.operations, dtype=np.int64))
    rows = np.repeat(np.arange(dag.operations), instances)
    part = np.tile(np.arange(instances), dag.operations)
    columns = {name: getattr(dag, name)[rows] for name in _COLUMNS}
    columns |= {name: getattr(dag, name)[rows] for name in ("starts", "ends") if len(dag.starts)}
    for name in ("src_slot", "dst_slot", "with_slot"):
        columns[name] = columns[name] * instances + part * columns["count"]
    for name in ("send_tb", "recv_tb", "channel"):
        columns[name] = np.where(columns[name] < 0, -1, columns[name] * instances + part)
    return replace(
        dag,
        collective=dag.collective.cut(instances),
        scratch_chunks=tuple(size * instances for size in dag.scratch_chunks),
        instances=instances,
        instance=part,
        **columns,
    )
