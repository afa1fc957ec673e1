"""Periodic divisions into averaging groups: DS-Sync's rotation (Sec. III-B), and two that reach consensus.

`representatives` is the paper's. With racks of two ranks it never reaches consensus: the first ranks of all
racks average in one iteration, the second ranks in the next, and no first rank meets a second rank.
`alternating` reaches consensus with racks of any sizes, as whole racks average in every other iteration.
`mixed_radix` averages exactly in each period; if the number of ranks is a power of two, it is the butterfly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from synth.errors import NotApplicableError
from synth.groups.artifact import MOST_PERIOD, Division

__all__ = ["RackLayout", "alternating", "is_butterfly", "mixed_radix", "representatives"]

# A period that is a multiple of all rotations gives every rank of a rack the same number of turns. Beyond
# this limit the period is the longest rotation.
_MOST_FAIR_PERIOD = 64


@dataclass(frozen=True)
class RackLayout:
    """The ranks of each rack, the slow racks (indices of ``racks``) and the slow ranks."""

    racks: tuple[tuple[int, ...], ...]
    slow_racks: tuple[int, ...] = ()
    slow_ranks: tuple[int, ...] = ()

    def candidates(self, rack: int) -> tuple[int, ...]:
        """Return the ranks that represent a rack in turn: those without slow NICs, or all if all are slow."""
        regular = tuple(rank for rank in self.racks[rack] if rank not in self.slow_ranks)
        return regular or self.racks[rack]


def representatives(layout: RackLayout, period: int | None = None) -> tuple[Division, ...]:
    """Return divisions in which one rank of each rack, in turn, joins a group across racks.

    The other ranks of a rack form a group of their own. The representatives of a slow rack and of a regular
    rack form a group of two, with another regular rack in each iteration (Sec. III-B2). A rank with a slow
    NIC never represents its rack. Such a rank averages with one regular rank if at least two other regular
    ranks remain for a group of their own (Sec. III-B3).
    """
    return tuple(_division(layout, turn, crossing=True) for turn in range(period or _fair_period(layout)))


def alternating(layout: RackLayout, period: int | None = None) -> tuple[Division, ...]:
    """Return divisions that alternate: whole racks, then `representatives`.

    With the default period they always reach consensus.
    """
    count = period or 2 * _fair_period(layout)
    return tuple(_division(layout, at // 2, crossing=bool(at % 2)) for at in range(count))


def mixed_radix(layout: RackLayout) -> tuple[Division, ...]:
    """Return divisions that group, in iteration k, ranks that differ only in digit k of their place.

    Averages are exact after one period. The radices are the prime factors of the ranks of a rack, then of
    the number of racks, so that only the last iterations cross racks. Raises NotApplicableError for racks of
    unequal sizes.
    """
    sizes = {len(rack) for rack in layout.racks}
    if len(sizes) > 1:
        raise NotApplicableError(f"expected racks of one size, found sizes {sorted(sizes)}")
    order = [rank for rack in layout.racks for rank in rack]
    found, stride = [], 1
    for factor in (*_prime_factors(sizes.pop()), *_prime_factors(len(layout.racks))):
        block = stride * factor
        firsts = (base + at for base in range(0, len(order), block) for at in range(stride))
        groups = (sorted(order[first : first + block : stride]) for first in firsts)
        found.append(tuple(sorted(tuple(group) for group in groups)))
        stride = block
    return tuple(found) or (tuple((rank,) for rank in sorted(order)),)


def is_butterfly(iterations: Sequence[Division]) -> bool:
    """Return whether all groups are pairs."""
    return all(len(group) == 2 for division in iterations for group in division)


def _prime_factors(number: int) -> Iterator[int]:
    divisor = 2
    while number > 1:
        while number % divisor == 0:
            yield divisor
            number //= divisor
        divisor += 1


def _fair_period(layout: RackLayout) -> int:
    turns = [len(layout.candidates(rack)) for rack in range(len(layout.racks))]
    if layout.slow_racks and len(layout.racks) > 2:
        slow = len(layout.slow_racks)
        turns.append(max(slow, len(layout.racks) - slow))
    if len(layout.racks) == 1:
        # With one rack there are no representatives; only the partners of slow ranks rotate.
        turns = [len(layout.candidates(0)) if layout.slow_ranks else 1]
    fair = math.lcm(*turns)
    return fair if fair <= _MOST_FAIR_PERIOD else min(max(turns), MOST_PERIOD // 2)


def _division(layout: RackLayout, turn: int, *, crossing: bool) -> Division:
    between = _between(len(layout.racks), layout.slow_racks, turn) if crossing else []
    sent: dict[int, int] = {}
    for sender in itertools.chain.from_iterable(between):
        candidates = layout.candidates(sender)
        sent[sender] = candidates[turn % len(candidates)]
    groups = [tuple(sorted(sent[rack] for rack in racks)) for racks in between]
    for number, rack in enumerate(layout.racks):
        groups += _within([rank for rank in rack if rank != sent.get(number)], layout.slow_ranks, turn)
    return tuple(sorted(groups))


def _between(racks: int, slow_racks: Sequence[int], turn: int) -> list[tuple[int, ...]]:
    """Return the groups of racks whose representatives average; a rack in no group sends none."""
    if racks == 1:
        return []
    if not slow_racks or racks == 2:
        return [tuple(range(racks))]
    slow, regular = list(slow_racks), [rack for rack in range(racks) if rack not in slow_racks]
    if len(regular) >= len(slow):
        regular = _rotated(regular, turn)
    else:
        slow = _rotated(slow, turn)
    paired = min(len(slow), len(regular))
    groups: list[tuple[int, ...]] = list(zip(slow[:paired], regular[:paired], strict=True))
    left = slow[paired:]
    groups += [(left[at], left[at + 1]) for at in range(0, len(left) - 1, 2)]
    return groups + ([tuple(regular[paired:])] if len(regular) - paired >= 2 else [])


def _within(ranks: list[int], slow_ranks: Sequence[int], turn: int) -> list[tuple[int, ...]]:
    """Return the groups of the ranks that stay in a rack.

    Each slow rank pairs with a regular rank while two regular ranks remain, the other slow ranks pair up, and
    all remaining ranks form one group.
    """
    slow = [rank for rank in ranks if rank in slow_ranks]
    regular = [rank for rank in ranks if rank not in slow_ranks]
    partners = min(len(slow), len(regular) - 2)
    if partners < 1:
        return [tuple(ranks)] if ranks else []
    slow, regular = _rotated(slow, turn), _rotated(regular, turn)
    groups = [tuple(sorted(pair)) for pair in zip(slow[:partners], regular[:partners], strict=True)]
    left = slow[partners:]
    groups += [tuple(sorted(left[at : at + 2])) for at in range(0, len(left) - 1, 2)]
    odd = left[-1:] if len(left) % 2 else []
    return [*groups, tuple(sorted([*regular[partners:], *odd]))]


def _rotated(items: list[int], turn: int) -> list[int]:
    at = turn % len(items) if items else 0
    return items[at:] + items[:at]
