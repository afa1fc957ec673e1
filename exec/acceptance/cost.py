"""The price of faults: the time of a collective with and without each, and the best hosts to keep."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

import numpy as np

from exec.acceptance.certificate import FaultCost, Spares
from exec.acceptance.library_time import library_models
from exec.acceptance.network_bought import repaired, without_hosts
from exec.acceptance.simple_algorithms import AlgorithmModel, fastest_schedule, host_order, simulated_s
from exec.program import Layout, count_of
from probes.base import Indices, UsageError, plural
from probes.localization import Fault
from synth.collective import Kind
from synth.compiler import lower
from synth.errors import NotApplicableError
from synth.network import Network
from synth.prediction import predicted_s
from synth.program import Program
from synth.schedules import Selection

__all__ = ["collective_time_s", "costs", "spares"]

# The most ranks on which a collective is replayed; with more, its time is estimated. A replay on one core
# takes 0.4 s at 256 ranks and 2.4 s at 512. A replay of an all_to_all takes 0.2 s at 128 ranks and 5 s at
# 256. Estimates at 512 ranks take 0.03 s.
_MOST_REPLAYED = 256
_MOST_REPLAYED_ALL_TO_ALL = 128
# The most ranks on which simple algorithms are predicted as programs: 64 ranks take about a second.
_MOST_PREDICTED = 64
# The bytes of an element, as float32 is benchmarked.
_ITEM_BYTES = 4
# All sets of hosts are tried if their number times the number of ranks is at most this. An estimate takes 2
# ms at 64 ranks, so trying all sets takes about two seconds there.
_MOST_TRIED = 1 << 16
# The search exchanges hosts until nothing improves. It makes at most this many exchanges for each host left
# out.
_MOST_EXCHANGES = 4
# The least share of the estimated time that an exchange of hosts must gain; a smaller gain is within the
# error of the estimates.
_LEAST_GAIN = 1e-3
# The number of sets of hosts to replay is ``_MOST_REPLAYED_RANKS`` divided by the number of ranks. At 64
# ranks the 16 sets with the best estimates are replayed in about a second. A set whose estimate exceeds
# ``_MOST_OFF`` times the best is not replayed.
_MOST_REPLAYED_RANKS = 1 << 10
_MOST_OFF = 1.5
# The search considers this many of the slowest hosts plus as many as are to be left out, and all hosts that
# faults name.
_MOST_CANDIDATES = 32
# The ratio of a schedule's measured to its predicted time, to the power of this, corrects the prediction of
# another schedule. One part of the error comes from the hosts and is common to both, the other comes from the
# schedule. In three labs (benchmarks/accept_cost.py) the predicted time after the repair was 1.14 to 1.41
# times the measured one with the exponent 1, 0.76 to 1.07 times with 0, and 1.00 to 1.13 times with 0.5.
_SHARED_ERROR = 0.5


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
    selection: Selection | None = None,
    measured_s: float | None = None,
    library: str = "",
) -> tuple[FaultCost, ...]:
    """Return what each fault costs a collective: its time now, and with only this fault repaired.

    ``network`` is the measured network, ``sound`` the same links at their normal costs. Where two faults are
    equally bad, repairing one of them gains nothing. With ``alone`` all other faults are repaired first, so
    that each has the cost that it would have by itself. Times are those of the schedule that ``selection``
    has for the size, as `synth.prediction` predicts its run. After a repair, the best simple algorithm counts
    if it takes less. Without a selection, all times are those of the best simple algorithm. With ``library``,
    all times are those of the algorithm that this library chooses (`library_models`).

    ``measured_s`` is the measured time on ``network``. It replaces the predicted time, and the ratio of the
    two also corrects the time of the same algorithm after the repair.
    """
    prices = _Prices(kind, size_bytes, selection, network.ranks)
    if library:
        prices = _LibraryPrices(kind, size_bytes, library, network, measured_s)
    measured_s = measured_s if library or prices.algorithm else None
    scale = measured_s / prices.now_s(network) if measured_s else 1.0
    found = []
    for at, fault in enumerate(faults):
        others = (*faults[:at], *faults[at + 1 :])
        before = network
        if alone:
            for number, other in enumerate(others):
                before = repaired(before, sound, other, (fault, *others[number + 1 :]))
        mended = repaired(before, sound, fault, () if alone else others)
        with_s = scale * prices.now_s(before)
        # A list schedule may take longer on a faster network (Graham's anomaly), so the time after the repair
        # is capped at the time before it.
        without_s = min(with_s, prices.repaired_s(mended, scale))
        found.append(
            FaultCost(
                kind, size_bytes, with_s, without_s, prices.algorithm, library, measured=bool(measured_s)
            )
        )
    return tuple(found)


class _Prices:
    """The time of a collective on several networks, by the schedule that runs or by simple algorithms."""

    def __init__(self, kind: Kind, size_bytes: int, selection: Selection | None, ranks: int) -> None:
        self._kind, self._size_bytes, self._program = kind, size_bytes, None
        self.algorithm = ""
        if selection is not None and (selection.whole.kind, selection.whole.ranks) == (kind, ranks):
            schedule = selection.choose(size_bytes)
            self.algorithm, self._program = schedule.method, lower(schedule)

    def now_s(self, network: Network) -> float:
        """Return the time of the schedule that runs now, or else of the best simple algorithm."""
        if self._program is None:
            return collective_time_s(network, self._kind, self._size_bytes)
        return _predicted_s(self._program, network, self._size_bytes)

    def repaired_s(self, network: Network, scale: float) -> float:
        """Return the time on a repaired network, by the best simple algorithm if it is faster there.

        ``scale`` is the ratio of the measured to the predicted time of the schedule that runs.
        """
        predicted_same_s = self.now_s(network)
        same_s = scale * predicted_same_s
        if self._program is None or network.ranks > _MOST_PREDICTED:
            return same_s
        simple = fastest_schedule(network, self._kind, self._size_bytes)
        simple_s = _predicted_s(lower(simple), simple.network, self._size_bytes)
        # A simple algorithm that is slower by the model does not count: only the smaller correction could
        # make it win.
        return min(same_s, scale**_SHARED_ERROR * simple_s) if simple_s < predicted_same_s else same_s


class _LibraryPrices(_Prices):
    """The time of a library's collective, by the model that comes closest to its measured time."""

    def __init__(
        self, kind: Kind, size_bytes: int, library: str, network: Network, measured_s: float | None
    ) -> None:
        super().__init__(kind, size_bytes, None, network.ranks)
        self._time_s: Callable[[Network], float] = super().now_s
        models = library_models(library, kind, size_bytes, network.ranks)
        times_s = [(model, model(network)) for model in models]
        times_s = [(model, time_s) for model, time_s in times_s if 0 < time_s < math.inf]
        if times_s:
            wanted_s = measured_s or times_s[0][1]
            self._time_s, _ = min(times_s, key=lambda one: abs(math.log(one[1] / wanted_s)))
            self.algorithm = "rabenseifner"

    def now_s(self, network: Network) -> float:
        return self._time_s(network)


