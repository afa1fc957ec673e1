"""The coordinating rank: sends decisions, orders measurements of links, replans, and swaps schedules."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from exec.adaptive.compiled_parts import LateContexts
from exec.adaptive.coordinator import Coordinator
from exec.adaptive.drift import Level
from exec.adaptive.links_now import LinkNow, with_links
from exec.adaptive.messages import (
    CollectiveCall,
    Decision,
    Go,
    Install,
    Installed,
    Join,
    Measure,
    MeasuredLinks,
    Meet,
    Membership,
    PartDone,
    ReconnectionAttempt,
    Regroup,
    Stalled,
    Swap,
)
from exec.adaptive.replanner import Replanned, Replanner
from exec.adaptive.session_state import SessionState
from exec.adaptive.severed import HostPair, Severed, is_connected, without_pairs
from exec.adaptive.slow_parts import Slow, SlowParts
from exec.adaptive.swap_guard import SwapGuard
from exec.stragglers import CYCLE_S, CostsOfSchedule, SimulatedCosts, VolumeCosts
from synth.network import Network
from synth.simulation import replay

__all__ = ["Direction"]

# Minimum time before a measurement caused by changed run times, as a multiple of the last measurement's
# duration. Links that change faster are not followed.
_REST = 25
# Seconds after which contexts that are not ready on all ranks are given up: a rank may have no room for them.
_GIVEN_UP_S = 60.0
# Number of runs within which a measured slowdown must show in the times of runs.
_AWAITED = 10
# Largest change of a rate since the last search, as the logarithm of a factor, that counts as noise and
# starts no search.
_CHANGED = math.log(1.1)
# A rank silent for three heartbeats is sent a probe, to see whether its host answers.
_PROBED_S = 0.3
# psutil's states of a process that does no more work.
_STILL = ("stopped", "tracing-stop", "zombie", "dead")


@dataclass
class _Candidate:
    """Schedules that a search has found, on their way into use.

    They are doubtful until runs of the schedules in use are as slow as the search predicts for the schedules
    in use; ``runs`` counts the runs since the search. From ``since_s`` on, the ranks make contexts of
    ``version``, until all ranks have made them (``is_made``).
    """

    found: Replanned
    runs: int = 0
    version: int | None = None
    since_s: float = 0.0
    is_made: bool = False


class Direction:
    """Driver of a `Coordinator`; all calls come from one thread.

    ``fence`` ends the process of a lost rank.
    """

    def __init__(self, state: SessionState, membership: Membership, fence: Callable[[int], None]) -> None:
        assert state.links is not None, "a member knows the links"
        self._state, self._fence, self._mesh = state, fence, state.mesh
        self.coordinator = Coordinator(state.rank, membership, state.policy, self._buy_s, time.monotonic())
        # The capability of the links, with measurements that other ranks get with the next epoch.
        self._links = state.links
        # The links as measured last.
        self._now: Network = self._links.capability
        self._severed = Severed(self._mesh.host, membership.severed, time.monotonic())
        self._measure_due = False
        self._slow, self._slow_of = SlowParts(self._links_of(self._now)), self.coordinator.members
        self._replanner = Replanner(self._planned, state.replan_s)
        self._warmed = False
        # Results of searches, with the epoch and version in which each search began.
        self._plans: list[tuple[tuple[int, int], Replanned]] = []
        # The first schedules of a session are set up with contexts for late ranks. Contexts of later
        # schedules are compiled on request; ``_compiled`` has the answers as (number of the request, packed
        # parts), with empty parts on failure.
        self._late = LateContexts(made=() if membership.epoch else (0,))
        self._compiled: list[tuple[int, bytes]] = []
        self._guard = SwapGuard()
        # The newest version, the one in use, and the one before it, whose contexts are kept.
        self._version, self._in_use = 0, 0
        self._before: tuple[int, dict[CollectiveCall, Level]] | None = None
        # Found schedules that are on their way into use.
        self._candidate: _Candidate | None = None
        self._measuring = 0
        # Whether a new search is due: ranks use first schedules after a loss, a search could not begin when
        # it was due, or a rollback made its result useless.
        self._anew = False
        self._installing: dict[Installed, set[int]] = {}
        # The links that each rank has measured in this measurement; None if none is under way.
        self._rows: dict[int, MeasuredLinks] | None = None
        self._levels: dict[CollectiveCall, Level] = {}
        # Earliest time for a measurement out of turn.
        self._rested_s = 0.0
        # ``_under_way`` has the requests whose last part is under way, with the version in use at its start
        # and whether that part is the only one. ``_took_s`` has the seconds that each part of a request took
        # on each rank that has reported.
        self._under_way: dict[int, tuple[CollectiveCall, int, bool]] = {}
        self._took_s: dict[int, dict[int, dict[int, float]]] = {}
        self._costs: dict[CollectiveCall, CostsOfSchedule] = {}
        self._replan_started_s = 0.0
        self._searched: Network | None = None
        self._searched_for = -1, -1

    def hear(self, rank: int, message: Any) -> None:
        now_s = time.monotonic()
        self._swap_if_made()
        if isinstance(message, MeasuredLinks):
            self._gather(rank, message)
        elif isinstance(message, Installed):
            self._installed(rank, message)
        elif isinstance(message, Stalled) and message.epoch == self.coordinator.epoch:
            self._severed.stalled(rank, message.peer, now_s)
        elif isinstance(message, ReconnectionAttempt):
            self._severed.tried(message.pair, message.reached, now_s)
        elif isinstance(message, PartDone) and message.epoch == self.coordinator.epoch:
            self._watch(rank, message)
        self._send(self.coordinator.hear(rank, message, now_s))
        if isinstance(message, Join) and rank not in self.coordinator.members:
            unmet = self.coordinator.unmet(rank)
            self._state.send(rank, Meet(tuple(self._mesh.known[other] for other in unmet)))

    def tick(self) -> None:
        """Do what has become due: searches, swaps, severed and healed pairs, silent ranks."""
        now_s = time.monotonic()
        if self._state.profile_every and not self._warmed and self._state.version.schedules:
            self._warmed = True
            self._replanner.warm(self._network(), self._state.version.schedules)
        while self._plans:
            self._install(*self._plans.pop())
        self._swap_if_made()
        candidate = self._candidate
        if candidate is not None and candidate.version and now_s - candidate.since_s > _GIVEN_UP_S:
            self._candidate = None
        if self._anew and self._is_settled():
            self._replan()
        self._make_late(now_s)
        self._send(self.coordinator.decide(now_s))
        self._sever_and_heal(now_s)
        self._probe_silent(now_s)
        found = self.coordinator.silent(now_s, self._answers)
        silent = {rank: how for rank, how in found.items() if self._is_silent(rank)}
        if silent:
            self.lose(silent)

    def lose(self, lost: Mapping[int, str], start: int | None = None) -> None:
        """Go on without ``lost``, and end their processes.

        ``start`` counts the earlier starts of the lost process: a rank that was let in again since then
        stays.
        """
        if start is not None:
            starts = self.coordinator.membership.starts
            lost = {rank: how for rank, how in lost.items() if starts.get(rank, 0) == start}
        decisions = self.coordinator.lose(lost, time.monotonic())
        if decisions:
            for rank in lost:
                self._fence(rank)
        self._send(decisions)

    def _begin_anew(self) -> None:
        """Drop all work of the old epoch; the members go on with first schedules."""
        self._version, self._in_use, self._before, self._candidate = 0, 0, None, None
        self._guard.begin_anew()
        self._late.begin_anew()
        self._installing.clear()
        self._levels.clear()
        self._under_way.clear()
        self._took_s.clear()
        self._rows = None
        self._anew = True

    def _sever_and_heal(self, now_s: float) -> None:
        """Begin an epoch around stalled pairs of hosts, and use healed pairs again."""
        if self.coordinator.gathering:
            return
        found = self._severed.found(self.coordinator.heard_s(now_s), self._goes_on, now_s)
        healed = self._severed.healed(now_s)
        before = self.coordinator.membership
        self.coordinator.membership = replace(before, severed=self._severed.pairs)
        for pair in found:
            self._state.tell("severed", detail={"hosts": self._names(pair), "ranks": pair})
        for pair, lasted_s in healed.items():
            self._state.tell("healed", lasted_s, detail={"hosts": self._names(pair), "ranks": pair})
        self._measure_due |= bool(healed)
        if found:
            self._send(self.coordinator.regroup(self.coordinator.membership, now_s))
        elif self._measure_due and self._is_settled() and self.measure():
            self._measure_due = False

    def _goes_on(self, pairs: tuple[HostPair, ...]) -> bool:
        """Return whether the members reach each other without the links between ``pairs`` of hosts."""
        return is_connected(self._network(pairs))

    def _names(self, pair: HostPair) -> tuple[str, ...]:
        """Return the profile's names of the hosts of a pair."""
        return tuple(self._links.start.hosts[place] for place in self._state.places(pair))

    def close(self) -> None:
        self._replanner.close()

    def _is_settled(self) -> bool:
        """Return whether the members have schedules of this epoch and this rank uses the chosen version."""
        ranks, version = len(self.coordinator.members), self._state.version
        if self.coordinator.gathering or (version.epoch, version.number) != (
            self.coordinator.epoch,
            self._in_use,
        ):
            return False
        return all(schedule.network.ranks == ranks for schedule in version.schedules.values())

    def _probe_silent(self, now_s: float) -> None:
        """Probe silent ranks on other hosts, so that `_answers` knows whether their kernels reply."""
        for rank, heard_s in self.coordinator.heard_s(now_s).items():
            if now_s - heard_s > _PROBED_S and self._is_elsewhere(rank):
                self._mesh.probe(rank)

    def _answers(self, rank: int) -> bool:
        """Return whether ``rank`` is on another host whose kernel acknowledges data."""
        return self._is_elsewhere(rank) and not self._mesh.is_mute(rank)

    def _is_elsewhere(self, rank: int) -> bool:
        return self._mesh.host[rank] != self._mesh.host[self._state.rank]

    def _is_silent(self, rank: int) -> bool:
        """Return whether a silent rank may be counted as lost.

        A rank on this host whose process still runs is alive: a library that holds the interpreter may delay
        its heartbeats.
        """
        import psutil

        if self._is_elsewhere(rank):
            return True
        try:
            return psutil.Process(self._mesh.known[rank].pid).status() in _STILL
        except psutil.Error:
            return True

    def _send(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Regroup):
                self._begin_anew()
                # A spare may run on another host than expected.
                self._severed.hosts = self._mesh.host
                self._measure_due |= bool(decision.membership.joining)
                requests, every = tuple(self._state.requests), self._state.profile_every
                decision = replace(decision, links=self._links, requests=requests, profile_every=every)
            for rank in self.coordinator.members:
                self._state.send(rank, decision)
            if isinstance(decision, Go) and decision.last:
                # An empty part ends a request that no schedule serves any more: its root is lost.
                if decision.part and not decision.request.admits:
                    alone = not decision.number
                    self._under_way[decision.seq] = decision.request, self._in_use, alone
                self._between(decision)

    def _between(self, go: Go) -> None:
        """Start a measurement after a request if it is due."""
        every = self._state.profile_every
        if every and (go.seq + 1) % every == 0:
            self.measure()

    def measure(self) -> bool:
        """Order all ranks to measure their links before the next request; return False if they already do."""
        if self._rows is not None:
            return False
        self._rows = {}
        self._measuring += 1
        self._send([Measure(self.coordinator.epoch, self._measuring, self._severed.pairs)])
        return True

    def _gather(self, rank: int, rows: MeasuredLinks) -> None:
        if self._rows is None or rows.epoch != self.coordinator.epoch or rows.number != self._measuring:
            return
        self._rows[rank] = rows
        if len(self._rows) < len(self.coordinator.members):
            return
        found = [
            LinkNow(src, dst, alpha_s, beta)
            for dst, each in self._rows.items()
            for src, alpha_s, beta in each.links
        ]
        longest_s, now_s = max(each.seconds for each in self._rows.values()), time.monotonic()
        self._rested_s = now_s + _REST * self._guard.caution(now_s) * longest_s
        self._rows = None
        for link in found:
            if link.beta_s_per_byte == math.inf:
                self._severed.stalled(link.dst, link.src, time.monotonic())
        self._now = with_links(self._now, found, self._state.slots)
        self._learn(found)
        if self._has_changed():
            self._replan()
        # The search runs beside the job while links are measured once more.
        if self._name_slow():
            self.measure()

    def _learn(self, found: Sequence[LinkNow]) -> None:
        """Take the first measurement of a spare's links as their capability."""
        known = self._links.with_first(found)
        if len(known.measured) > len(self._links.measured):
            self._links, self._slow_of = known, ()

    def _has_changed(self) -> bool:
        """Return whether a link's cost differs clearly from its cost in the last search."""
        now, before = self._network(), self._searched
        if before is None or before.hosts != now.hosts or before.links != now.links:
            return True
        changes = np.abs(np.log(now.beta_s_per_byte / before.beta_s_per_byte))
        return bool(changes.max(initial=0.0) > _CHANGED)

    def _name_slow(self) -> bool:
        """Report newly slow and recovered parts; return whether one more measurement is needed."""
        if self._slow_of != self.coordinator.members:
            self._slow = SlowParts(self._links_of(self._links.capability))
            self._slow_of = self.coordinator.members
        found = self._slow.judge(self._links_of(self._now), time.time())
        for what, parts in (("slow", found.slow), ("recovered", found.recovered)):
            for part in parts:
                self._state.tell(what, detail=_told(part))
        return found.doubtful

    def _replan(self) -> None:
        # A search must beat the schedules that will be in use when it ends.
        if self._replanner.busy or self._is_installing or not self._is_settled():
            self._anew = True
            return
        self._candidate = None
        self._replan_started_s = time.monotonic()
        self._searched, self._searched_for = self._network(), (self.coordinator.epoch, self._in_use)
        self._replanner.start(self._searched, self._state.version.schedules)
        self._anew = False

    def _network(self, severed: Sequence[HostPair] | None = None) -> Network:
        """Return the current links between the members, without links between severed pairs."""
        pairs = self._severed.pairs if severed is None else severed
        members = self.coordinator.members
        return without_pairs(self._links_of(self._now), self._mesh.host, members, pairs)

    def _links_of(self, network: Network) -> Network:
        """Return the part of a network of all ranks that joins the members."""
        return self._state.among(network, self.coordinator.members)

    @property
    def _is_installing(self) -> bool:
        """Whether ranks are making the contexts of found schedules."""
        return self._candidate is not None and self._candidate.version is not None

    def _planned(self, found: Replanned) -> None:
        self._plans.append((self._searched_for, found))

    def _install(self, searched_for: tuple[int, int], found: Replanned) -> None:
        seconds = time.monotonic() - self._replan_started_s
        changed = bool(found.schedules)
        self._state.tell("planned", seconds, detail={"gain": found.gain, "used": "now", "changed": changed})
        # Results for other members, or compared with schedules no longer in use, are dropped; a new search
        # follows.
        if searched_for != (self.coordinator.epoch, self._in_use):
            return
        if not changed:
            self._guard.explained()
            return
        self._candidate = _Candidate(found)
        self._install_if_believed()

    def _install_if_believed(self) -> None:
        """Order contexts for the found schedules once runs are as slow as the measured links predict."""
        candidate, now_s = self._candidate, time.monotonic()
        if candidate is None or candidate.version is not None:
            return
        found = candidate.found
        if not self._guard.explains(found.before_s):
            if candidate.runs >= _AWAITED:
                self._disbelieve(found, "unexplained")
                self._guard.unexplained(now_s)
            return
        self._guard.explained()
        if found.gain < self._guard.least_gain(now_s):
            self._disbelieve(found, "too small")
            return
        self._version += 1
        candidate.version, candidate.since_s = self._version, now_s
        self._send([Install(self.coordinator.epoch, self._version, found.parts, found.schedules)])

    def _disbelieve(self, found: Replanned, why: str) -> None:
        """Drop the found schedules; the next measurement starts a new search, even if links are unchanged."""
        self._candidate = self._searched = None
        self._state.tell("disbelieved", detail={"gain": found.gain, "why": why})

    def _installed(self, rank: int, message: Installed) -> None:
        """Once all ranks have made contexts, swap to their version, or release those for late ranks."""
        if message.epoch != self.coordinator.epoch:
            return
        ranks = self._installing.setdefault(message, set())
        ranks.add(rank)
        if ranks != set(self.coordinator.members):
            return
        del self._installing[message]
        if message.late:
            self._send([Swap(message.epoch, message.version, late=True)])
            self._late.made(message.version)
        elif self._candidate is not None and self._candidate.version == message.version:
            self._candidate.is_made = True
            self._swap_if_made()

    def _swap_if_made(self) -> None:
        """Swap to the version that all ranks have made, between two requests.

        Within a request, later parts would need contexts for late ranks that the version does not have yet.
        """
        candidate = self._candidate
        if candidate is None or candidate.version is None or not candidate.is_made:
            return
        if self.coordinator.gathering or not self.coordinator.is_between:
            return
        self._candidate, version = None, candidate.version
        self._before = self._in_use, dict(self._levels)
        for request, gain in candidate.found.gains.items():
            self._levels[request] = self._level(request).changed(gain)
        self._guard.swapped()
        self._in_use = version
        if self._late.under_way:
            # Compiling for schedules no longer in use would disturb the trial.
            self._late.cancel()
            self._replanner.stop_compiling()
        self._send([Swap(self.coordinator.epoch, version)])

    def _make_late(self, now_s: float) -> None:
        """Order missing contexts for late ranks, while no other schedules are on their way.

        Making contexts slows the runs, so no swap may be on trial meanwhile.
        """
        version = self._in_use
        changes = self._anew or self._replanner.busy or self._candidate is not None
        if changes or self._guard.on_trial or not self._state.policy.relays or not self._is_settled():
            return
        while self._compiled:
            number, parts = self._compiled.pop(0)
            if self._late.version_of(number) != version:
                continue
            if parts:
                self._send([Install(self.coordinator.epoch, version, parts, late=True)])
            else:
                self._late.failed(now_s)
        schedules = self._state.version.schedules
        if not schedules or not self._late.are_due(version, now_s):
            return
        self._replanner.warm(self._network(), schedules)
        number = self._late.ask(version)
        self._replanner.compile_late(schedules, lambda parts: self._compiled.append((number, parts)))

    def _watch(self, rank: int, done: PartDone) -> None:
        """Note a part's time; measure links once runs have become slower or faster for good."""
        parts = self._took_s.setdefault(done.seq, {})
        parts.setdefault(done.number, {})[rank] = done.seconds
        if not done.last or len(parts[done.number]) < len(self.coordinator.members):
            return
        del self._took_s[done.seq]
        request, version, alone = self._under_way.pop(done.seq, (None, 0, False))
        if request is None or version != self._in_use:
            return
        # A run takes as long as on its slowest rank, which changes with the slow links.
        longest_s = sum(max(took_s.values()) for took_s in parts.values())
        # Searching and making contexts slow the runs beside them.
        disturbed = self._replanner.busy or self._is_installing
        self._guard.ran(request, longest_s, disturbed=disturbed)
        self._judge_swap()
        if self._candidate is not None:
            self._candidate.runs += 1
        self._install_if_believed()
        # Levels are learned from runs in one part only.
        if not alone or disturbed or version != self._in_use or self._is_installing:
            return
        level = self._level(request)
        has_left = level.take(longest_s)
        if has_left and self._state.profile_every and time.monotonic() > self._rested_s:
            self._levels[request] = level.left()
            detail = {"expected_s": level.expected_s, "now_s": self._levels[request].usual_s}
            self._state.tell("drift", detail=detail)
            self.measure()

    def _judge_swap(self) -> None:
        """Go back to the schedules before the last swap if runs are slower since."""
        trial = self._guard.judged()
        if trial is None:
            return
        if self._before is None:
            # The trial was of a swap back. If it did not help, the network has changed since, and no
            # prediction was wrong.
            if trial.has_gained:
                self._guard.doubt(time.monotonic())
            return
        if trial.has_gained:
            self._guard.trust(time.monotonic())
        if not trial.has_failed:
            return
        detail = {"version": self._in_use, "before_s": trial.before_s, "after_s": trial.after_s}
        self._in_use, self._levels = self._before
        self._before = None
        # Found schedules and running searches were compared with a version no longer in use.
        self._anew |= self._replanner.busy or self._candidate is not None
        self._candidate = None
        self._guard.swapped()
        self._state.tell("rolled back", detail=detail)
        self._send([Swap(self.coordinator.epoch, self._in_use)])
        if self._late.exist(self._in_use):
            # Its contexts for late ranks may have been finished after the other schedules came into use.
            self._send([Swap(self.coordinator.epoch, self._in_use, late=True)])

    def _level(self, request: CollectiveCall) -> Level:
        """Return the level of a request's runs; it starts from the simulated time."""
        if request not in self._levels:
            self._levels[request] = Level(replay(self._state.schedule_of(request)).time_s)
        return self._levels[request]

    def _buy_s(self, request: CollectiveCall, ready: frozenset[int], late: frozenset[int]) -> float:
        """Return the seconds that going on without the late ranks costs beyond one collective of all.

        Both phases are simulated, and scaled to real runs. The cost is at least one cycle, the delay of a
        rank's message. It is infinite while this rank has no schedules for the members, or no contexts for
        late ranks. With the published policy, the cost of a first part is the cost of both phases, as volume
        over bandwidth.
        """
        if not self._is_settled() or not self._late.exist(self._in_use):
            return math.inf
        costs = self._costs_of(request)
        members = self.coordinator.members
        left_out = frozenset(members.index(rank) for rank in late)
        ready_places = frozenset(members.index(rank) for rank in ready)
        every = frozenset(range(len(members)))
        if ready_places | left_out == every and self._state.policy.as_published:
            return costs.phases(ready_places).buy_s
        if ready_places | left_out == every:
            extra_s = costs.phases(ready_places).buy_s - costs.whole_s
        else:
            both_s = costs.phases(every - ready_places).two_s + costs.phases(every - left_out).two_s
            extra_s = both_s - costs.phases(every - ready_places - left_out).two_s
        usual_s = self._level(request).usual_s
        if usual_s is not None:
            extra_s *= max(1.0, usual_s / costs.whole_s)
        return max(CYCLE_S, extra_s)

    def _costs_of(self, request: CollectiveCall) -> CostsOfSchedule:
        schedule = self._state.schedule_of(request)
        costs = self._costs.get(request)
        if costs is None or costs.schedule is not schedule:
            made = VolumeCosts if self._state.policy.as_published else SimulatedCosts
            costs = self._costs[request] = made(schedule)
        return costs


def _told(part: Slow) -> dict[str, Any]:
    kind = ("all", "host", "link")[len(part.hosts)]
    return {"kind": kind, "hosts": part.hosts, "way": part.way, "factor": part.factor}
