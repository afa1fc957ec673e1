"""Assembly of a profile from the samples of all ranks: fits, ports, flags and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from probes.base import Floats, floats, ints, plural, some
from probes.link_costs import FindingKind, HostCopies, HostMemory, Links, Profile, ProfiledRank, SentSegments
from probes.localization import Fault
from probes.profiling.findings import confirmed, is_single, suspected, with_faults
from probes.profiling.instances import Instances
from probes.profiling.names import Names
from probes.sampling import Pair, Place, Samples, best_message, best_whole, better, pace
from probes.sharing import Share, disturbed, held_up, is_of, ports
from probes.statistics import LinkFit

__all__ = ["Fits", "assemble", "preempted", "still_slow", "to_retest", "unsettled", "waiting"]

# If a fit misses the times by a quarter, alpha and beta do not describe the link.
_LARGEST_RESIDUAL = 0.25
# A link that is faster alone by more than this factor shares something.
_CONTENDED = 1.25
# The number of links that are measured again if a fault has several links.
_LINKS_OF_A_FAULT = 2
# Flag of a link that was not measured: the topology declares it equal to a measured one.
_INFERRED = "inferred"
# The two ways of a link may differ by up to a tenth without a finding.
_ASYMMETRIC = 0.10
# About three normal values in a million lie more than 4.5 standard deviations above the mean.
_Z = 4.5
# Half of the messages of a link that no end held up take less than this many times as long as the fastest: in
# labs on a loaded machine 1.01 to 1.05 times.
_REPEATED = 1.08
# A link with this many samples was measured in several passes: each pass takes one or two of them.
_OFTEN = 6
# A median of over twice the best time is noise.
_NOISY = 2.0
_MOST_NAMED = 6


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
            self._of_both(pair, first) if pair in again else first
            for pair, first in zip(self.pairs, self.together, strict=True)
        ]

    def _of_both(self, pair: Pair, together: LinkFit) -> LinkFit:
        """Return the better fit, with the slow messages of both looks unless other links may explain them.

        If the best message and the best train under load took as long as those alone, no other link held them
        up, so slow messages are the link's own. A part that is slow from time to time is often fast when it
        is measured again.
        """
        company, alone = self.samples.trains[pair], self.samples.again[pair]
        found = better(together, pace(alone))
        if not all(_as_fast(best(company), best(alone)) for best in (best_message, best_whole)):
            return found
        both = pace(company.joined(alone))
        return replace(
            found,
            beta_median_s_per_byte=max(found.beta_median_s_per_byte, both.beta_median_s_per_byte),
            beta_p90_s_per_byte=max(found.beta_p90_s_per_byte, both.beta_p90_s_per_byte),
        )

    def column(self, name: str) -> Floats:
        return floats([getattr(fit, f"beta{name}_s_per_byte") for fit in self.fits])

    def costs(self) -> dict[str, Floats]:
        """Return the columns of alpha and beta of `Links`, by name."""
        trips = [self.samples.round_trips_of(pair) for pair in self.pairs]
        words = ("", "_median", "_p90", "_low", "_high")
        return {
            "alpha_s": floats([values.min() / 2 for values in trips]),
            "alpha_median_s": floats([np.median(values) / 2 for values in trips]),
            "alpha_p90_s": floats([np.quantile(values, 0.9) / 2 for values in trips]),
            **{f"beta{word}_s_per_byte": self.column(word) for word in words},
        }

    @cached_property
    def profile(self) -> Profile:
        """The profile of the measured links alone, without findings."""
        links = Links(
            src=ints([src for src, _ in self.pairs]),
            dst=ints([dst for _, dst in self.pairs]),
            **self.costs(),
            residual=floats([fit.residual for fit in self.fits]),
            samples=ints([fit.samples for fit in self.fits]),
            flags=_flags(self),
        )
        ranks = (
            ProfiledRank(rank, place.host, place.device, place.nic, place.cores)
            for rank, place in enumerate(self.places)
        )
        transport: Literal["cuda", "mpi"] = "cuda" if any(place.on_gpu for place in self.places) else "mpi"
        return Profile(tuple(ranks), links, (), transport, "", 0.0, 0)

    @cached_property
    def suspects(self) -> list[Fault]:
        """Faults, whether or not their links were measured again."""
        return suspected(self.profile)

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
        slowest = np.maximum(self.column("_median"), self.column("_high"))
        return {
            "unsound": [row for row, fit in enumerate(self.fits) if not fit.sound],
            "asymmetric": self._asymmetric(),
            "nonlinear": [row for row, fit in enumerate(self.fits) if fit.residual > _LARGEST_RESIDUAL],
            "noisy": np.flatnonzero(slowest > _NOISY * self.column("")).tolist(),
            "preempted": [row for row, pair in enumerate(self.pairs) if self.samples.preempted(pair)],
            "starved": [
                row
                for row, pair in enumerate(self.pairs)
                if self.samples.starved(pair) and not self._repeats(row)
            ],
            "retested": self.retested,
            "contended": list(self.contended),
        }

    def _repeats(self, row: int) -> bool:
        """Return whether half of the messages under load took the same time, and the link is no faster alone.

        An end that waits for a core slows a link by chance, so its rates in several passes differ, and so do
        its rates under load and alone.
        """
        alone = self.samples.again.get(self.pairs[row])
        if alone is None:
            return False
        first, again = self.together[row], pace(alone)
        most = _REPEATED * min(first.beta_s_per_byte, again.beta_s_per_byte)
        return first.beta_median_s_per_byte < most and (
            first.samples >= _OFTEN or again.beta_s_per_byte < most
        )

    def _asymmetric(self) -> list[int]:
        """Return rows a tenth slower than the way back, in best and median, with disjoint intervals.

        If links vary by more than that, the difference must also exceed their variation.
        """
        beta, median, low, high = map(self.column, ("", "_median", "_low", "_high"))
        if not self.pairs:
            return []
        row_of = {pair: row for row, pair in enumerate(self.pairs)}
        noise = float(np.median(np.log(median / beta))) / 2
        least = max(1 + _ASYMMETRIC, float(np.exp(_Z * noise)))
        found = []
        for row, (src, dst) in enumerate(self.pairs):
            back = row_of.get((dst, src))
            if back is None or low[row] <= high[back]:
                continue
            if min(beta[row] / beta[back], median[row] / median[back]) > least:
                found.append(row)
        return found

    def leaves_its_host(self, row: int) -> bool:
        """Return whether the link of that row is between hosts."""
        src, dst = self.pairs[row]
        return self.places[src].host != self.places[dst].host


def _as_fast(company_s: float | None, alone_s: float | None) -> bool:
    return company_s is not None and alone_s is not None and company_s < _REPEATED * alone_s


def to_retest(samples: Samples, places: Sequence[Place]) -> list[Pair]:
    """Return the links to measure again, alone: the worst kinds first, then a few that others held up."""
    fits = Fits(samples, places)
    held = held_up(fits.between_hosts, samples)
    return [*(pair for pair in _outstanding(fits) if pair not in held), *held[: len(places)]]


def _outstanding(fits: Fits) -> list[Pair]:
    """Return the links that stand out, worst kinds first; of links that one fault explains, only a few.

    If a part with several links between hosts is slow, only its fastest links are measured again: they show
    how slow it is. If they prove faster alone, its other links stand out by comparison. Within a host a
    measurement is short, so all links are measured again.
    """
    beta, rows, again = fits.column(""), fits.rows, set(fits.retested)
    suspects: list[int] = []
    explained: set[int] = set()
    for fault in fits.suspects:
        if is_single(fault) or fault.kind == "inside":
            suspects += fault.rows
            continue
        explained.update(fault.rows)
        left = sorted(set(fault.rows) - again, key=lambda row: float(beta[row]))
        suspects += left[: max(0, _LINKS_OF_A_FAULT - len(again.intersection(fault.rows)))]
    lopsided = [row for row in rows["asymmetric"] if row not in explained]
    kinds = (rows["unsound"], suspects, lopsided, rows["nonlinear"], fits.unsteady)
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
    slow = confirmed(fits.profile, fits.suspects)
    return [fits.pairs[row] for fault in slow if is_single(fault) for row in fault.rows]


def assemble(
    samples: Samples,
    places: Sequence[Place],
    *,
    library: str,
    seconds: float,
    rounds: int,
    shares: Sequence[Share] = (),
    notes: Sequence[str] = (),
    interrupted: str = "",
    host_copies: Sequence[HostCopies] = (),
    memory: Sequence[HostMemory] = (),
    instances: Instances | None = None,
    segments: Sequence[SentSegments] = (),
    topology: str = "",
) -> Profile:
    """Return the profile of the ranks at ``places``, links in the order of (src, dst).

    ``shares`` are the ports found by trials, ``notes`` further notes, ``interrupted`` the reason why the
    measurement is incomplete. An interruption is the first finding, followed by slow parts. With
    ``instances``, unmeasured links between hosts are inferred from measured links that represent them.
    """
    fits = Fits(samples, places)
    pairs, links = fits.pairs, fits.profile.links
    if instances is not None:
        links, pairs = _with_inferred(links, instances.inferred(fits.between_hosts))
        shares = [_widened(share, pairs, places) for share in shares]
    found = replace(
        fits.profile,
        links=links,
        ports=ports(pairs, places, shares),
        library=library,
        seconds=round(seconds, 3),
        rounds=rounds,
        host_copies=tuple(host_copies),
        memory=tuple(memory),
        topology=topology,
        segments=tuple(segments),
    )
    suspects = suspected(found)
    faults = confirmed(found, suspects)
    findings: list[tuple[FindingKind, str]] = [("incomplete", interrupted)] if interrupted else []
    findings += [("doubtful", text) for text in (*notes, *_doubts(fits, _links_of(faults, links)))]
    if left := {row for fault in suspects if fault not in faults for row in fault.rows}:
        text = f"{plural(len(left), 'link')} looked slow, not reported: there was no time to measure again"
        findings.append(("doubtful", text))
    found = replace(
        found,
        findings=tuple(text for _, text in findings),
        finding_kinds=tuple(kind for kind, _ in findings),
    )
    return with_faults(found, faults)


def _links_of(faults: Sequence[Fault], links: Links) -> set[Pair]:
    """Return the links that the faults explain."""
    return {(int(links.src[row]), int(links.dst[row])) for fault in faults for row in fault.rows}


def _with_inferred(links: Links, stand_in: Mapping[Pair, Pair]) -> tuple[Links, list[Pair]]:
    """Return all links in order; inferred links are copies of the links that represent them."""
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
    """Return the share with the inferred links that use it: links of its ranks, or of a trunk's hosts."""
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


