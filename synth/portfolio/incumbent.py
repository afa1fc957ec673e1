"""The incumbent: the best schedule so far, which attempts it makes pointless, and why it won."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synth.collective import ROOTED
from synth.portfolio.attempts import Plan, deliveries, least_sends
from synth.prediction import is_clearly_sooner, schedule_run_s
from synth.schedules import Schedule
from synth.streams import busiest_s_per_byte

__all__ = ["Attempt", "Incumbent"]

# Every send costs its ranks some time that alpha does not include, so a schedule with twice the sends must
# be 0.8 % faster. If the best is farther from the bound than the factor _FAR, 0.5 % is enough for a schedule
# of at most _FEW_SENDS.
_FINER_MUST_GAIN = 0.008
_NOTICEABLE = 0.005
_FAR = 1 / 0.97
_FEW_SENDS = 2_200_000
# Once the best time is within the factor _NEAR of the bound, attempts with more than _LONG_DELIVERIES
# (arrivals of a chunk at a rank) are skipped.
_NEAR = 1.005
_LONG_DELIVERIES = 50_000
# Methods that construct schedules without a search. From _MANY_RANKS ranks on, if such a schedule is within
# the factor _NEAR_OF_MANY of the bound, other methods come no nearer and take minutes
# (benchmarks/one_slow_rank.py, benchmarks/scale.py). From _SOME_RANKS ranks on, the factor is _NEAR_OF_SOME.
_BUILT = ("circulant", "stars")
_MANY_RANKS, _SOME_RANKS = 128, 32
_NEAR_OF_MANY, _NEAR_OF_SOME = 1.03, 1.015
# A policy of the greedy search that was slower than the best by the factor _HOPELESS is not tried with finer
# chunks. If chunks do not all leave or enter one root, neither is one that was slower by _SLOWER than another
# policy with as many chunks: in 673 cells none of these won.
_HOPELESS, _SLOWER = 1.2, 1.05
# Finer chunks may beat the extrapolation from coarser ones by up to this factor.
_BEYOND = 1.05
# After four chunk sizes, an exchange is tried with smaller chunks only if the times of the last two sizes
# extrapolate to at least 2 % below the best time.
_EXCHANGE_MUST_GAIN, _FORETELLING_EXCHANGES = 0.02, 4
# After this many chunk sizes, the times of the last two are extrapolated: each further size packs new trees.
_FORETELLING_FORESTS = 3
# With fewer chunks, rounding their division among trees loads links too unevenly to extrapolate.
_CHUNKS_IN_SHARES = 32
# Times closer than this are reported as equal.
_ALIKE = 5e-5


@dataclass(frozen=True)
class Attempt:
    """One schedule that was tried, or the reason why there is none.

    ``made_by`` is the method that the schedule names; it may differ from the requested ``method``.
    """

    method: str
    chunks: int
    time_s: float | None
    reason: str = ""
    sends: int = 0
    made_by: str = ""

    @property
    def maker(self) -> str:
        return self.made_by or self.method


class Incumbent:
    """The best schedule so far; it depends only on the schedules taken and their order.

    ``target_s`` is the bound. With ``predicted``, the predicted time of the run decides in the end; because
    the bound counts links only, reaching it then does not by itself end the search. Without
    ``over_links``, another schedule than the fastest over links may be kept.
    """

    def __init__(self, target_s: float, *, predicted: bool = False, over_links: bool = True) -> None:
        self.target_s = target_s
        self._predicted = predicted
        self._over_links = over_links
        # The last schedule for which ``_is_bound_decisive`` was computed, and the answer.
        self._decisive: tuple[Schedule, bool] | None = None
        self.best: Schedule | None = None
        self.best_s = float("inf")
        self.attempts: list[Attempt] = []
        # For each policy of the greedy search: its last number of chunks, and its time over the best time.
        self._slower: dict[int, tuple[int, float]] = {}
        # The times of the greedy search by number of chunks and policy, where policies are compared.
        self._policy_s: dict[int, dict[int, float]] = {}
        self._least_busy_s = float("inf")

    @property
    def ratio(self) -> float:
        """The time of the best schedule, as a multiple of the bound."""
        return self.best_s / self.target_s if self.target_s else 1.0

    @property
    def optimal(self) -> bool:
        return self.best_s <= self.target_s * (1 + 1e-9)

    @property
    def unbeatable(self) -> bool:
        """Whether no other schedule can be faster in the model that decides: links, or the predicted run."""
        return self.optimal and self._is_bound_decisive()

    def _is_bound_decisive(self) -> bool:
        """Return whether the predicted run of the best schedule also comes near the bound.

        Bounds count links only, so they say little about ranks that share the memory of a host.
        """
        # A single rank has no links.
        if not self._predicted or self.best is None or not self.best.sends:
            return True
        if self._decisive is None or self._decisive[0] is not self.best:
            network = self.best.network
            near = not network.is_measured_host and not is_clearly_sooner(
                self.target_s, schedule_run_s(self.best)
            )
            self._decisive = self.best, near
        return self._decisive[1]

    def take(self, plan: Plan, schedule: Schedule, time_s: float) -> None:
        self.attempts.append(
            Attempt(plan.name, plan.shape.chunks, time_s, "", schedule.sends, schedule.method)
        )
        if plan.name == "greedy":
            # A single rank takes no time: avoid 0 / 0.
            slower = time_s / (self._comparable_s(plan.shape.chunks) or time_s or 1.0)
            self._slower[plan.variant] = (plan.shape.chunks, slower)
            one_root = not plan.shape.whole or plan.shape.kind in ROOTED
            if self._over_links and not one_root and "centres" not in plan.options:
                self._policy_s.setdefault(plan.shape.chunks, {})[plan.variant] = time_s
        if plan.name == "forest" and plan.shape.chunks >= _CHUNKS_IN_SHARES:
            busy_s = busiest_s_per_byte(schedule) * schedule.chunk_bytes
            self._least_busy_s = min(self._least_busy_s, busy_s)
        if time_s < self.best_s * (1 - self._least_gain(schedule.sends)):
            self.best, self.best_s = schedule, time_s

    def _comparable_s(self, chunks: int) -> float:
        """Return the best time so far, leaving out symmetric schedules in more chunks than ``chunks``."""
        times = [
            one.time_s
            for one in self.attempts
            if one.time_s is not None and (one.method != "symmetric" or one.chunks <= chunks)
        ]
        return min(times, default=self.best_s)

    def refuse(self, plan: Plan, reason: str) -> None:
        self.attempts.append(Attempt(plan.name, plan.shape.chunks, None, reason))

    def spares(self, plan: Plan) -> bool:
        """Return whether earlier attempts show that ``plan`` will not win."""
        if self.best is None:
            return False
        if self._predicted and self.best.network.is_measured_host and plan.name != "greedy":
            # Simulated times of links say nothing about copies in memory.
            return deliveries(plan.shape) > _LONG_DELIVERIES
        ranks = plan.shape.ranks
        near = (ranks >= _MANY_RANKS and self.ratio < _NEAR_OF_MANY) or (
            ranks >= _SOME_RANKS and self.ratio < _NEAR_OF_SOME
        )
        if near and self.best.method in _BUILT and plan.name != self.best.method:
            return True
        if self._fills_too_late(plan):
            return True
        if self._gains_no_more(plan):
            return True
        # Even a schedule at the bound would not gain enough for that many sends.
        if self.ratio * (1 - self._least_gain(least_sends(plan.shape))) <= 1 and self._is_bound_decisive():
            return True
        return self.ratio < _NEAR and deliveries(plan.shape) > _LONG_DELIVERIES

    def _gains_no_more(self, plan: Plan) -> bool:
        """Return whether the method's times with larger chunks show that it stays slower than the best."""
        if plan.name == "greedy":
            # Times of one policy follow no trend over chunk sizes.
            chunks, slower = self._slower.get(plan.variant, (0, 0.0))
            if plan.shape.chunks <= chunks:
                return False
            times_s = self._policy_s.get(chunks, {})
            beaten = times_s.get(plan.variant, 0.0) > _SLOWER * min(times_s.values(), default=0.0)
            return beaten or slower > _HOPELESS
        before = [one for one in self.attempts if one.method == plan.name]
        if not before:
            return False
        if before[-1].time_s is None:
            return True
        if plan.name in ("forest", "paths") and before[-1].chunks < _CHUNKS_IN_SHARES:
            # Few chunks neither fill the pipelines of trees nor share the links into a rank evenly.
            return False
        if plan.name == "forest":
            # Judge by the busiest link, a lower bound.
            if self._least_busy_s > self.best_s * _BEYOND:
                return True
            if len(before) < _FORETELLING_FORESTS:
                return False
        if plan.method.exchanges:
            # Exchanges in a few chunks take other paths and may be slower than in one chunk: no trend yet.
            if len(before) < _FORETELLING_EXCHANGES:
                return False
            return _extrapolated_s(before) > self.best_s * (1 - _EXCHANGE_MUST_GAIN)
        return _extrapolated_s(before) > self.best_s * _BEYOND

    def _fills_too_late(self, plan: Plan) -> bool:
        """Return whether ``plan`` packs trees whose pipelines take longer to fill than they could gain.

        This is assumed on 128 ranks or more, if a search made the best schedule, in two cases: the best
        schedule is near the bound, or latency exceeds the transfer time of a chunk. On tori, hypercubes and
        fat trees of 128 ranks, trees were 1 to 2 % slower in the first case and 35 to 470 % in the second,
        and their linear program took most of the search.
        """
        best = self.best
        if best is None or plan.name != "forest" or plan.shape.ranks < _MANY_RANKS:
            return False
        if best.method not in ("greedy", "symmetric"):
            return False
        network = best.network
        short = np.median(network.alpha_s) > np.median(network.beta_s_per_byte) * best.chunk_bytes
        return self.ratio < _NEAR_OF_MANY or bool(short)

    def why(self) -> str:
        """Return in a few words why the best schedule was kept."""
        assert self.best is not None
        if self.optimal:
            return "it reaches the bound"
        timed = [(one.time_s, one) for one in self.attempts if one.time_s is not None]
        faster = [(time_s, one) for time_s, one in timed if time_s < self.best_s * (1 - 1e-9)]
        if faster:
            time_s, one = min(faster, key=lambda pair: pair[0])
            finer = f"{self.best.method} with more chunks"
            names = (finer if one.maker == self.best.method else one.maker for _, one in faster)
            gain, makers = _percent(self.best_s, time_s), list(dict.fromkeys(names))
            times = min(one.sends for _, one in faster) / max(1, self.best.sends)
            if len(makers) > 1:
                *first, last = makers
                return (
                    f"kept: {', '.join(first)} and {last} are up to {gain} faster in the model, but need at "
                    f"least {times:.3g} times as many sends"
                )
            return (
                f"kept: {one.maker} with {one.chunks} chunks is {gain} faster in the model, but needs "
                f"{one.sends / max(1, self.best.sends):.3g} times as many sends"
            )
        # The sends of all_pairs are those of direct.
        same = {self.best.method, "all_pairs"} | ({"direct"} if self.best.method == "all_pairs" else set())
        others = [(time_s, one.maker) for time_s, one in timed if one.maker not in same]
        if not others:
            return f"the fastest of {len(timed)} attempts"
        time_s, name = min(others)
        if time_s < self.best_s * (1 + _ALIKE):
            return f"as fast as {name}, the next best"
        return f"{_percent(time_s, self.best_s)} faster than {name}, the next best"

    def _least_gain(self, sends: int) -> float:
        if self.best is None or sends <= self.best.sends:
            return 1e-12
        if self.ratio > _FAR and sends <= _FEW_SENDS:
            return _NOTICEABLE
        return _FINER_MUST_GAIN * math.log2(sends / max(1, self.best.sends))


def _extrapolated_s(attempts: Sequence[Attempt]) -> float:
    """Extrapolate the last two times to infinitely many chunks; 0 if the last is no finer.

    The time to fill the pipeline is assumed to be proportional to 1 / chunks.
    """
    timed = [(one.chunks, one.time_s) for one in attempts if one.time_s is not None]
    if len(timed) < 2 or timed[-1][0] <= timed[-2][0]:
        return 0.0
    (coarse, before_s), (fine, after_s) = timed[-2:]
    gained_s = max(0.0, before_s - after_s) / (1 / coarse - 1 / fine)
    return after_s - gained_s / fine


def _percent(slower_s: float, faster_s: float) -> str:
    return f"{100 * (slower_s / faster_s - 1):.2g} %" if faster_s else "infinitely"