def _predicted_s(program: Program, network: Network, size_bytes: int) -> float:
    count = count_of(program.collective, size_bytes, _ITEM_BYTES)
    return predicted_s(program, network, Layout(program, count).largest * _ITEM_BYTES)


def spares(
    network: Network,
    sound: Network,
    faults: Sequence[Fault],
    count: int,
    kind: Kind = "all_reduce",
    size_bytes: int = 1 << 28,
) -> Spares:
    """Return the best ``count`` hosts to leave out, and the time that a collective then takes.

    All sets of hosts are tried if there are few. Otherwise the host whose removal gains most is left out,
    ``count`` times over, and then hosts are exchanged as long as that gains. The search estimates times, and
    replays the sets with the best estimates. Among equally good hosts, those that ``faults`` name are left
    out first, then those last in the network. ``sound_s`` of the result is the time on ``sound`` without the
    same hosts.

    Raises UsageError if fewer than two ranks are left, and NotApplicableError if every choice lacks links of
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


# The score of a set of hosts to leave out, less is better: the time and the strain (`Estimate`) without these
# hosts, and how many of them no fault names.
_Score = tuple[float, float, int]


class _Search:
    """The search for the hosts to leave out, on estimates."""

    def __init__(self, network: Network, faults: Iterable[Fault], kind: Kind, size_bytes: int) -> None:
        self._network = network
        self._model = AlgorithmModel(network)
        self._kind, self._size_bytes = kind, size_bytes
        self._order = np.array(host_order(network.hosts))
        # The first of equally good hosts in this list is left out.
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
        """Replay the sets of ``tried`` with the best estimates; return the fastest of them."""
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
    """Return the time to nine digits; beyond them, sums differ with the order of additions."""
    return float(f"{time_s:.9g}")
