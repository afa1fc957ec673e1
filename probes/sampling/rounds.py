"""Who probes whom, and when: rounds that reach every pair once, cut into waves that do not disturb.

Within a wave a rank takes part in one transfer only, no host works on more transfers than its cores
serve, and no host sends, or receives, more than one transfer over its NIC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

__all__ = ["Pair", "Waves", "doubling_strides", "meetings", "rings", "strides", "waves"]

Pair = tuple[int, int]
Waves = Callable[[Sequence[Pair]], list[list[Pair]]]


def rings(ranks: int, strides: Sequence[int] | None = None) -> list[list[Pair]]:
    """Round i holds the links n → (n + i) mod N; all of them together are every ordered pair once.

    AdapCC (Sec. IV-B) profiles in these rounds. ``strides`` keeps only some of them.
    """
    chosen = range(1, ranks) if strides is None else strides
    return [[(rank, (rank + stride) % ranks) for rank in range(ranks)] for stride in chosen]


def doubling_strides(ranks: int) -> list[int]:
    """Strides 1, 2, 4, … and their opposites: about 2·log2 N rounds that still connect every rank."""
    powers = [1 << bit for bit in range(ranks.bit_length()) if 1 << bit < ranks]
    return sorted({stride for power in powers for stride in (power, ranks - power)})


def strides(ranks: int) -> list[int]:
    """Every stride, those of ``doubling_strides`` first: whatever is cut off the end, all stay connected."""
    first = doubling_strides(ranks)
    return [*first, *(stride for stride in range(1, ranks) if stride not in set(first))]


def meetings(rounds: Sequence[Sequence[Pair]]) -> list[list[Pair]]:
    """The links of ``rounds`` without direction, each once, in the round where it first comes."""
    seen: set[Pair] = set()
    met = []
    for pairs in rounds:
        fresh = {(min(pair), max(pair)) for pair in pairs} - seen
        seen |= fresh
        met.append(sorted(fresh))
    return met


def waves(pairs: Sequence[Pair], host_of: Sequence[str], cores_of: dict[str, int]) -> list[list[Pair]]:
    """Cut one round into waves whose transfers share no rank, core or NIC, in O(pairs · waves).

    A transfer keeps two processes busy (both poll), so a host with C cores serves C processes, but
    never less than one transfer.
    """
    cut: list[_Wave] = []
    for pair in pairs:
        for wave in cut:
            if wave.admits(pair, host_of, cores_of):
                break
        else:
            wave = _Wave()
            cut.append(wave)
        wave.add(pair, host_of)
    return [wave.pairs for wave in cut]


class _Wave:
    """Transfers that go on at the same time, and what they keep busy."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self._ranks: set[int] = set()
        self._busy: Counter[str] = Counter()
        self._nics: set[tuple[str, str]] = set()

    def admits(self, pair: Pair, host_of: Sequence[str], cores_of: dict[str, int]) -> bool:
        if self._ranks.intersection(pair) or self._nics.intersection(_nics(pair, host_of)):
            return False
        needed = Counter(host_of[rank] for rank in pair)
        return all(
            self._busy[host] == 0 or self._busy[host] + count <= cores_of[host]
            for host, count in needed.items()
        )

    def add(self, pair: Pair, host_of: Sequence[str]) -> None:
        self.pairs.append(pair)
        self._ranks.update(pair)
        self._busy.update(host_of[rank] for rank in pair)
        self._nics.update(_nics(pair, host_of))


def _nics(pair: Pair, host_of: Sequence[str]) -> list[tuple[str, str]]:
    src, dst = (host_of[rank] for rank in pair)
    return [] if src == dst else [(src, "egress"), (dst, "ingress")]