def _doubts(fits: Fits, explained: Set[Pair]) -> tuple[str, ...]:
    """Return the findings about doubtful samples of links that no fault has ``explained``."""
    beta = fits.column("")
    names = Names([place.host for place in fits.places])
    back = {pair: row for row, pair in enumerate(fits.pairs)}
    way_back = floats([beta[back.get((dst, src), row)] for row, (src, dst) in enumerate(fits.pairs)])
    unsteady = np.maximum(fits.column("_median"), fits.column("_high")) / beta
    own = {
        name: [row for row in rows if fits.pairs[row] not in explained] for name, rows in fits.rows.items()
    }
    again = set(fits.retested)
    lopsided = [row for row in own["asymmetric"] if row in again]
    kinds = [
        ("slower than the way back", lopsided, beta / way_back),
        (
            "whose times do not grow evenly with size, so the bandwidth is that of whole messages",
            fits.rows["unsound"],
            beta,
        ),
    ]
    found = []
    if late := fits.rows["preempted"]:
        found.append(_preempted([fits.pairs[row] for row in late], fits.places))
    for what, rows, times in kinds:
        if rows:
            found.append(f"{plural(len(rows), 'link')} {what}: {_worst(fits, names, rows, times)}")
    if noisy := own["noisy"]:
        found.append(
            f"{plural(len(noisy), 'link')} unsteady (time of slow messages over the fastest; up to "
            f"{_NOISY:g} is normal): {_worst(fits, names, noisy, unsteady)}; measure again while nothing "
            "else runs: between hosts, a link that is named again may have a bad cable or port"
        )
    return tuple(found)


def _worst(fits: Fits, names: Names, rows: Sequence[int], times: Floats) -> str:
    """Return the names of the links ``rows``, those with the most ``times`` first."""
    worst = sorted(rows, key=lambda row: -times[row])
    return some([_times(names.link(*fits.pairs[row]), float(times[row])) for row in worst], _MOST_NAMED)


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
