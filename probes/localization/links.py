"""The measured links of a profile as columns, with the hosts, NICs and ranks at their ends as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probes.base import Floats, Indices, Ints, Mask, floats, ints
from probes.link_costs import Links, Profile

__all__ = ["Ends", "LinkTable", "ends_of", "tables_of"]

# Latencies below this (s) are raised to it, because 0 has no logarithm. No link of any machine takes less
# than a nanosecond.
_LEAST_ALPHA_S = 1e-9
# The least jitter (a logarithm) of a link if an end waited for a core in every measurement: its best latency
# may be twice the true one. The jitter of such a link counts double, because its best round trip may have
# waited, too.
_WAITED = float(np.log(2.0))
# Links of over three times the nearest link's latency are distant (a logarithm).
_DISTANT = float(np.log(3.0))
# A link with this many samples was measured in several passes: each pass takes one or two of them.
_OFTEN = 6


@dataclass(frozen=True, eq=False)
class Ends:
    """The ranks of a profile, each with the number of its host, of its NIC, and its position in its host.

    If the ranks of a host name no NICs, they count as sharing one NIC.
    """

    host: Ints
    nic: Ints
    slot: Ints
    host_names: tuple[str, ...]
    nic_names: tuple[str, ...]
    rank_names: tuple[str, ...]

    @property
    def has_nics(self) -> bool:
        """Whether some host has several NICs."""
        return len(self.nic_names) > len(self.host_names)

    @property
    def has_ranks(self) -> bool:
        """Whether some NIC serves several ranks."""
        return len(self.rank_names) > len(self.nic_names)


@dataclass(frozen=True, eq=False)
class LinkTable:
    """Links as columns: the ranks at both ends, the row in the profile, and what was measured.

    ``rate`` and ``alpha`` are natural logarithms of bytes/s and seconds. ``wander`` is log(median / best time
    per byte), ``late`` is log(90th percentile / best time per byte), and ``jitter`` is log(median / best
    latency), raised if an end of the link waited for a core in every measurement. ``width`` is the standard
    error of ``rate`` from the bootstrap interval. ``again`` masks links that were measured again, alone, and
    ``often`` those with samples of several passes. ``whole`` masks links whose rate is the rate of whole
    transfers, including their latency. An end waited for a core in every latency measurement of ``waited``
    links, and in every rate measurement of ``starved`` ones.
    """

    ends: Ends
    src: Ints
    dst: Ints
    row: Ints
    rate: Floats
    alpha: Floats
    jitter: Floats
    wander: Floats
    late: Floats
    width: Floats
    again: Mask
    often: Mask
    whole: Mask
    waited: Mask
    starved: Mask

    def __len__(self) -> int:
        return len(self.src)

    def at(self, rows: Indices) -> LinkTable:
        """Return the links of these rows of the table."""
        columns = (name for name in self.__dataclass_fields__ if name != "ends")
        return LinkTable(self.ends, *(getattr(self, name)[rows] for name in columns))

    @cached_property
    def usual_wander(self) -> float:
        return float(np.median(self.wander))

    @cached_property
    def usual_late(self) -> float:
        return float(np.median(self.late))

    @cached_property
    def distant(self) -> Mask:
        """The links with over three times the latency of the nearest link; their rates vary more."""
        far: Mask = self.alpha > self.alpha.min(initial=np.inf) + _DISTANT
        return far

    @cached_property
    def src_host(self) -> Ints:
        return self.ends.host[self.src]

    @cached_property
    def dst_host(self) -> Ints:
        return self.ends.host[self.dst]


def ends_of(profile: Profile) -> Ends:
    """Return the ends of a profile's links."""
    hosts: dict[str, int] = {}
    nics: dict[tuple[str, str], int] = {}
    counts: dict[str, int] = {}
    host, nic, slot = [], [], []
    for rank in profile.ranks:
        host.append(hosts.setdefault(rank.host, len(hosts)))
        nic.append(nics.setdefault((rank.host, rank.nic), len(nics)))
        slot.append(counts.get(rank.host, 0))
        counts[rank.host] = slot[-1] + 1
    several = {name for name in hosts if sum(where == name for where, _ in nics) > 1}
    return Ends(
        host=ints(host),
        nic=ints(nic),
        slot=ints(slot),
        host_names=tuple(hosts),
        nic_names=tuple(f"{where} {name}".strip() if where in several else where for where, name in nics),
        rank_names=tuple(
            f"{one.host} rank {one.rank}" if counts[one.host] > 1 else one.host for one in profile.ranks
        ),
    )


def tables_of(profile: Profile, *, every: bool = False) -> tuple[LinkTable, LinkTable]:
    """Return the links between hosts, and those inside hosts.

    Links that were inferred from others add no evidence, and are left out unless ``every``.
    """
    ends, links = ends_of(profile), profile.links
    alpha = np.log(np.maximum(links.alpha_s, _LEAST_ALPHA_S))
    jitter = np.log(np.maximum(links.alpha_median_s, _LEAST_ALPHA_S)) - alpha
    waited = _flagged(links, "preempted")
    jitter[waited] = np.maximum(2 * jitter[waited], _WAITED)
    measured = every | ~_flagged(links, "inferred")
    inside = ends.host[links.src] == ends.host[links.dst]
    best = links.beta_s_per_byte
    columns = {
        "rate": -np.log(best),
        "alpha": alpha,
        "jitter": jitter,
        "wander": np.log(np.maximum(links.beta_median_s_per_byte, best) / best),
        "late": np.log(np.maximum(links.beta_p90_s_per_byte, best) / best),
        # A 95 % interval of normal values is 3.92 standard deviations wide.
        "width": np.log(
            np.maximum(links.beta_high_s_per_byte, best) / np.minimum(links.beta_low_s_per_byte, best)
        )
        / 3.92,
    }
    again, whole, starved = (_flagged(links, word) for word in ("retested", "unsound", "starved"))
    between, within = (
        LinkTable(
            ends,
            ints(links.src[rows]),
            ints(links.dst[rows]),
            ints(rows),
            **{name: floats(values[rows]) for name, values in columns.items()},
            again=again[rows],
            often=links.samples[rows] >= _OFTEN,
            whole=whole[rows],
            waited=waited[rows],
            starved=starved[rows],
        )
        for rows in (np.flatnonzero(measured & ~inside), np.flatnonzero(measured & inside))
    )
    return between, within


def _flagged(links: Links, word: str) -> Mask:
    """Return the mask of rows with a flag, without splitting strings if no row has it."""
    if any(word in words for words in set(links.flags)):
        return links.flagged(word)
    return np.zeros(len(links.src), dtype=np.bool_)
