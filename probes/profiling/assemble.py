"""Assembly of a profile from the samples of all ranks: fits, ports, flags and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probes.base import Floats, floats, ints, plural
from probes.link_costs import FindingKind, HostCopies, HostMemory, Links, Profile, ProfiledRank, SentSegments
from probes.profiling import outliers
from probes.profiling.instances import Instances
from probes.profiling.outliers import Names, SlowPart
from probes.sampling import Pair, Place, Samples, better, pace
from probes.sharing import Share, disturbed, held_up, is_of, ports
from probes.statistics import LinkFit

__all__ = ["Fits", "assemble", "preempted", "still_slow", "to_retest", "unsettled", "waiting"]

# If a fit misses the times by a quarter, alpha and beta do not describe the link.
_LARGEST_RESIDUAL = 0.25
# A link that is faster alone by more than this factor shares something.
_CONTENDED = 1.25
# Links of a slow sender or receiver that are measured again.
_LINKS_OF_AN_END = 2
# Flag of a link that was not measured: the topology declares it equal to a measured one.
_INFERRED = "inferred"
_FLAGS = ("unsound", "outlier", "slow_sender", "slow_receiver", "asymmetric", "nonlinear", "noisy")


@dataclass(frozen=True)
class Fits:
    """The better fit of each link, measured together and alone, in the order of ``pairs``."""

    samples: Samples
    places: Sequence[Place]

    @cached_property
    def pairs(self) -> list[Pair]:
        return self.samples.measured()

    @cached_property
    def together(self) -> list[LinkFit]:
        return [pace(self.samples.trains[pair]) for pair in self.pairs]

    @cached_property
    def fits(self) -> list[LinkFit]:
        again = self.samples.again
        return [
            better(first, pace(again[pair])) if pair in again else first
            for pair, first in zip(self.pairs, self.together, strict=True)
        ]

    def column(self, name: str) -> Floats:
        return floats([getattr(one, f"beta{name}_s_per_byte") for one in self.fits])

    @cached_property
    def suspects(self) -> list[SlowPart]:
        """Slow parts, whether or not they were measured again."""
        return outliers.slow_parts(self.pairs, self.column(""), self.column("_median"), self.places)

    @cached_property
    def slow(self) -> list[SlowPart]:
        """Slow parts to report, worst first; single links only if they were slow alone, too."""
        again = set(self.retested)
        found = [part.among(again) if part.word == "outlier" else part for part in self.suspects]
        return outliers.worst_first(part for part in found if part.rows)

    @cached_property
    def doubtful(self) -> list[int]:
        """Rows of single links that looked slow but were not measured again."""
        suspected = {row for part in self.suspects if part.word == "outlier" for row in part.rows}
        return sorted(suspected - set(self.retested))

    @cached_property
    def retested(self) -> list[int]:
        return [row for row, pair in enumerate(self.pairs) if pair in self.samples.again]

    @cached_property
    def contended(self) -> dict[int, float]:
        """Rows of links between hosts that are faster alone than concurrently, with the factor."""
        gains = {
            row: self.together[row].beta_s_per_byte / self.fits[row].beta_s_per_byte for row in self.retested
        }
        return {row: gain for row, gain in gains.items() if gain > _CONTENDED and self.leaves_its_host(row)}

    @cached_property
    def unsteady(self) -> list[int]:
        """Rows of links between hosts that are well below their best most of the time."""
        return [row for row in self.rows["noisy"] if self.leaves_its_host(row)]

    @property
    def between_hosts(self) -> dict[Pair, float]:
        """Beta of the links that leave their host."""
        beta = zip(self.pairs, self.fits, strict=True)
        return {
            pair: one.beta_s_per_byte for row, (pair, one) in enumerate(beta) if self.leaves_its_host(row)
        }

    @cached_property
    def rows(self) -> dict[str, list[int]]:
        """The rows of each flag."""
        found: dict[str, list[int]] = {name: [] for name in _FLAGS}
        for part in self.slow:
            found[part.word] += part.rows
        found["unsound"] = [row for row, one in enumerate(self.fits) if not one.sound]
        found["asymmetric"] = outliers.asymmetric(
            self.pairs, *map(self.column, ("", "_median", "_low", "_high"))
        )
        found["nonlinear"] = [row for row, one in enumerate(self.fits) if one.residual > _LARGEST_RESIDUAL]
        found["noisy"] = outliers.noisy(self.column(""), self.column("_median"), self.column("_high"))
        found["preempted"] = [row for row, pair in enumerate(self.pairs) if self.samples.preempted(pair)]
        found["starved"] = [row for row, pair in enumerate(self.pairs) if self.samples.starved(pair)]
        return {**found, "retested": self.retested, "contended": list(self.contended)}

    def leaves_its_host(self, row: int) -> bool:
        """Return whether the link of that row is between hosts."""
        src, dst = self.pairs[row]
        return self.places[src].host != self.places[dst].host


def to_retest(samples: Samples, places: Sequence[Place]) -> list[Pair]:
    """Return the links to measure again, alone, worst kinds first, and a few that others held up."""
    fits = Fits(samples, places)
    held = held_up(fits.between_hosts, samples)
    return [*(pair for pair in _outstanding(fits) if pair not in held), *held[: len(places)]]


def _outstanding(fits: Fits) -> list[Pair]:
    """Return the links that stand out, worst kinds first; only a few of those that a slow end explains.

    Of a slow sender or receiver between hosts, only the fastest links are measured again: they show how slow
    it is. If they prove faster alone, its other links stand out by comparison. Within a host a measurement is
    short, so all links are measured again.
    """
    beta, rows, again = fits.column(""), fits.rows, set(fits.retested)
    suspected: list[int] = []
    explained: set[int] = set()
    for part in fits.suspects:
        if part.word == "outlier" or not fits.leaves_its_host(part.rows[0]):
            suspected += part.rows
            continue
        explained.update(part.rows)
        left = sorted(set(part.rows) - again, key=lambda row: float(beta[row]))
        suspected += left[: max(0, _LINKS_OF_AN_END - len(again.intersection(part.rows)))]
    lopsided = [row for row in rows["asymmetric"] if row not in explained]
    kinds = (rows["unsound"], suspected, lopsided, rows["nonlinear"], fits.unsteady)
    return [fits.pairs[row] for row in dict.fromkeys(row for rows in kinds for row in rows)]


def unsettled(samples: Samples, places: Sequence[Place]) -> list[Pair]:
    """Return links that stand out and were not measured alone, or were disturbed while alone.

    Links that others held up are left out: they are measured when it is known what they share.
    """
    fits = Fits(samples, places)
    later = {*samples.again, *held_up(fits.between_hosts, samples)}
    new = [pair for pair in _outstanding(fits) if pair not in later]
    return [*new, *disturbed([fits.pairs[row] for row in fits.retested], samples)]


def waiting(samples: Samples, places: Sequence[Place]) -> list[Pair]:
    """Return the links that others held up and that were not measured alone."""
    return held_up(Fits(samples, places).between_hosts, samples)


def preempted(samples: Samples, places: Sequence[Place]) -> list[Pair]:
    """Return (lower rank, higher rank) of the links whose latency may be the wait for a core."""
    fits = Fits(samples, places)
    return sorted({(min(pair), max(pair)) for pair in (fits.pairs[row] for row in fits.rows["preempted"])})


def still_slow(samples: Samples, places: Sequence[Place]) -> list[Pair]:
    """Return the single links that are slow even when measured again."""
    fits = Fits(samples, places)
    return [fits.pairs[row] for part in fits.slow if part.word == "outlier" for row in part.rows]


def assemble(
    samples: Samples,
    places: Sequence[Place],
    *,
    library: str,
    seconds: float,
    rounds: int,
    shares: Sequence[Share] = (),
    said: Sequence[str] = (),
    interrupted: str = "",
    host_copies: Sequence[HostCopies] = (),
    memory: Sequence[HostMemory] = (),
    instances: Instances | None = None,
    segments: Sequence[SentSegments] = (),
    topology: str = "",
) -> Profile:
    """Return the profile of the ranks at ``places``, links in the order of (src, dst).

    ``shares`` are the ports found by trials, ``said`` further notes, ``interrupted`` the reason why the
    measurement is incomplete. An interruption is the first finding, followed by slow parts. With
    ``instances``, unmeasured links between hosts are inferred from measured links that represent them.
    """
    fits = Fits(samples, places)
    trips = [samples.round_trips_of(pair) for pair in fits.pairs]
    links = Links(
        src=ints([src for src, _ in fits.pairs]),
        dst=ints([dst for _, dst in fits.pairs]),
        alpha_s=floats([values.min() / 2 for values in trips]),
        alpha_median_s=floats([np.median(values) / 2 for values in trips]),
        alpha_p90_s=floats([np.quantile(values, 0.9) / 2 for values in trips]),
        beta_s_per_byte=fits.column(""),
        beta_median_s_per_byte=fits.column("_median"),
        beta_p90_s_per_byte=fits.column("_p90"),
        beta_low_s_per_byte=fits.column("_low"),
        beta_high_s_per_byte=fits.column("_high"),
        residual=floats([one.residual for one in fits.fits]),
        samples=ints([one.samples for one in fits.fits]),
        flags=_flags(fits),
    )
    findings: list[tuple[FindingKind, str]] = [("incomplete", interrupted)] if interrupted else []
    findings += [("slow", part.text) for part in fits.slow]
    lost = [one.told for one in segments if one.lossy]
    findings += [("doubtful", text) for text in (*said, *lost, *_doubts(fits))]
    pairs = fits.pairs
    if instances is not None:
        links, pairs = _with_inferred(links, instances.inferred(fits.between_hosts))
        shares = [_widened(share, pairs, places) for share in shares]
    return Profile(
        ranks=tuple(
            ProfiledRank(rank, place.host, place.device, place.nic) for rank, place in enumerate(places)
        ),
        links=links,
        ports=ports(pairs, places, shares),
        transport="cuda" if any(place.on_gpu for place in places) else "mpi",
        library=library,
        seconds=round(seconds, 3),
        rounds=rounds,
        findings=tuple(text for _, text in findings),
        finding_kinds=tuple(kind for kind, _ in findings),
        host_copies=tuple(host_copies),
        memory=tuple(memory),
        topology=topology,
        segments=tuple(segments),
    )


def _with_inferred(links: Links, stand_in: Mapping[Pair, Pair]) -> tuple[Links, list[Pair]]:
    """Return all links in order; inferred ones are copies of the links that represent them."""
    measured = list(zip(links.src.tolist(), links.dst.tolist(), strict=True))
    row_of = {pair: row for row, pair in enumerate(measured)}
    pairs = sorted([*measured, *stand_in])
    rows = np.array([row_of[stand_in.get(pair, pair)] for pair in pairs], dtype=np.int64)
    own = np.array([pair not in stand_in for pair in pairs], dtype=bool)
    columns = {
        name: getattr(links, name)[rows]
        for name in Links.__dataclass_fields__
        if name not in ("src", "dst", "samples", "flags")
    }
    flags = [
        links.flags[row] if is_own else _INFERRED
        for row, is_own in zip(rows.tolist(), own.tolist(), strict=True)
    ]
    return (
        Links(
            src=ints([src for src, _ in pairs]),
            dst=ints([dst for _, dst in pairs]),
            samples=ints(np.where(own, links.samples[rows], 0)),
            flags=tuple(flags),
            **columns,
        ),
        pairs,
    )


def _widened(share: Share, pairs: Sequence[Pair], places: Sequence[Place]) -> Share:
    """Return the share with the inferred links that use it: those of its ranks, or of a trunk's hosts."""
    between = [pair for pair in pairs if places[pair[0]].host != places[pair[1]].host]
    for end, way in ((0, "egress"), (1, "ingress")):
        if any(is_of(share.name, place.host, way) for place in places):
            ranks = {pair[end] for pair in share.pairs}
            return Share(share.name, tuple(pair for pair in between if pair[end] in ranks))
    across = {(places[src].host, places[dst].host) for src, dst in share.pairs}
    return Share(
        share.name,
        tuple(pair for pair in between if (places[pair[0]].host, places[pair[1]].host) in across),
    )


