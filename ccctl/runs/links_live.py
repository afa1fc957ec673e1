"""The live view of a profile: the newest and the slowest links while they are measured."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from ccctl import console
from probes.sampling import Samples, is_buffered, is_slow

if TYPE_CHECKING:
    from probes.sampling import Pair

__all__ = ["LinksLive"]

_NEWEST, _SLOWEST = 3, 5


class LinksLive:
    """A preview of the links from the samples so far; the profile itself is fitted at the end."""

    def __init__(self) -> None:
        self._samples = Samples()
        self._hosts: tuple[str, ...] = ()
        self._links = 0
        self._rate_gbs: dict[Pair, float] = {}
        self._newest: list[Pair] = []
        # Pieces not yet evaluated. They are evaluated only for a display, which saves work without one.
        self._pieces: deque[object] = deque()

    def heard(self, piece: object) -> None:
        """Keep a piece from a rank: the plan of the measurement, or samples of some links."""
        self._pieces.append(piece)

    def lines(self) -> Sequence[str]:
        """Return lines with the count of measured links, then the slowest and the newest links."""
        while self._pieces:
            self._take(self._pieces.popleft())
        rates, timed = self._rate_gbs, len(self._samples.trains)
        head = f"{timed} of {max(self._links, timed)} links"
        if not rates:
            return [head] if timed else []
        usual = median(rates.values())
        slowest = sorted(rates, key=lambda pair: rates[pair])[:_SLOWEST]
        newest = [pair for pair in self._newest if pair not in slowest]
        rows = [("slowest", pair) for pair in slowest] + [("newest", pair) for pair in newest]
        cells = [
            (
                word if at == 0 or rows[at - 1][0] != word else "",
                f"{src} → {dst}",
                f"{rates[src, dst]:.3g}",
                f"{rates[src, dst] / usual:.2f}x",
                self._between(src, dst),
            )
            for at, (word, (src, dst)) in enumerate(rows)
        ]
        head += f", median of their best rates {usual:.3g} GB/s"
        return [head, *console.aligned(("", "link", "GB/s", "of median", "hosts"), cells)]

    def _take(self, piece: object) -> None:
        from probes.profiling import Begun

        if isinstance(piece, Begun):
            self._hosts = tuple(place.host for place in piece.places)
            self._links = piece.links
        elif isinstance(piece, Samples):
            self._samples.add(piece)
            for pair in (*piece.trains, *piece.again):
                if (rate := self._rate(pair)) is not None:
                    self._rate_gbs[pair] = rate
                    self._newest = [pair, *(one for one in self._newest if one != pair)][:_NEWEST]

    def _rate(self, pair: Pair) -> float | None:
        """Return the link's GB/s from the best times of its smallest and its largest size.

        Returns None while there are too few samples.
        """
        for found in (self._samples.again, self._samples.trains):
            if pair in found and (sizes := found[pair].comparable()):
                small, large = min(sizes), max(sizes)
                seconds = min(sizes[large]) - (min(sizes[small]) if small < large else 0.0)
                pace_s_per_byte = seconds / (large - small * (small < large))
                # A buffered message shows the rate of slow links only.
                shows_rate = seconds > 0 and (not is_buffered(large) or is_slow(pace_s_per_byte))
                return 1e-9 / pace_s_per_byte if shows_rate else None
        return None

    def _between(self, src: int, dst: int) -> str:
        if max(src, dst) >= len(self._hosts):
            return ""
        a, b = self._hosts[src], self._hosts[dst]
        return f"in {a}" if a == b else f"{a} → {b}"
