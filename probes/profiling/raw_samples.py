"""The raw samples of a profile, as columns: whoever has them can fit each alpha and beta again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from probes.base import Floats, Ints, floats, ints
from probes.link_costs import Links
from probes.profiling.assemble import Fits
from probes.sampling import Pair, Samples, Trains

__all__ = ["RawSamples", "raw_samples", "samples_joined", "unproven"]

# The values of ``RawSamples.quantity``.
_ROUND_TRIP, _TOGETHER, _ALONE = range(3)
# Costs that differ by at most this share are equal: the order of the samples may change sums in the last
# digits.
_EQUAL = 1e-9
_MOST_NAMED = 3


@dataclass(frozen=True, eq=False)
class RawSamples:
    """All samples of one or several measurements, a row each.

    ``quantity`` is 0 for the seconds of a round trip between ``src`` and ``dst``, 1 for the seconds of a
    message of ``size_bytes`` in a train from ``src`` to ``dst``, and 2 for such a message if no other link
    was measured at the same time. ``size_bytes`` is 0 for a whole train, whose ``seconds`` are per byte.
    ``run`` numbers the measurements: links of different measurements were fitted apart.
    """

    run: Ints
    quantity: Ints
    src: Ints
    dst: Ints
    size_bytes: Ints
    seconds: Floats

    def problems(self) -> Iterator[str]:
        """Yield every problem: columns of unequal lengths, unknown quantities, impossible times."""
        lengths = {len(getattr(self, name)) for name in self.__dataclass_fields__}
        if len(lengths) > 1:
            yield f"expected columns of equal length, found {', '.join(map(str, sorted(lengths)))} rows"
            return
        for name, wrong in (
            ("quantity", (self.quantity < 0) | (self.quantity > _ALONE)),
            ("run", self.run < 0),
            ("src", self.src < 0),
            ("dst", (self.dst < 0) | (self.dst == self.src)),
            ("size_bytes", self.size_bytes < 0),
            ("seconds", ~np.isfinite(self.seconds) | (self.seconds < 0)),
        ):
            for row in np.flatnonzero(wrong)[:_MOST_NAMED].tolist():
                yield f"{name}[{row}]: no measurement gives {getattr(self, name)[row]}"


def raw_samples(pieces: Iterable[object]) -> RawSamples:
    """Return the samples among the pieces that a measurement handed on, as columns."""
    rows: list[tuple[int, int, int, int, float]] = []
    for piece in pieces:
        if isinstance(piece, Samples):
            rows += _rows(piece)
    kind, src, dst, size, seconds = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    run = ints([0] * len(rows))
    return RawSamples(run, ints(kind), ints(src), ints(dst), ints(size), floats(seconds))


def _rows(samples: Samples) -> Iterator[tuple[int, int, int, int, float]]:
    for (src, dst), trips in samples.round_trips_s.items():
        yield from ((_ROUND_TRIP, src, dst, 0, seconds) for seconds in trips)
    for kind, links in ((_TOGETHER, samples.trains), (_ALONE, samples.again)):
        for (src, dst), trains in links.items():
            yield from ((kind, src, dst, 0, seconds) for seconds in trains.whole_s_per_byte)
            for size, values in trains.seconds.items():
                yield from ((kind, src, dst, size, seconds) for seconds in values)


def samples_joined(before: RawSamples, now: RawSamples) -> RawSamples:
    """Return the samples of an earlier measurement and of the later one that continues it."""
    later = replace(now, run=ints(now.run + 1 + int(before.run.max(initial=-1))))
    columns = {
        name: np.concatenate([getattr(before, name), getattr(later, name)])
        for name in RawSamples.__dataclass_fields__
    }
    seconds = floats(columns.pop("seconds"))
    return RawSamples(**{name: ints(column) for name, column in columns.items()}, seconds=seconds)


def unproven(links: Links, raw: RawSamples) -> list[str]:
    """Return a sentence about each link whose alphas and betas are not what its raw samples give."""
    fitted = [_refitted(_samples(raw, run)) for run in np.unique(raw.run).tolist()]
    found = []
    for row, pair in enumerate(zip(links.src.tolist(), links.dst.tolist(), strict=True)):
        known = [run[pair] for run in fitted if pair in run]
        if not known:
            found.append(f"link {pair[0]} → {pair[1]}: no raw samples")
            continue
        values = {name: float(getattr(links, name)[row]) for name in known[0]}
        wrong = (
            f"link {pair[0]} → {pair[1]}: {name} is {value:.6g}, its raw samples give {known[-1][name]:.6g}"
            for name, value in values.items()
            if not any(np.isclose(value, one[name], rtol=_EQUAL, atol=0.0) for one in known)
        )
        found += islice(wrong, 1)
    return found


def _samples(raw: RawSamples, run: int) -> Samples:
    found = Samples()
    mine = raw.run == run
    columns = (raw.quantity, raw.src, raw.dst, raw.size_bytes, raw.seconds)
    for kind, src, dst, size, seconds in zip(*(column[mine].tolist() for column in columns), strict=True):
        if kind == _ROUND_TRIP:
            found.round_trips_s.setdefault((src, dst), []).append(seconds)
            continue
        trains = (found.trains if kind == _TOGETHER else found.again).setdefault((src, dst), Trains())
        values = trains.seconds.setdefault(size, []) if size else trains.whole_s_per_byte
        values.append(seconds)
    return found


def _refitted(samples: Samples) -> dict[Pair, dict[str, float]]:
    """Return the costs of each link that was measured, by the name of the profile's column."""
    # The fit of a link does not depend on the places of ranks.
    fits = Fits(samples, ())
    columns = fits.costs()
    return {
        pair: {name: float(column[row]) for name, column in columns.items()}
        for row, pair in enumerate(fits.pairs)
    }
