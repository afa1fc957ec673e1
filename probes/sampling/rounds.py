"""Round-robin rounds that reach every pair once, cut into waves of links that do not disturb each other.

Within a wave a rank takes part in one transfer only, no host works on more transfers than its cores serve,
and no NIC sends, or receives, more than one transfer. If it is unknown which rank uses which NIC, a host
counts as having one NIC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

__all__ = ["Pair", "Waves", "doubling_strides", "first_fit", "meetings", "rings", "strides", "waves"]

Item = TypeVar("Item")
Pair = tuple[int, int]
Waves = Callable[[Sequence[Pair]], list[list[Pair]]]


def rings(ranks: int, strides: Sequence[int] | None = None) -> list[list[Pair]]:
    """Return rounds; round i holds the links n → (n + i) mod N. Together they are every ordered pair once.

    AdapCC (Sec. IV-B) profiles in these rounds. ``strides`` keeps only some of them.
    """
    chosen = range(1, ranks) if strides is None else strides
    return [[(rank, (rank + stride) % ranks) for rank in range(ranks)] for stride in chosen]


def doubling_strides(ranks: int) -> list[int]:
    """Return strides 1, 2, 4, … and their opposites: about 2·log2 N rounds that still connect every rank."""
    powers = [1 << bit for bit in range(ranks.bit_length()) if 1 << bit < ranks]
    return sorted({stride for power in powers for stride in (power, ranks - power)})


def strides(ranks: int) -> list[int]:
    """Return every stride, those of ``doubling_strides`` first, so a cut list joins all ranks."""
    first = doubling_strides(ranks)
    return [*first, *(stride for stride in range(1, ranks) if stride not in set(first))]


def meetings(rounds: Sequence[Sequence[Pair]]) -> list[list[Pair]]:
    """Return the links of ``rounds`` without direction, each once, in the round where it first appears."""
    seen: set[Pair] = set()
    met = []
    for pairs in rounds:
        fresh = {(min(pair), max(pair)) for pair in pairs} - seen
        seen |= fresh
        met.append(sorted(fresh))
    return met


def waves(
    pairs: Sequence[Pair],
    host_of: Sequence[str],
    cores_of: dict[str, int],
    nic_of: Sequence[str] | None = None,
) -> list[list[Pair]]:
    """Cut one round into waves whose transfers share no rank, core or NIC, in O(pairs · waves).

    A transfer keeps two processes busy (both poll), so a host with C cores serves C processes, but at least
    one transfer. ``nic_of`` names the NIC of each rank.
    """
    nics = nic_of or [""] * len(host_of)

    def needed(pair: Pair) -> Iterator[Hashable]:
        src, dst = (host_of[rank] for rank in pair)
        yield from (src, dst, *(("rank", rank) for rank in pair))
        if src != dst:
            yield from ((src, nics[pair[0]], "egress"), (dst, nics[pair[1]], "ingress"))

    return first_fit(pairs, needed, cores_of)


def first_fit(
    items: Iterable[Item],
    needed: Callable[[Item], Iterable[Hashable]],
    room: Mapping[Any, int] = MappingProxyType({}),
) -> list[list[Item]]:
    """Put each item into the first wave with enough of every resource that it needs; return the waves.

    A wave has one unit of each resource, or the number in ``room``. An item may exceed that number if nothing
    in the wave uses the resource yet. O(items · waves).
    """
    waves: list[tuple[list[Item], Counter[Hashable]]] = []
    for item in items:
        wanted = Counter(needed(item))
        fitting = (
            wave
            for wave in waves
            if all(not wave[1][one] or wave[1][one] + n <= room.get(one, 1) for one, n in wanted.items())
        )
        wave = next(fitting, None)
        if wave is None:
            waves.append(wave := ([], Counter()))
        wave[0].append(item)
        wave[1].update(wanted)
    return [members for members, _ in waves]
