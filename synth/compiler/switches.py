"""Barriers around the steps of switches (``glre`` and ``gstore``), and the threadblocks of these steps.

All ranks of a group meet at a barrier before such steps, when their data is there, and at another one after
them. The threadblocks of a rank share its steps; the first ones also have a round of the barriers each.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from probes.base import Indices, offsets
from synth.compiler.hazards import Dependences
from synth.compiler.instruction_dag import InstructionDag
from synth.program import GLRE, GSTORE, OPS, SIGNAL, WAIT

__all__ = ["with_barriers"]

# NCCL 2.30.7 runs NVLS with 16 threadblocks on Hopper (``NVLS_NCHANNELS_SM90`` in src/transport/nvls.cc).
_BLOCKS = 16
_NOP = OPS.index("nop")


def with_barriers(dag: InstructionDag) -> InstructionDag:
    """Return the rows, those of switches in threadblocks of their own and between barriers of their groups.

    O(rows + ranks · log ranks).
    """
    steps = np.flatnonzero(np.isin(dag.op, (GLRE, GSTORE)))
    if not len(steps):
        return dag
    tb = dag.tb.copy()
    tb[steps] = _threadblocks(dag, steps)
    added = _Added(dag.rows, int(dag.when.max(initial=0)))
    for group in np.unique(dag.dag.group[dag.rank[steps]]):
        members = np.flatnonzero(dag.dag.group == group).tolist()
        mine = {rank: [list[int]() for _ in range(_BLOCKS)] for rank in members}
        for step in steps[dag.dag.group[dag.rank[steps]] == group].tolist():
            mine[int(dag.rank[step])][tb[step]].append(step)
        heard = added.barrier(members, {}, -2 * len(members))
        for rank, blocks in mine.items():
            added.needs |= dict.fromkeys(chain(*blocks), heard[rank])
        added.barrier(members, {rank: added.joined(rank, blocks) for rank, blocks in mine.items()}, 1)
    return added.to(replace(dag, tb=tb))


def _threadblocks(dag: InstructionDag, steps: Indices) -> Indices:
    """Return the threadblock of each step: a chunk's sum and its copy have the same one."""
    place = (dag.rank[steps], dag.dst_buffer[steps], dag.dst_slot[steps])
    table, number = np.unique(np.stack(place, axis=1), axis=0, return_inverse=True)
    found: Indices = (number.ravel() - np.searchsorted(table[:, 0], dag.rank[steps])) % _BLOCKS
    return found


@dataclass
class _Added:
    """Rows to be added behind ``first`` others, and further dependences of rows."""

    first: int
    last: int
    columns: list[tuple[int, ...]] = field(default_factory=list)
    needs: dict[int, list[int]] = field(default_factory=dict)

    def row(
        self, op: int, rank: int, tb: int, when: int, needs: list[int], to: int = -1, of: int = -1
    ) -> int:
        """Add a row that sends to rank ``to`` or receives from rank ``of``, and return its number."""
        self.columns.append((op, rank, tb, when, to, of))
        number = self.first + len(self.columns) - 1
        self.needs[number] = needs
        return number

    def barrier(self, members: list[int], after: dict[int, list[int]], when: int) -> dict[int, list[int]]:
        """Add a dissemination barrier, a round in each threadblock; return the waits of each rank.

        In round k each rank signals to the one 2^k places further, for itself and for all that it has heard
        of. Hensgen, Finkel, Manber, Two Algorithms for Barrier Synchronization (1988).
        """
        heard: dict[int, list[int]] = {rank: [] for rank in members}
        for number in range((len(members) - 1).bit_length()):
            at = when + 2 * number + (self.last if when > 0 else 0)
            for place, rank in enumerate(members):
                needs = [*after.get(rank, ()), *heard[rank]]
                self.row(SIGNAL, rank, number, at, needs, to=members[(place + (1 << number)) % len(members)])
            for place, rank in enumerate(members):
                heard[rank].append(
                    self.row(WAIT, rank, number, at + 1, [], of=members[place - (1 << number)])
                )
        return heard

    def joined(self, rank: int, blocks: list[list[int]]) -> list[int]:
        """Let each threadblock wait for its children in a binary heap; return all rows of the first one."""
        blocks = [list(one) for one in blocks if one]
        for child in reversed(range(1, len(blocks))):
            parent = (child - 1) // 2
            blocks[parent].append(self.row(_NOP, rank, parent, self.last + 1, blocks[child]))
        return blocks[0] if blocks else []

    def to(self, dag: InstructionDag) -> InstructionDag:
        """Return the DAG with the rows and dependences."""
        op, rank, tb, when, send_to, recv_from = np.array(self.columns, dtype=np.int64).T
        rows = self.first + np.arange(len(op))
        signals, waits = rows[op == SIGNAL], rows[op == WAIT]
        sender, receiver = np.full(len(op), -1), np.full(len(op), -1)
        # The messages of a pair of ranks in a barrier come in the order of the rows.
        out = np.lexsort((signals, send_to[op == SIGNAL], rank[op == SIGNAL]))
        into = np.lexsort((waits, rank[op == WAIT], recv_from[op == WAIT]))
        receiver[signals[out] - self.first], sender[waits[into] - self.first] = waits[into], signals[out]
        nothing, zeros, ones = np.full(len(op), -1), np.zeros_like(op), np.ones_like(op)
        more: dict[str, Indices] = {
            **{"op": op, "rank": rank, "tb": tb, "when": when, "send_to": send_to, "recv_from": recv_from},
            **{"sender": sender, "receiver": receiver, "channel": nothing, "count": ones},
            **{"src_buffer": zeros, "src_slot": nothing, "dst_buffer": zeros, "dst_slot": nothing},
            **{"instance": zeros, "line": zeros},
        }
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(dag, name), column]) for name, column in more.items()
        }
        return replace(dag, **columns, needs=self._needs(dag.needs, len(op)))

    def _needs(self, known: Dependences, rows: int) -> Dependences:
        after = np.repeat(list(self.needs), [len(one) for one in self.needs.values()]).astype(np.int64)
        before = np.array([each for one in self.needs.values() for each in one], dtype=np.int64)
        afters = np.concatenate([known.after, after])
        order = np.argsort(afters, kind="stable")
        return Dependences(
            offsets(np.bincount(afters, minlength=self.first + rows)),
            np.concatenate([known.before, before])[order],
            np.concatenate([known.true, np.zeros(len(before), dtype=bool)])[order],
            np.concatenate([known.kept, np.zeros(rows, dtype=bool)]),
        )
