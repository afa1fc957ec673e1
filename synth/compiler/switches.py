"""Lowering of a schedule in which the switches of one host do all sums and copies.

An operation of a switch becomes one ``glre`` or ``gstore`` at the rank that reads the sum or writes the
copies; a sum goes to its output slot. All ranks meet at a barrier before the operations, when their data is
there, and at another one after them. The threadblocks of a rank share its operations; the first ones also
have a round of the barriers each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from probes.base import Indices, UsageError, bytes_of, ints, offsets
from synth.collective import Collective
from synth.multimem import operations_of_ranks
from synth.program import GLRE, GSTORE, INPUT, OPS, OUTPUT, SIGNAL, WAIT, Program
from synth.schedules import REDUCE, Schedule

__all__ = ["switch_program"]

# NCCL 2.30.7 runs NVLS with 16 threadblocks on Hopper (``NVLS_NCHANNELS_SM90`` in src/transport/nvls.cc).
_BLOCKS = 16
_NOP = OPS.index("nop")
_NOWHERE = (-1, -1)


class _Step(NamedTuple):
    """A step that waits for step ``after[1]`` of threadblock ``after[0]`` of the rank."""

    op: int
    src: tuple[int, int] = (INPUT, -1)
    dst: tuple[int, int] = (INPUT, -1)
    after: tuple[int, int] = _NOWHERE


@dataclass
class _Block:
    rank: int
    send: int
    recv: int
    steps: list[_Step] = field(default_factory=list)


def switch_program(schedule: Schedule, name: str = "", *, instances: int = 1) -> Program:
    """Return the program of a schedule's switch operations, each chunk cut into ``instances`` chunks.

    Raises UsageError for several hosts, if a rank copies what another one summed, and if a chunk lies in
    different slots of the ranks' buffers. O(operations · ranks).
    """
    network, link = schedule.network, schedule.link
    members = np.unique(np.concatenate([network.src[link], network.dst[link]])).tolist()
    collective = schedule.collective.cut(instances)
    moves = _Moves(collective, members, instances)
    operations = operations_of_ranks(schedule, "a program")
    group = np.arange(1, collective.ranks + 1)
    group[members] = 0
    blocks = [
        block
        for place, rank in enumerate(members)
        for block in _blocks(members, place, moves.of(rank, operations[rank]))
    ]
    return _program(name or f"{schedule.method} {schedule.collective.label}", collective, group, blocks)


class _Moves:
    """The sums and copies of ranks, by chunk; a chunk lies in one slot of all ranks' buffers."""

    def __init__(self, collective: Collective, members: Sequence[int], instances: int) -> None:
        self._members, self._instances = members, instances
        self._inputs, self._outputs = (
            np.stack([slots(rank) for rank in range(collective.ranks)])
            for slots in (collective.input_slots, collective.output_slots)
        )

    def of(self, rank: int, operations: Sequence[tuple[int, int]]) -> list[list[_Step]]:
        """Return the steps of each chunk that a rank sums, copies, or both."""
        found: dict[int, list[_Step]] = {}
        for op, whole in operations:
            for chunk in range(whole * self._instances, (whole + 1) * self._instances):
                self._require_one_slot(self._inputs if op == REDUCE else self._outputs, chunk)
                held, result = (
                    (INPUT, int(self._inputs[rank, chunk])),
                    (OUTPUT, int(self._outputs[rank, chunk])),
                )
                if op == REDUCE:
                    found[chunk] = [_Step(GLRE, held, result)]
                else:
                    found[chunk] = [
                        *found.get(chunk, ()),
                        _Step(GSTORE, result if chunk in found else held, result),
                    ]
        return list(found.values())

    def _require_one_slot(self, slots: Indices, chunk: int) -> None:
        slot = slots[self._members, chunk]
        if (slot != slot[0]).any():
            raise UsageError(
                f"chunk {chunk} lies in different slots of the ranks' buffers, and a switch reaches one place"
            )


def _blocks(members: Sequence[int], place: int, moves: Sequence[Sequence[_Step]]) -> list[_Block]:
    """Return the threadblocks that carry out ``moves`` of the rank at ``place`` among its group's members."""
    rank = members[place]
    distances = [1 << number for number in range((len(members) - 1).bit_length())]
    blocks = [
        _Block(rank, members[(place + away) % len(members)], members[place - away]) for away in distances
    ]
    blocks += [_Block(rank, -1, -1) for _ in range(min(_BLOCKS, len(moves)) - len(blocks))]
    talking = blocks[: len(distances)]
    heard = _hear_of_all(talking)
    for number, block in enumerate(blocks):
        mine = chain(*moves[number :: len(blocks)])
        block.steps += mine if number == heard[0] else _after(heard, mine)
    # The threadblocks are a binary heap: each waits for its children, and the first one so for all.
    for child in reversed(range(1, min(len(blocks), len(moves)))):
        blocks[(child - 1) // 2].steps.append(_Step(_NOP, after=(child, len(blocks[child].steps) - 1)))
    _hear_of_all(talking)
    return blocks


def _hear_of_all(blocks: Sequence[_Block]) -> tuple[int, int]:
    """Add a dissemination barrier, a round in each threadblock; return its last step.

    In round k each rank signals to the one 2^k places further, for itself and for all that it has heard of.
    Hensgen, Finkel, Manber, Two Algorithms for Barrier Synchronization (1988).
    """
    heard = _NOWHERE
    for number, block in enumerate(blocks):
        block.steps += [_Step(SIGNAL, after=heard), _Step(WAIT)]
        heard = number, len(block.steps) - 1
    return heard


def _after(awaited: tuple[int, int], steps: Iterable[_Step]) -> Iterator[_Step]:
    """Yield the steps, of which the first waits for ``awaited``."""
    for number, step in enumerate(steps):
        yield step if number else step._replace(after=awaited)


def _program(name: str, collective: Collective, group: Indices, blocks: Sequence[_Block]) -> Program:
    rank = np.array([block.rank for block in blocks])
    first = np.searchsorted(rank, rank)
    steps = [step for block in blocks for step in block.steps]
    owner = np.repeat(np.arange(len(blocks)), [len(block.steps) for block in blocks])
    op, src, dst, after = zip(*steps, strict=True)
    (src_buffer, src_slot), (dst_buffer, dst_slot), (wait_tb, wait_step) = np.array(
        [src, dst, after]
    ).transpose(0, 2, 1)
    return Program(
        name=name,
        collective=collective,
        protocol="Simple",
        scratch_chunks=(0,) * collective.ranks,
        tb_rank=ints(rank),
        tb_send=ints([block.send for block in blocks]),
        tb_recv=ints([block.recv for block in blocks]),
        tb_channel=ints(np.zeros(len(blocks))),
        tb_start=ints(offsets([len(block.steps) for block in blocks])),
        op=bytes_of(op),
        src_buffer=bytes_of(src_buffer),
        src_slot=ints(src_slot),
        dst_buffer=bytes_of(dst_buffer),
        dst_slot=ints(dst_slot),
        count=ints(np.ones(len(steps))),
        wait_tb=ints(np.where(wait_tb < 0, -1, first[owner] + wait_tb)),
        wait_step=ints(wait_step),
        in_place=collective.in_place,
        group=ints(group),
    )
