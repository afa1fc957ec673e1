"""Profiling rounds over instances (AdapCC, Sec. IV-B): all NICs of a host at once, one flow per NIC.

Links within hosts come first, on all hosts at once. Then in round i host n sends to host (n + i) mod N, from
each of its NICs to one NIC there. NICs that a topology declares equal form a class. Between two hosts, each
NIC is measured with only one NIC of each class there. From round to round, a NIC gets another partner of that
class, and both NICs take turns among their ranks. C classes take C·(N − 1) rounds. If the measured flows of a
class agree, its unmeasured links get their values. If the ranks of a NIC, or the pairs of NICs of a class,
differ in speed, each is measured. A pair of hosts with an outlier is measured completely.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from probes.base import plural, some
from probes.sampling import Pair, Place, doubling_strides, strides

__all__ = ["Instances", "NicGroup", "SampleSpread"]

# Ranks that share a NIC are alike if their best flows differ by at most this factor. Pairs of NICs are alike
# if the medians of their flows differ by at most this factor.
_ALIKE = 1.15
# If a flow is slower than the slower of its two NICs by more than this factor, its pair of hosts is measured
# completely.
_STANDS_OUT = 1.25
# If a larger share of the pairs of hosts stands out, the network is built that way: its rates depend on the
# hosts, not on the NICs.
_MOST_STANDING_OUT = 0.2
# Ranks and pairs of NICs are compared only by this many flows or more.
_FEWEST = 2
# Seconds per byte, and the link that had them.
_Best = tuple[float, Pair]


@dataclass(frozen=True)
class NicGroup:
    """The ranks of a host that leave it through one NIC, and the kind of that NIC."""

    host: str
    nic: str
    kind: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class SampleSpread:
    """The disagreement within classes: links to measure in addition, ranks that differ, and notes."""

    more: tuple[Pair, ...]
    apart: frozenset[int]
    notes: tuple[str, ...]


class Instances:
    """The ranks of each host by their NIC, and the rounds between them."""

    def __init__(self, places: Sequence[Place], apart: frozenset[int] = frozenset()) -> None:
        """Group the ranks at ``places`` by NIC; each rank in ``apart`` forms a group of its own."""
        self.places = places
        self.ranks_of: dict[str, list[int]] = {}
        members: dict[tuple[str, str, str, int], list[int]] = {}
        for rank, place in enumerate(places):
            self.ranks_of.setdefault(place.host, []).append(rank)
            alone = rank if rank in apart else -1
            members.setdefault((place.host, place.nic, place.nic_kind, alone), []).append(rank)
        self.groups = [
            NicGroup(host, nic, kind, tuple(ranks)) for (host, nic, kind, _), ranks in members.items()
        ]
        self.group_of = {rank: number for number, group in enumerate(self.groups) for rank in group.ranks}
        self._at: dict[tuple[str, str], list[int]] = {}
        for number, group in enumerate(self.groups):
            self._at.setdefault((group.host, group.kind), []).append(number)
        self.kinds = sorted({group.kind for group in self.groups})

    @property
    def hosts(self) -> list[str]:
        return list(self.ranks_of)

    def rounds(self, *, quick: bool = False) -> list[list[Pair]]:
        """Return all rounds: within hosts, then between hosts; ``quick`` keeps strides 1, 2, 4, …"""
        return [*self.inside(quick=quick), *self.between(quick=quick)]

    def inside(self, *, quick: bool = False) -> list[list[Pair]]:
        """Return the rounds within hosts: round i links the n-th rank of every host to its (n + i)-th."""
        most = max(map(len, self.ranks_of.values()))
        found: list[list[Pair]] = []
        for stride in doubling_strides(most) if quick else strides(most):
            here = [ranks for ranks in self.ranks_of.values() if stride < len(ranks)]
            found.append(
                [(a, ranks[(at + stride) % len(ranks)]) for ranks in here for at, a in enumerate(ranks)]
            )
        return [pairs for pairs in found if pairs]

    def between(self, *, quick: bool = False) -> list[list[Pair]]:
        """Return the rounds between hosts: round i goes from each NIC of host n to one of (n + i) mod N."""
        count = len(self.ranks_of)
        chosen = doubling_strides(count) if quick else strides(count)
        found = [self._round(stride, turn) for stride in chosen for turn in range(len(self.kinds))]
        return [pairs for pairs in found if pairs]

    def _round(self, stride: int, turn: int) -> list[Pair]:
        """Return the flows of one stride over hosts and one shift ``turn`` over classes.

        The opposite stride has the same flows, reversed.
        """
        count = len(self.ranks_of)
        if 2 * stride > count:
            return [(b, a) for a, b in self._round(count - stride, turn)]
        hosts = self.hosts
        found: list[Pair] = []
        for at, host in enumerate(hosts):
            for number, kind in enumerate(self.kinds):
                there = hosts[(at + stride) % count], self.kinds[(number + turn) % len(self.kinds)]
                found += self._flows(self._at.get((host, kind), []), self._at.get(there, []), stride)
        return found

    def _flows(self, here: Sequence[int], there: Sequence[int], stride: int) -> Iterator[Pair]:
        """Yield one flow for each NIC, with other ranks and another shift of NICs in each round."""
        for at in range(max(len(here), len(there)) if here and there else 0):
            src = self.groups[here[at % len(here)]].ranks
            dst = self.groups[there[(at + stride - 1) % len(there)]].ranks
            # The rank that receives through a NIC is not the one that sends through it (if there are
            # several), so that the NIC carries both directions at once.
            yield src[stride % len(src)], dst[(stride + len(dst) // 2) % len(dst)]

    def spread(self, beta: Mapping[Pair, float]) -> SampleSpread:
        """Check whether flows of one class agree (``beta``: s/byte of measured links); return the spread."""
        flows = {pair: value for pair, value in beta.items() if not self._within(pair)}
        if not flows:
            return SampleSpread((), frozenset(), ())
        times = self._times(flows)
        apart, notes = self._uneven_ranks(times)
        more = [pair for rank in sorted(apart) for pair in self._of_rank(rank)]
        shifts = self._uneven_shifts(times)
        if shifts:
            notes.append(
                f"pairs of NICs declared alike differ by up to {max(shifts.values()):.2f} times: "
                "each is measured"
            )
            more += [pair for a, b in product(self.hosts, repeat=2) if a != b for pair in self._every(a, b)]
        else:
            more += self._standing_out(times, apart)
        return SampleSpread(
            tuple(pair for pair in dict.fromkeys(more) if pair not in beta), frozenset(apart), tuple(notes)
        )

    def inferred(self, beta: Mapping[Pair, float]) -> dict[Pair, Pair]:
        """Map each unmeasured link between hosts to the measured one that represents it.

        If flows between the link's two NICs are measured, the middle one represents the link. Otherwise the
        link's cost is estimated, and a measured link with a cost near the estimate represents it. The cost of
        a NIC is the cost of its best flow with the class of the other NIC. The estimate is the larger cost of
        the two NICs, times a factor for the path between the hosts. This factor is the smallest by which a
        measured flow between the hosts is slower than its NICs.
        """
        flows = {pair: value for pair, value in beta.items() if not self._within(pair)}
        sender, receiver = self._ends(flows)
        direct: dict[tuple[int, int], list[Pair]] = {}
        hosts: dict[tuple[str, str], list[Pair]] = {}
        way: dict[tuple[str, str], float] = {}
        for pair, value in flows.items():
            src, dst = (self.group_of[rank] for rank in pair)
            a, b = self.groups[src], self.groups[dst]
            direct.setdefault((src, dst), []).append(pair)
            hosts.setdefault((a.host, b.host), []).append(pair)
            times = value / max(sender[src, b.kind][0], receiver[a.kind, dst][0])
            way[a.host, b.host] = min(way.get((a.host, b.host), times), times)

        def stands_for(src: int, dst: int) -> Pair | None:
            a, b = self.groups[src], self.groups[dst]
            if found := direct.get((src, dst)):
                return _middle(found, beta)
            between = hosts.get((a.host, b.host))
            ends = [end for end in (sender.get((src, b.kind)), receiver.get((a.kind, dst))) if end]
            if between is None or not ends:
                return None if between is None else _middle(between, beta)
            target = max(cost for cost, _ in ends) * way[a.host, b.host]
            return min([*between, *(pair for _, pair in ends)], key=lambda pair: abs(beta[pair] - target))

        made = {}
        for src, dst in product(range(len(self.groups)), repeat=2):
            a, b = self.groups[src], self.groups[dst]
            if a.host != b.host and (chosen := stands_for(src, dst)) is not None:
                made.update({pair: chosen for pair in product(a.ranks, b.ranks) if pair not in beta})
        return made

    def _within(self, pair: Pair) -> bool:
        return self.places[pair[0]].host == self.places[pair[1]].host

    def _times(self, flows: Mapping[Pair, float]) -> dict[Pair, float]:
        """Return the factor by which each flow is slower than the slower of its two NICs."""
        sender, receiver = self._ends(flows)
        found = {}
        for pair, value in flows.items():
            src, dst = (self.group_of[rank] for rank in pair)
            ends = sender[src, self.groups[dst].kind], receiver[self.groups[src].kind, dst]
            found[pair] = value / max(cost for cost, _ in ends)
        return found

    def _ends(
        self, flows: Mapping[Pair, float]
    ) -> tuple[dict[tuple[int, str], _Best], dict[tuple[str, int], _Best]]:
        """Return the best flow of each NIC that sends to a class, and of each that receives from one."""
        sender: dict[tuple[int, str], _Best] = {}
        receiver: dict[tuple[str, int], _Best] = {}
        for pair, value in flows.items():
            src, dst = (self.group_of[rank] for rank in pair)
            out, into = (src, self.groups[dst].kind), (self.groups[src].kind, dst)
            sender[out] = min(sender.get(out, (value, pair)), (value, pair))
            receiver[into] = min(receiver.get(into, (value, pair)), (value, pair))
        return sender, receiver

    def _uneven_ranks(self, times: Mapping[Pair, float]) -> tuple[set[int], list[str]]:
        """Return the ranks of NICs whose ranks differ in speed, and notes on them."""
        seen: dict[tuple[int, int], list[float]] = {}
        for pair, value in times.items():
            for end in (0, 1):
                seen.setdefault((pair[end], end), []).append(value)
        found: set[int] = set()
        notes = []
        for group in (one for one in self.groups if len(one.ranks) > 1):
            for end in (0, 1):
                enough = [
                    seen[rank, end] for rank in group.ranks if len(seen.get((rank, end), ())) >= _FEWEST
                ]
                # The best flow counts, because a slow path to one host says nothing about the rank.
                best = sorted(min(values) for values in enough)
                if best and best[-1] > _ALIKE * best[0]:
                    found.update(group.ranks)
                    way = "sends" if end == 0 else "receives"
                    notes.append(
                        f"ranks {some(list(map(str, group.ranks)), 8)} of {group.host} share one NIC as "
                        f"declared, but one {way} {best[-1] / best[0]:.2f} times slower than "
                        "another: each is measured"
                    )
        return found, notes

    def _uneven_shifts(self, times: Mapping[Pair, float]) -> dict[int, float]:
        """Return the factor by which each slow shift from NIC to NIC is slower than the fastest shift."""
        seen: dict[int, list[float]] = {}
        for pair, value in times.items():
            src, dst = (self.groups[self.group_of[rank]] for rank in pair)
            here, there = self._at[src.host, src.kind], self._at[dst.host, dst.kind]
            if src.kind == dst.kind and len(here) == len(there) > 1:
                shift = (there.index(self.group_of[pair[1]]) - here.index(self.group_of[pair[0]])) % len(here)
                seen.setdefault(shift, []).append(value)
        middle = {
            shift: statistics.median_low(values) for shift, values in seen.items() if len(values) >= _FEWEST
        }
        least = min(middle.values(), default=1.0)
        return {shift: value / least for shift, value in middle.items() if value > _ALIKE * least}

    def _standing_out(self, times: Mapping[Pair, float], apart: set[int]) -> list[Pair]:
        """Return all NIC pairs of two hosts with a slow flow; none if too many hosts have a slow flow."""
        slow = [pair for pair, value in times.items() if value > _STANDS_OUT and not apart.intersection(pair)]
        between = {(self.places[src].host, self.places[dst].host) for src, dst in slow}
        pairs = len(self.hosts) * (len(self.hosts) - 1)
        if len(between) > max(1, _MOST_STANDING_OUT * pairs):
            return []
        return [pair for a, b in sorted(between) for pair in self._every(a, b)]

    def _of_rank(self, rank: int) -> Iterator[Pair]:
        """Yield a rank with one rank of each NIC of every other host, in both directions."""
        for group in self.groups:
            if group.host != self.places[rank].host:
                yield rank, group.ranks[rank % len(group.ranks)]
                yield group.ranks[rank % len(group.ranks)], rank

    def _every(self, here: str, there: str) -> Iterator[Pair]:
        """Yield a link from each NIC of one host to each of the other."""
        ours = [group for group in self.groups if group.host == here]
        theirs = [group for group in self.groups if group.host == there]
        for (i, a), (j, b) in product(enumerate(ours), enumerate(theirs)):
            yield a.ranks[(i + j) % len(a.ranks)], b.ranks[(i + j + 1) % len(b.ranks)]

    def classes(self) -> str:
        """Return the numbers of NICs and of classes, in words."""
        words = "class" if len(self.kinds) == 1 else "classes"
        return f"{plural(len(self.groups), 'NIC')} in {len(self.kinds)} {words}"


def _middle(pairs: Sequence[Pair], beta: Mapping[Pair, float]) -> Pair:
    return sorted(pairs, key=beta.__getitem__)[len(pairs) // 2]
