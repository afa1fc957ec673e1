"""Chains of additions to one slot. A plan joins each chain into one addition with several operands.

The earlier steps of a chain then only receive. The executor adds operands from left to right, so the sum has
the same bits.
"""

from __future__ import annotations

from synth.mscclpp.accesses import Accesses
from synth.mscclpp.well_formed import MOST_OPERANDS
from synth.program import OPS

__all__ = ["addition_chains"]

_RRC, _RRS, _RRCS, _REDUCE = (OPS.index(name) for name in ("rrc", "rrs", "rrcs", "re"))


def addition_chains(accesses: Accesses) -> dict[int, list[int]]:
    """Return, by its last addition, each chain of several additions that can be joined.

    In a chain, only the next addition reads a sum, and no operand is overwritten before the last addition.
    """
    found: dict[int, list[int]] = {}
    turn = {step: number for number, step in enumerate(accesses.order)}
    ops = accesses.program.op.tolist()
    for step in accesses.order:
        if ops[step] not in (_RRC, _RRS, _RRCS, _REDUCE):
            continue
        sum_ = [step]
        earlier = _earlier(accesses, step, turn)
        if earlier in found and len(found[earlier]) + 1 < MOST_OPERANDS:
            longer = [*found[earlier], step]
            if all(_stays(accesses, one, longer) for one in longer):
                del found[earlier]
                sum_ = longer
        found[step] = sum_
    return {last: sum_ for last, sum_ in found.items() if len(sum_) > 1}


def _earlier(accesses: Accesses, step: int, turn: dict[int, int]) -> int:
    """Return the addition whose sum only ``step`` uses, or -1."""
    op, cells = accesses.program.op, accesses.written(step)
    if op[step] == _RRS:
        cells = accesses.read(step)
        if not all(_ends(accesses, step, cell) for cell in cells):
            return -1
    elif op[step] != _REDUCE and accesses.read(step) != cells:
        return -1
    at_cells = {one for cell in cells for one, _ in accesses.touching[cell]}
    others = {one for one in at_cells if not accesses.follows(one, step)}
    if not others or not all(accesses.follows(step, one) for one in others):
        return -1
    last = max(others, key=turn.__getitem__)
    if op[last] not in (_RRC, _REDUCE) or accesses.written(last) != cells:
        return -1
    return last if all(accesses.follows(last, one) for one in others) else -1


def _ends(accesses: Accesses, step: int, cell: int) -> bool:
    """Return whether the value of a cell is not used after a step, neither by other steps nor as a result."""
    later = [one for one in accesses.touching[cell] if one[0] != step and accesses.follows(one[0], step)]
    writers = [one for one, writes in later if writes]
    readers = [one for one, writes in later if not writes or accesses.program.op[one] == _REDUCE]
    if not writers and cell in accesses.results:
        return False
    return all(any(accesses.follows(one, writer) for writer in writers if writer != one) for one in readers)


def _stays(accesses: Accesses, step: int, longer: list[int]) -> bool:
    """Return whether the source of an addition has no writes between it and the last addition."""
    cells, last = accesses.read(step), longer[-1]
    if cells == accesses.written(longer[0]):
        return bool(accesses.program.op[step] != _REDUCE)
    writers = {one for cell in cells for one, writes in accesses.touching[cell] if writes}
    return all(accesses.follows(step, one) or accesses.follows(one, last) for one in writers)
