"""Programs written step by step, for tests of what judges and runs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from probes.base.columns import bytes_of, ints
from synth.collective import Collective
from synth.program import OPS, Program, Protocol

__all__ = ["Assembler", "Place", "Slot"]

Place: TypeAlias = tuple[int, int]
"""A threadblock and a step within it."""

Slot: TypeAlias = tuple[int, int]
"""A buffer and a slot within it."""

_NOWHERE: Slot = (0, -1)
_NOP = OPS.index("nop")


class Assembler:
    """Collects threadblocks and steps, then makes the program; linear in steps and waits."""

    def __init__(self, collective: Collective) -> None:
        self._collective = collective
        self._keys: list[tuple[int, int, int, int]] = []
        self._number: dict[tuple[int, int, int, int], int] = {}
        self._steps: list[list[tuple[int, ...]]] = []
        self._known: list[dict[int, int]] = []

    def threadblock(self, rank: int, send: int = -1, recv: int = -1, channel: int = 0) -> int:
        """The threadblock of ``rank`` with these peers on this channel, made when first asked for."""
        key = (rank, send, recv, channel)
        number = self._number.setdefault(key, len(self._keys))
        if number == len(self._keys):
            self._keys.append(key)
            self._steps.append([])
            self._known.append({})
        return number

    def step(
        self,
        tb: int,
        op: int,
        src: Slot = _NOWHERE,
        dst: Slot = _NOWHERE,
        *,
        count: int = 1,
        after: Iterable[Place] = (),
    ) -> Place:
        """Append a step that runs when the steps ``after`` have finished.

        A step carries one wait, so further ones go to nops before it; a wait that the threadblock's
        own order or an earlier wait already ensures is dropped (GC3 Sec. 5.2).
        """
        steps = self._steps[tb]
        waits = self._needed(tb, after)
        for wait in waits[:-1]:
            steps.append((_NOP, 0, -1, 0, -1, 1, *wait))
        steps.append((op, *src, *dst, count, *(waits[-1] if waits else (-1, -1))))
        return tb, len(steps) - 1

    def _needed(self, tb: int, after: Iterable[Place]) -> list[Place]:
        known = self._known[tb]
        latest: dict[int, int] = {}
        for other, step in after:
            if other != tb and step > known.get(other, -1) and step > latest.get(other, -1):
                latest[other] = step
        known.update(latest)
        return list(latest.items())

    def program(
        self,
        name: str,
        scratch_chunks: Sequence[int],
        *,
        protocol: Protocol = "Simple",
        in_place: bool = True,
    ) -> Program:
        """The program: threadblocks sorted by rank, then channel and peers."""
        order = sorted(range(len(self._keys)), key=lambda tb: _sorting(self._keys[tb]))
        keys = np.array([self._keys[tb] for tb in order], dtype=np.int32).reshape(-1, 4)
        row_of = np.full(len(order) + 1, -1, dtype=np.int32)
        row_of[order] = np.arange(len(order))
        rows = [step for tb in order for step in self._steps[tb]]
        table = np.array(rows, dtype=np.int32).reshape(-1, 8)
        return Program(
            name=name,
            collective=self._collective,
            protocol=protocol,
            scratch_chunks=tuple(scratch_chunks),
            tb_rank=ints(keys[:, 0]),
            tb_send=ints(keys[:, 1]),
            tb_recv=ints(keys[:, 2]),
            tb_channel=ints(keys[:, 3]),
            tb_start=ints(np.cumsum([0, *(len(self._steps[tb]) for tb in order)])),
            op=bytes_of(table[:, 0]),
            src_buffer=bytes_of(table[:, 1]),
            src_slot=ints(table[:, 2]),
            dst_buffer=bytes_of(table[:, 3]),
            dst_slot=ints(table[:, 4]),
            count=ints(table[:, 5]),
            wait_tb=ints(row_of[table[:, 6]]),
            wait_step=ints(table[:, 7]),
            in_place=in_place,
        )


def _sorting(key: tuple[int, int, int, int]) -> tuple[int, ...]:
    rank, send, recv, channel = key
    return rank, send < 0 and recv < 0, channel, send < 0, send, recv
