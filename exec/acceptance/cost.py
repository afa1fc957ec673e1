"""The price of faults: the time of a collective with and without each, and the best hosts to keep."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np

from exec.acceptance.certificate import FaultCost, Spares
from exec.acceptance.network_bought import repaired, without_hosts
from exec.acceptance.simple_algorithms import AlgorithmModel, host_order, simulated_s
from probes.base import Indices, UsageError, plural
from probes.localization import Fault
from synth.collective import Kind
from synth.errors import NotApplicableError
from synth.network import Network

__all__ = ["collective_time_s", "costs", "spares"]

# Seconds of a replay on one core: 0.4 at 256 ranks, 2.4 at 512; of an all_to_all, 0.2 at 128
# and 5 at 256. Estimates at 512 ranks take 0.03 s.
_MOST_REPLAYED = 256
_MOST_REPLAYED_ALL_TO_ALL = 128
# All sets of hosts are tried if there are at most so many, times ranks: an estimate takes 2 ms at 64 ranks,
# so this is about two seconds.
_MOST_TRIED = 1 << 16
# Hosts are exchanged for others until nothing improves, at most so many times for each host left out.
_MOST_EXCHANGES = 4
# An exchange of hosts that gains less is within the error of the estimates.
_LEAST_GAIN = 1e-3
# Of the sets with the best estimates, so many are replayed, divided by the ranks: 16 at 64 ranks, in about a
# second. Sets whose estimates are this many times the best are not.
_MOST_REPLAYED_RANKS = 1 << 10
_MOST_OFF = 1.5
# Among more hosts, only so many of the slowest may be left out, besides those at fault and those asked for.
_MOST_CANDIDATES = 32
# Differences below this share are rounding.
_EQUAL = 1e-9


def collective_time_s(network: Network, kind: Kind, size_bytes: int) -> float:
    """Return the time of a collective by the best of the simple published algorithms.

    Algorithms are replayed in the simulator, send by send, on up to 256 ranks (all_to_all: 128), otherwise
    estimated (`AlgorithmModel`). Raises NotApplicableError if the network lacks links of every algorithm.
    """
    if network.ranks < 2:
        return 0.0
    if network.ranks <= (_MOST_REPLAYED_ALL_TO_ALL if kind == "all_to_all" else _MOST_REPLAYED):
        return simulated_s(network, kind, size_bytes)
    order = np.array(host_order(network.hosts))
    return AlgorithmModel(network).estimates(kind, size_bytes, order)[0].time_s


def costs(
    network: Network,
    sound: Network,
    faults: Sequence[Fault],
    kind: Kind,
    size_bytes: int,
    *,
    alone: bool = False,
) -> tuple[FaultCost, ...]:
    """Return what each fault costs a collective: its time now, and with only this fault repaired.

    ``network`` is the measured one, ``sound`` the same links at their normal costs. Where two faults are
    equally bad, repairing one of them gains nothing. With ``alone`` all other faults are repaired first, so
    that each has the cost that it would have by itself.
    """
    found = []
    for at, fault in enumerate(faults):
        others = (*faults[:at], *faults[at + 1 :])
        before = network
        if alone:
            for number, other in enumerate(others):
                before = repaired(before, sound, other, (fault, *others[number + 1 :]))
        mended = repaired(before, sound, fault, () if alone else others)
        with_s = collective_time_s(before, kind, size_bytes)
        # A list schedule may take longer on a faster network (Graham); a repair never costs time.
        without_s = min(with_s, collective_time_s(mended, kind, size_bytes))
        found.append(FaultCost(kind, size_bytes, with_s, without_s))
    return tuple(found)


def spares(
    network: Network,
    sound: Network,
    faults: Sequence[Fault],
    count: int,
    kind: Kind = "all_reduce",
    size_bytes: int = 1 << 28,
) -> Spares:
    """Return the best hosts to keep if ``count`` are spared, and the time that a collective then takes.

    All sets are tried if there are few. Otherwise the host whose absence gains most is left out, ``count``
    times, and then hosts are exchanged while that gains. The search estimates times; the sets that it finds
    best are replayed. Among equally good hosts those that ``faults`` name go first, then the last ones. The
    time of a sound cluster is that of ``sound`` without the same hosts.

    Raises UsageError unless two ranks or more are left, and NotApplicableError if every choice lacks links of
    every algorithm.
    """
    hosts = list(dict.fromkeys(network.hosts))
    if not 0 <= count < len(hosts):
        raise UsageError(f"expected fewer spares than the {plural(len(hosts), 'host')}, found {count}")
    left_out = _Search(network, faults, kind, size_bytes).best(count)
    kept = without_hosts(network, left_out) if left_out else network
    whole = without_hosts(sound, left_out) if left_out else sound
    return Spares(
        kept=len(hosts) - count,
        left_out=left_out,
        collective=kind,
        size_bytes=size_bytes,
        time_s=collective_time_s(kept, kind, size_bytes),
        sound_s=collective_time_s(whole, kind, size_bytes),
    )


# Time, strain, hosts that no fault names: less is better.
_Score = tuple[float, float, int]


class _Search:
    """The search for the hosts to leave out, on estimates."""

    def __init__(self, network: Network, faults: Iterable[Fault], kind: Kind, size_bytes: int) -> None:
        self._network = network
        self._model = AlgorithmModel(network)
        self._kind, self._size_bytes = kind, size_bytes
        self._order = np.array(host_order(network.hosts))
        # Of equally good hosts the first in this list is left out.
        self._hosts = list(dict.fromkeys(network.hosts))[::-1]
        named = {word for fault in faults for part in fault.parts for word in (part, part.partition(" ")[0])}
        self._named = named.intersection(self._hosts)
        self._scores: dict[frozenset[str], _Score] = {}

    def best(self, count: int) -> tuple[str, ...]:
        """Return the hosts to leave out, in the order of the network."""
        if math.comb(len(self._hosts), count) * self._network.ranks <= _MOST_TRIED:
            for each in combinations(self._hosts, count):
                self._score(frozenset(each))
        else:
            self._exchanged(self._greedy(count))
        found = self._replayed([each for each in self._scores if len(each) == count] or [frozenset()])
        return tuple(host for host in reversed(self._hosts) if host in found)

    def _replayed(self, tried: list[frozenset[str]]) -> frozenset[str]:
        """Return the best of ``tried``: of those with the best estimates, the one with the fastest replay."""
        finalists = sorted(tried, key=self._score)[: max(1, _MOST_REPLAYED_RANKS // self._network.ranks)]
        slowest_s = self._score(finalists[0])[0] * _MOST_OFF
        close = [each for each in finalists if self._score(each)[0] <= slowest_s]
        if len(close) == 1 or math.isinf(slowest_s):
            return close[0]

        def replayed(left_out: frozenset[str]) -> tuple[float, _Score]:
            kept = without_hosts(self._network, left_out)
            return _rounded(collective_time_s(kept, self._kind, self._size_bytes)), self._score(left_out)

        return min(close, key=replayed)

    def _greedy(self, count: int) -> frozenset[str]:
        found: frozenset[str] = frozenset()
        for _ in range(count):
            more = [found | {host} for host in self._candidates(count) if host not in found]
            found = min(more, key=self._score)
        return found

    def _exchanged(self, found: frozenset[str]) -> None:
        for _ in range(_MOST_EXCHANGES * len(found)):
            others = [
                found - {out} | {host}
                for out in found
                for host in self._candidates(len(found))
                if host not in found
            ]
            better = min(others, key=self._score, default=found)
            if self._score(better)[0] >= self._score(found)[0] * (1 - _LEAST_GAIN):
                break
            found = better

    def _candidates(self, count: int) -> list[str]:
        """Return the hosts that may be left out: all, or those at fault and the slowest."""
        most = _MOST_CANDIDATES + count
        if len(self._hosts) <= most:
            return self._hosts
        slow = dict(zip(self._hosts, self._slowness(), strict=True))
        slowest = set(sorted(self._hosts, key=lambda host: -slow[host])[:most])
        return [host for host in self._hosts if host in slowest or host in self._named]

    def _slowness(self) -> list[float]:
        """Return for each host the sum of the squared costs of its links to other hosts."""
        network = self._network
        beta = network.beta_s_per_byte / network.beta_s_per_byte.max()
        weight = np.where(network.within_host, 0.0, beta**2)
        of_rank = np.bincount(network.src, weight, network.ranks) + np.bincount(
            network.dst, weight, network.ranks
        )
        found = dict.fromkeys(self._hosts, 0.0)
        for rank, host in enumerate(network.hosts):
            found[host] += float(of_rank[rank])
        return list(found.values())

    def _score(self, left_out: frozenset[str]) -> _Score:
        if left_out not in self._scores:
            self._scores[left_out] = self._scored(left_out)
        return self._scores[left_out]

    def _scored(self, left_out: frozenset[str]) -> _Score:
        unnamed = len(left_out - self._named)
        try:
            best = self._model.estimates(self._kind, self._size_bytes, self._kept(left_out))[0]
        except NotApplicableError:
            return math.inf, math.inf, unnamed
        return _rounded(best.time_s), _rounded(best.strain_s), unnamed

    def _kept(self, left_out: frozenset[str]) -> Indices:
        return np.array([rank for rank in self._order.tolist() if self._network.hosts[rank] not in left_out])


def _rounded(time_s: float) -> float:
    """Return a time without the digits in which sums of the same numbers differ."""
    return float(f"{time_s:.{-round(math.log10(_EQUAL))}g}")