def _flags(fits: Fits) -> tuple[str, ...]:
    words: dict[int, list[str]] = {}
    for word, rows in fits.rows.items():
        for row in rows:
            words.setdefault(row, []).append(word)
    return tuple(",".join(words.get(row, [])) for row in range(len(fits.pairs)))


def _doubts(fits: Fits) -> tuple[str, ...]:
    """Return the findings about doubtful samples."""
    beta = fits.column("")
    names = Names([place.host for place in fits.places])
    back = {pair: row for row, pair in enumerate(fits.pairs)}
    way_back = floats([beta[back.get((dst, src), row)] for row, (src, dst) in enumerate(fits.pairs)])
    unsteady = np.maximum(fits.column("_median"), fits.column("_high")) / beta
    explained = {row for part in fits.slow for row in part.rows}
    again = set(fits.retested)
    lopsided = [row for row in fits.rows["asymmetric"] if row in again and row not in explained]
    said = [
        ("slower than the way back", lopsided, beta / way_back),
        ("unsteady (slow messages over the fastest; normal is below 2)", fits.rows["noisy"], unsteady),
        (
            "whose times fit no alpha and beta (the time of whole transfers is given instead)",
            fits.rows["unsound"],
            beta,
        ),
    ]
    found = []
    if late := fits.rows["preempted"]:
        found.append(_preempted([fits.pairs[row] for row in late], fits.places))
    if fits.doubtful:
        count = f"{len(fits.doubtful)} {'link' if len(fits.doubtful) == 1 else 'links'}"
        found.append(f"{count} looked slow, not reported: there was no time to measure again")
    for what, rows, times in said:
        if rows:
            worst = [
                (float(times[row]), _times(names.link(*fits.pairs[row]), float(times[row]))) for row in rows
            ]
            found.append(outliers.describe(what, worst))
    return tuple(found)


def _preempted(pairs: Sequence[Pair], places: Sequence[Place]) -> str:
    """Return the note on links whose ends waited for a core, and on hosts with too few cores."""
    here = Counter(place.host for place in places)
    cores = {place.host: place.cores for place in places}
    hosts = dict.fromkeys(places[rank].host for pair in pairs for rank in pair)
    few = [f"{here[host]} ranks on host {host}, which has {plural(cores[host], 'core')}" for host in hosts]
    few = [text for host, text in zip(hosts, few, strict=True) if here[host] > cores[host]]
    why = ", ".join(few) or "something else runs on their hosts"
    return (
        f"latency of {plural(len(pairs), 'link')} is an upper limit: an end waited for a core "
        f"in every measurement: {why}"
    )


def _times(name: str, times: float) -> str:
    return f"{name} ({times:.2f} times)" if times > 1 else name
