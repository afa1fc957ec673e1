"""From the samples of all ranks to a profile: fits, ports, flags and findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from probes import findings
from probes.columns import Floats, floats, ints
from probes.findings import Pair
from probes.fit import LinkFit, fit
from probes.profile import Links, Profile, ProfiledRank, SharedPort
from probes.trains import Trains

__all__ = ["Place", "Samples", "assemble", "ports", "suspects"]

_LARGEST_RESIDUAL = 0.25
_MOST_RETESTS_PER_RANK = 2


@dataclass(frozen=True)
class Place:
    """Where a rank is, and how many cores it may run on there."""

    host: str
    cores: int


@dataclass
class Samples:
    """What was timed: round trips by (first, second), trains by (src, dst)."""

    round_trips_s: dict[Pair, list[float]] = field(default_factory=dict)
    trains: dict[Pair, Trains] = field(default_factory=dict)

    def add(self, other: Samples) -> None:
        for pair, values in other.round_trips_s.items():
            self.round_trips_s.setdefault(pair, []).extend(values)
        for pair, found in other.trains.items():
            self.trains.setdefault(pair, Trains()).add(found)

    def round_trips_of(self, pair: Pair) -> Floats:
        """The round trips of a link, whichever end timed them."""
        return floats(self.round_trips_s.get(pair, []) + self.round_trips_s.get((pair[1], pair[0]), []))


@dataclass(frozen=True)
class _Fits:
    """The fits of all links, as columns in the order of ``pairs``."""

    pairs: list[Pair]
    fits: list[LinkFit]
    kinds: list[str]

    def column(self, name: str) -> Floats:
        return floats([getattr(one, f"beta{name}_s_per_byte") for one in self.fits])

    @property
    def outliers(self) -> list[int]:
        return findings.outliers(self.column(""), self.kinds)

    @property
    def asymmetric(self) -> list[int]:
        return findings.asymmetric(self.pairs, *map(self.column, ("", "_median", "_low", "_high")))

    @property
    def noisy(self) -> list[int]:
        return findings.noisy(self.column(""), self.column("_median"), self.column("_high"))

    @property
    def unsound(self) -> list[int]:
        return [row for row, one in enumerate(self.fits) if not one.sound]

    @property
    def nonlinear(self) -> list[int]:
        return [row for row, one in enumerate(self.fits) if one.residual > _LARGEST_RESIDUAL]


def suspects(samples: Samples, places: Sequence[Place]) -> list[Pair]:
    """The links to measure again, alone, worst kinds first; so many that it stays a fraction of the whole."""
    fits = _fitted(samples, places)
    ranked = dict.fromkeys([*fits.unsound, *fits.outliers, *fits.asymmetric, *fits.nonlinear])
    return [fits.pairs[row] for row in list(ranked)[: _MOST_RETESTS_PER_RANK * len(places)]]


def assemble(
    samples: Samples, places: Sequence[Place], *, library: str, seconds: float, rounds: int
) -> Profile:
    """The profile of the ranks at ``places``; links in the order of (src, dst)."""
    fits = _fitted(samples, places)
    trips = [samples.round_trips_of(pair) for pair in fits.pairs]
    links = Links(
        src=ints([src for src, _ in fits.pairs]),
        dst=ints([dst for _, dst in fits.pairs]),
        alpha_s=floats([values.min() / 2 for values in trips]),
        alpha_median_s=floats([np.median(values) / 2 for values in trips]),
        beta_s_per_byte=fits.column(""),
        beta_median_s_per_byte=fits.column("_median"),
        beta_low_s_per_byte=fits.column("_low"),
        beta_high_s_per_byte=fits.column("_high"),
        residual=floats([one.residual for one in fits.fits]),
        samples=ints([one.samples for one in fits.fits]),
        flags=_flags(fits),
    )
    return Profile(
        ranks=tuple(ProfiledRank(rank, place.host) for rank, place in enumerate(places)),
        links=links,
        ports=ports(fits.pairs, places),
        transport="mpi",
        library=library,
        seconds=round(seconds, 3),
        rounds=rounds,
        findings=_findings(fits, places),
    )


def ports(pairs: Sequence[Pair], places: Sequence[Place]) -> tuple[SharedPort, ...]:
    """What links share: the process that sends, the one that receives, a host's NIC, its cores.

    A process moves one message at a time each way. Where a host has fewer cores than ranks, ranks
    whose receiving copies would run on the same core share it, so that no more copies go on at a
    time than there are cores.
    """
    rows: dict[tuple[str, str], list[int]] = {}
    local = _local_numbers(places)
    crowd = {place.host: sum(other.host == place.host for other in places) for place in places}
    for row, (src, dst) in enumerate(pairs):
        rows.setdefault((f"rank {src} egress", "process"), []).append(row)
        rows.setdefault((f"rank {dst} ingress", "process"), []).append(row)
        here, there = places[src], places[dst]
        if here.host != there.host:
            rows.setdefault((f"{here.host} NIC egress", "host"), []).append(row)
            rows.setdefault((f"{there.host} NIC ingress", "host"), []).append(row)
        elif crowd[there.host] > there.cores:
            core = local[dst] % there.cores
            rows.setdefault((f"{there.host} core {core}", "cores"), []).append(row)
    return tuple(SharedPort(name, tuple(links), method) for (name, method), links in rows.items())


def _local_numbers(places: Sequence[Place]) -> list[int]:
    """For each rank, how many ranks of its host come before it."""
    return [sum(other.host == place.host for other in places[:rank]) for rank, place in enumerate(places)]


def _fitted(samples: Samples, places: Sequence[Place]) -> _Fits:
    pairs = sorted(samples.trains)
    return _Fits(
        pairs=pairs,
        fits=[_fit(samples.trains[pair]) for pair in pairs],
        kinds=["host" if places[src].host == places[dst].host else "network" for src, dst in pairs],
    )


def _fit(found: Trains) -> LinkFit:
    return fit(found.comparable(), one_sided=not found.buffered)


def _flags(fits: _Fits) -> tuple[str, ...]:
    words: dict[int, list[str]] = {}
    for word in ("unsound", "outlier", "asymmetric", "nonlinear", "noisy"):
        for row in getattr(fits, f"{word}s" if word == "outlier" else word):
            words.setdefault(row, []).append(word)
    return tuple(",".join(words.get(row, [])) for row in range(len(fits.pairs)))


def _findings(fits: _Fits, places: Sequence[Place]) -> tuple[str, ...]:
    beta = fits.column("")
    back = {pair: row for row, pair in enumerate(fits.pairs)}
    way_back = floats([beta[back.get((dst, src), row)] for row, (src, dst) in enumerate(fits.pairs)])
    like = floats([np.median(beta[[k == kind for k in fits.kinds]]) for kind in fits.kinds])
    unsteady = np.maximum(fits.column("_median"), fits.column("_high")) / beta
    said = [
        ("slow among links of their kind", fits.outliers, beta / like),
        ("slower than the way back", fits.asymmetric, beta / way_back),
        ("unsteady", fits.noisy, unsteady),
        ("without a sound fit (the time of the largest messages stands instead)", fits.unsound, beta / like),
    ]
    found = [findings.describe(what, rows, fits.pairs, floats(times)) for what, rows, times in said if rows]
    missing = len(places) * (len(places) - 1) - len(fits.pairs)
    if missing:
        found.append(
            f"links not measured: {missing} (a quick profile of many ranks keeps strides 1, 2, 4, …)"
        )
    return tuple(found)
