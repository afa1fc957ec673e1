"""The coordinator: decides which ranks communicate now, who waits, and who is lost (AdapCC, Sec. IV-C).

The coordinator is a state machine without threads or clocks: messages go in with the time, decisions come
out. It runs on the lowest of the ranks that have been members longest. A request is carried out in parts. The
first part has the ranks that are ready when waiting has cost as much as going on without the rest; the other
ranks follow as they come. The parts add up to the exact result.

Ranks that were started again join at a special request. Once all members have arrived at this request, an
epoch that includes the new ranks begins, in which the request ends.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from exec.adaptive.messages import (
    ADMIT,
    Beat,
    CollectiveCall,
    Decision,
    Go,
    Join,
    Membership,
    Outdated,
    PartDone,
    Ready,
    Regroup,
    Resume,
    WorkerState,
    leader_of,
)
from exec.stragglers import FAULT_FACTOR, WaitingCollective, fault_deadline_s
from probes.base import LostRankError, UsageError

__all__ = ["ANSWERING", "Coordinator", "RequestHistory", "WaitPolicy"]

# Factor on the allowed silence of a rank whose host is another one and still acknowledges data. From afar a
# process that lacks CPU time for seconds looks like a stopped process: both are silent, and their hosts
# acknowledge data.
ANSWERING = 3.0

# The most requests whose history is kept.
_MOST_SEEN = 1 << 16
# A rank that has not repeated its request to join for this long is gone.
_ASKS_S = 3.0
# A longer gap between two looks means that this process did not run; the excess does not count as silence.
_MOST_BETWEEN_LOOKS_S = 0.25


@dataclass(frozen=True)
class WaitPolicy:
    """Limits on how long ranks wait for each other.

    ``relays``: go on without late ranks where that pays. A rank is lost when its connection ends, or when it
    is silent for too long; a late rank that is alive is waited for. The limit of silence is ``fault_factor``
    (5 in the paper) times the time from the first rank's readiness to the end of the first part, and at least
    ``silent_s``. For a rank on another host whose kernel still answers, it is ``ANSWERING`` times as long,
    because its process cannot be inspected.

    ``as_published``: decide as AdapCC's paper does. Waiting is compared with the cost for the ranks that are
    ready now, as volume over bandwidth. A rank that is not ready ``fault_factor`` times as long after the
    first part is lost, although it may be alive.
    """

    relays: bool = True
    fault_factor: float = FAULT_FACTOR
    silent_s: float = 1.0
    as_published: bool = False


@dataclass(frozen=True)
class RequestHistory:
    """The parts of one request, and the seconds from its first ready rank to its last part.

    No decision depends on the history; it is for reports.
    """

    seq: int
    parts: tuple[tuple[int, ...], ...]
    waited_s: float


@dataclass
class _Round:
    """The request that is being decided on.

    ``first_s`` is when its first rank was ready. Its first part began at ``went_s`` and ended at ``done_s``.
    """

    first_s: float = 0.0
    parts: list[tuple[int, ...]] = field(default_factory=list)
    went_s: float = 0.0
    done_s: float = 0.0
    waiting: WaitingCollective | None = None

    def covered(self) -> set[int]:
        return {rank for part in self.parts for rank in part}


class Coordinator:
    """The state machine of the coordinating rank.

    ``buy_s(request, ready, late)`` returns the seconds that going on without ``late`` costs beyond one run of
    all ranks. It is infinite while no rank may go on without ``late``, for example after a swap to schedules
    without contexts for late ranks.
    """

    def __init__(
        self,
        rank: int,
        membership: Membership,
        policy: WaitPolicy,
        buy_s: Callable[[CollectiveCall, frozenset[int], frozenset[int]], float],
        now_s: float = 0.0,
    ) -> None:
        """Start with ``membership``; on a takeover, pass the membership of the last `Regroup`."""
        self.rank, self.membership = rank, membership
        self.seq = 0
        self.seen: deque[RequestHistory] = deque(maxlen=_MOST_SEEN)
        self._policy, self._buy_s = policy, buy_s
        self._ready: defaultdict[int, dict[int, tuple[CollectiveCall, float]]] = defaultdict(dict)
        self._round = _Round()
        self._heard = dict.fromkeys(self.members, now_s)
        self._looked_s = now_s
        self._states: dict[int, WorkerState] | None = None
        # The bases are sets of ranks; a quorum of each must survive. Joining ranks count once the epoch that
        # lets them in is complete. A coordinator that takes over does not know whether that epoch is
        # complete, so it keeps a base without the joining ranks and one with them.
        standing = tuple(rank for rank in self.members if rank not in membership.joining)
        self.bases = [standing, self.members] if membership.joining else [self.members]
        self._joined_before = membership.joined
        self._waiting: dict[int, tuple[Join, float]] = {}

    @property
    def members(self) -> tuple[int, ...]:
        return self.membership.members

    @property
    def epoch(self) -> int:
        """The number of the epoch that has begun last."""
        return self.membership.epoch

    @property
    def gathering(self) -> bool:
        """Whether an epoch has begun, and not all members have reported their state."""
        return self._states is not None

    @property
    def is_between(self) -> bool:
        """Whether the last request is fully decided, and no part of the next one is decided."""
        return not self._round.parts

    def hear(self, rank: int, message: object, now_s: float) -> list[Decision]:
        """Take a worker's message and return the decisions that follow."""
        if isinstance(message, Join):
            if rank not in self.members:
                self._waiting[rank] = (message, now_s)
            return []
        if rank not in self.members:
            return []
        self._heard[rank] = now_s
        if isinstance(message, Ready):
            self._ready[message.seq].setdefault(rank, (message.request, now_s))
        elif isinstance(message, PartDone):
            self._note(message, now_s)
        elif isinstance(message, WorkerState):
            return self._gather(rank, message, now_s)
        elif isinstance(message, Outdated):
            # A coordinator that has died began an epoch unknown to this rank.
            if message.epoch < self.epoch:
                return []
            return self.regroup(replace(self.membership, epoch=message.epoch), now_s)
        elif isinstance(message, Beat):
            return []
        return self.decide(now_s)

    def decide(self, now_s: float) -> list[Decision]:
        """Return the decisions due now; also called every ``CYCLE_S``."""
        decisions: list[Decision] = []
        while self._states is None:
            if chosen := self._lets_in(now_s):
                return decisions + self._admit(chosen, now_s)
            go = self._next_part(now_s)
            if go is None:
                break
            decisions.append(go)
        return decisions

    def unmet(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that a joining rank must still connect to."""
        join, _ = self._waiting[rank]
        needed = self._starts_of(self.members) | {
            other: asks.start for other, (asks, _) in self._waiting.items() if other < rank
        }
        return tuple(other for other, start in needed.items() if join.met.get(other) != start)

    def silent(self, now_s: float, answers: Callable[[int], bool] = lambda rank: False) -> dict[int, str]:
        """Return the ranks whose silence counts as a loss, with the reason.

        ``answers(rank)`` returns whether the kernel of a rank on another host acknowledges data; such a rank
        is waited for ``ANSWERING`` times as long. The method is called every ``CYCLE_S``. If a call comes
        late, this process was not running and read no messages, so the delay does not count as silence.
        """
        unwatched_s = max(0.0, now_s - self._looked_s - _MOST_BETWEEN_LOOKS_S)
        self._looked_s = max(self._looked_s, now_s)
        if unwatched_s:
            self._heard = {rank: min(now_s, at_s + unwatched_s) for rank, at_s in self._heard.items()}
        allowed_s = self._allowed_s()
        return self._overdue(now_s) | {
            rank: f"was silent for {now_s - heard_s:.1f} s"
            for rank, heard_s in self._heard.items()
            if rank != self.rank
            and now_s - heard_s > allowed_s
            and (now_s - heard_s > ANSWERING * allowed_s or not answers(rank))
        }

    def lose(self, lost: Mapping[int, str], now_s: float) -> list[Decision]:
        """Begin an epoch without ``lost``; raises LostRankError if too few ranks are left.

        A side goes on only with more than half of the members, or with half of them including the leader, so
        the two sides of a split network never both go on. The members of the last complete epoch are counted,
        so ranks lost one by one before the next complete epoch count together.
        """
        lost_members = {rank: how for rank, how in lost.items() if rank in self.members}
        if not lost_members:
            return []
        after = self.membership.without(lost_members)
        for base in self.bases:
            left = [rank for rank in base if rank in after.members]
            twice, all_of_them = 2 * len(left), len(base)
            leader = leader_of(base, self._joined_before)
            if twice < all_of_them or (twice == all_of_them and leader not in left):
                named = ", ".join(f"rank {rank} {how}" for rank, how in sorted(lost_members.items()))
                raise LostRankError(
                    f"{len(left)} of {all_of_them} ranks are left, which cannot go on: {named}"
                )
        return self.regroup(after, now_s)

    def heard_s(self, now_s: float) -> dict[int, float]:
        """Return when each member was last heard; for this rank that is now."""
        return {**self._heard, self.rank: now_s}

    def regroup(self, membership: Membership, now_s: float) -> list[Decision]:
        """Begin the next epoch, with ``membership``; decisions of the last epoch become void."""
        self.membership = replace(membership, epoch=membership.epoch + 1)
        self._heard = dict.fromkeys(self.members, now_s)
        self._states = {}
        return [Regroup(self.epoch, self.membership)]

    def _lets_in(self, now_s: float) -> dict[int, int]:
        """Return {rank: start} to let in now, if all members are at a request that admits ranks.

        Each of these ranks has connected to every member and to the ranks let in with it.
        """
        ready = self._ready[self.seq]
        arrived = all(rank in ready and ready[rank][0].admits for rank in self.members)
        chosen: dict[int, int] = {}
        for rank, (join, asked_s) in sorted(self._waiting.items()) if arrived else ():
            needed = self._starts_of(self.members) | chosen
            met = all(join.met.get(other) == start for other, start in needed.items())
            if now_s - asked_s <= _ASKS_S and met:
                chosen[rank] = join.start
        return chosen

    def _admit(self, chosen: Mapping[int, int], now_s: float) -> list[Decision]:
        """Begin an epoch that lets in the ranks ``chosen``."""
        for rank in chosen:
            del self._waiting[rank]
        return self.regroup(self.membership.with_joining(chosen, self.seq), now_s)

    def _starts_of(self, ranks: Sequence[int]) -> dict[int, int]:
        return {rank: self.membership.starts.get(rank, 0) for rank in ranks}

    def _next_part(self, now_s: float) -> Go | None:
        """Return the next part of the current request, or None if it is not yet due."""
        ready = self._ready[self.seq]
        covered, every = self._round.covered(), set(self.members)
        fresh = set(ready) & every - covered
        missing = every - covered - fresh
        if not fresh:
            return None
        requests = {request for request, _ in ready.values()}
        if len(requests) > 1:
            raise UsageError(f"request {self.seq}: the ranks ask for different collectives: {requests}")
        request = requests.pop()
        if not self._round.first_s:
            self._round.first_s = min(at_s for _, at_s in ready.values())
        # A request whose root is lost ends with an empty part.
        rootless = request.rooted and request.root not in every
        if missing and (rootless or not self._pays(request, fresh, missing, now_s)):
            return None
        part = () if rootless else tuple(sorted(fresh))
        number = len(self._round.parts)
        self._round.parts.append(part)
        self._round.waiting = None
        if not number:
            self._round.went_s = now_s
        go = Go(self.epoch, self.seq, request, part, number, last=not missing)
        if not missing:
            waited_s = now_s - self._round.first_s
            if not request.admits:
                self.seen.append(RequestHistory(self.seq, tuple(self._round.parts), waited_s))
            self._ready.pop(self.seq)
            self.seq, self._round = self.seq + 1, _Round()
        return go

    def _pays(self, request: CollectiveCall, fresh: set[int], missing: set[int], now_s: float) -> bool:
        """Return whether waiting has cost as much as going on without ``missing`` would (break-even)."""
        # A first part needs two ranks. A later part may be one rank, as all others wait for its data.
        if not self._policy.relays or not request.partial or len(fresh) < 2 - bool(self._round.parts):
            return False
        buy_s = self._buy_s(request, frozenset(fresh), frozenset(missing))
        if buy_s == math.inf:
            # Earlier offers were for schedules that are no longer in use.
            self._round.waiting = None
            return False
        if self._round.waiting is None:
            since_s = max(self._round.first_s, self._round.done_s or self._round.went_s)
            self._round.waiting = WaitingCollective(since_s, as_published=self._policy.as_published)
        self._round.waiting = self._round.waiting.offered(buy_s)
        return self._round.waiting.goes(now_s)

    def _note(self, done: PartDone, now_s: float) -> None:
        if done.epoch == self.epoch and done.seq == self.seq and not self._round.done_s:
            self._round.done_s = now_s

    def _overdue(self, now_s: float) -> dict[int, str]:
        """Return the ranks that are lost by the paper's rule: not ready T_fault after the first part."""
        current = self._round
        if not self._policy.as_published or not current.done_s:
            return {}
        if now_s <= fault_deadline_s(current.first_s, current.done_s, factor=self._policy.fault_factor):
            return {}
        late = set(self.members) - current.covered() - set(self._ready[self.seq]) - {self.rank}
        return {rank: f"was not ready {now_s - current.done_s:.3f} s after the first part" for rank in late}

    def _allowed_s(self) -> float:
        """Return the longest silence: T_fault (Sec. IV-C) after a first part, else ``silent_s``."""
        if not self._round.done_s:
            return self._policy.silent_s
        first_s, done_s = self._round.first_s, self._round.done_s
        factor, least_s = self._policy.fault_factor, self._policy.silent_s
        return fault_deadline_s(first_s, done_s, factor=factor, least_s=least_s) - done_s

    def _gather(self, rank: int, state: WorkerState, now_s: float) -> list[Decision]:
        """Take a member's state; after the last one, return the decisions to go on."""
        if state.epoch != self.epoch or self._states is None:
            return []
        self._states[rank] = state
        if len(self._states) < len(self.members):
            return []
        states, self._states = self._states, None
        new, joined = [rank for rank, state in states.items() if state.done < 0], self.membership.joined
        furthest = max(state.done for state in states.values())
        late = {rank: "heard too late that it was let in" for rank in new if furthest > joined[rank]}
        if late:
            return self.lose(late, now_s)
        holders = {}
        for seq in range(min(state.done for state in states.values() if state.done >= 0), furthest):
            holders[seq] = next(rank for rank, state in sorted(states.items()) if state.done > seq)
        at_it = [state.parts if state.done == furthest else () for state in states.values()]
        kept = 0
        while all(len(parts) > kept for parts in at_it) and len({parts[kept] for parts in at_it}) == 1:
            kept += 1
        # If chunks of a lost rank may be in the first part, no rank knows which, and no part can be kept.
        open_to = frozenset[int]().union(
            *(state.open_to for state in states.values() if state.done == furthest)
        )
        if open_to.difference(self.members, *at_it[0][:kept]):
            kept = 0
        self._keep_ready(furthest)
        for worker, each in states.items():
            for seq, request in each.ready.items():
                if seq >= furthest:
                    self._ready[seq].setdefault(worker, (request, now_s))
        for rank in new:
            self._ready[furthest][rank] = (ADMIT, now_s)
        self.membership = replace(self.membership, joining=())
        self.bases, self._joined_before = [self.members], joined
        self.seq, self._round = furthest, _Round(parts=list(at_it[0][:kept]))
        decisions: list[Decision] = [Resume(self.epoch, furthest, kept, holders)]
        if kept and not set(self.members) - self._round.covered():
            # The kept parts hold all data of the survivors: one more, empty part ends the request.
            request = next(iter(self._ready[furthest].values()))[0]
            decisions.append(Go(self.epoch, furthest, request, (), kept, last=True))
            self._ready.pop(furthest)
            self.seq, self._round = furthest + 1, _Round()
        return decisions + self.decide(now_s)

    def _keep_ready(self, seq: int) -> None:
        """Forget requests before ``seq`` and ranks that are no members.

        The rest stays: a rank may have become ready after it reported its state.
        """
        for at in list(self._ready):
            if at < seq:
                del self._ready[at]
            else:
                self._ready[at] = {
                    rank: ready for rank, ready in self._ready[at].items() if rank in self.members
                }
