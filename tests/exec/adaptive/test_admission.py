"""Ranks that are started again are let in by one epoch, where all have arrived, whoever dies meanwhile."""

import random

import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from exec.adaptive.coordinator import Coordinator, WaitPolicy
from exec.adaptive.messages import (
    ADMIT,
    Beat,
    CollectiveCall,
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
from probes.base.errors import LostRankError

ASKED = CollectiveCall("all_reduce", "sum", "float32", 8, 4)


def request_of(seq):
    """Return the request that every rank makes as number ``seq``."""
    return ASKED if seq % 3 else ADMIT


class Rank:
    """A start of a rank that carries out decisions one by one, as its session does."""

    def __init__(self, number, start=0):
        self.number, self.start, self.is_new = number, start, start > 0
        self.epoch, self.done, self.joined = 0, -1 if start else 0, {}
        self.parts, self.results, self.queue, self.asked = [], {}, [], 0

    @property
    def next_request(self):
        """The next request that its caller asks for, None while it waits; ADMIT waits for all before."""
        if self.is_new or (request_of(self.asked).admits and self.done < self.asked):
            return None
        return request_of(self.asked)

    def step(self):
        """Carry out the next decision; what it says to the coordinator."""
        decision = self.queue.pop(0)
        if isinstance(decision, Regroup):
            if decision.epoch <= self.epoch:
                return Outdated(self.epoch)
            self.epoch, self.joined = decision.epoch, decision.membership.joined
            ready = {seq: request_of(seq) for seq in range(max(0, self.done), self.asked)}
            return WorkerState(self.epoch, self.done, tuple(self.parts), ready)
        if decision.epoch != self.epoch:
            return Beat()
        if isinstance(decision, Resume):
            if self.is_new:
                assert request_of(decision.seq).admits
                self.done, self.asked, self.is_new = decision.seq, decision.seq + 1, False
            if self.done == decision.seq:
                del self.parts[decision.kept :]
            return Beat()
        assert isinstance(decision, Go) and decision.seq == self.done
        assert decision.request == request_of(decision.seq)
        assert self.number not in decision.part or decision.seq < self.asked
        self.parts.append(decision.part)
        if decision.last:
            new = [rank for rank in decision.part if self.joined.get(rank) == decision.seq]
            self.results[self.done] = (tuple(self.parts), new if decision.request.admits else None)
            self.done, self.parts = self.done + 1, []
        return PartDone(self.epoch, decision.seq, decision.number, decision.last, 0.0)


class World:
    """Ranks, a coordinator and a clock; messages arrive in the order they were sent.

    The ``spares``, numbered after the ``ranks``, come later.
    """

    def __init__(self, ranks, chance, requests, spares=0):
        self.ranks = {number: Rank(number) for number in range(ranks)}
        self.chance, self.now_s, self.requests = chance, 0.0, requests
        self.coordinator = Coordinator(0, Membership((*range(ranks),)), WaitPolicy(), lambda *_: 0.005)
        every = range(ranks + spares)
        self.gone, self.starts, self.admitted = set(every[ranks:]), dict.fromkeys(every, 0), 0

    def send(self, decisions):
        for decision in decisions:
            for number in self.coordinator.members:
                if number not in self.gone:
                    self.ranks[number].queue.append(decision)
            if isinstance(decision, Resume):
                self.fetch(decision)

    def fetch(self, resume):
        """Ranks that lack a result get it from one that has it, before they go on."""
        for seq, holder in resume.holders.items():
            for number in self.coordinator.members:
                rank = self.ranks[number]
                if number not in self.gone and not rank.is_new and rank.done <= seq:
                    rank.results[seq] = self.ranks[holder].results[seq]
                    rank.done, rank.parts = seq + 1, []

    def tell(self, number, message):
        self.send(self.coordinator.hear(number, message, self.now_s))

    def act(self):
        """Let something happen."""
        self.now_s += self.chance.choice([0.0, 0.001, 0.02])
        here = [rank for number, rank in self.ranks.items() if number not in self.gone]
        for rank in here:
            if rank.is_new and rank.number not in self.coordinator.members and self.chance.random() < 0.5:
                met = {other.number: other.start for other in here if self.chance.random() < 0.9}
                self.tell(rank.number, Join(rank.start, met))
        members = [rank for rank in here if rank.number in self.coordinator.members]
        able = [rank for rank in members if rank.queue]
        asking = [rank for rank in members if rank.asked < self.requests and rank.next_request]
        if asking and (not able or self.chance.random() < 0.3):
            rank = self.chance.choice(asking)
            rank.asked += 1
            self.tell(rank.number, Ready(rank.asked - 1, request_of(rank.asked - 1)))
        elif able:
            rank = self.chance.choice(able)
            self.tell(rank.number, rank.step())
        else:
            self.send(self.coordinator.decide(self.now_s))

    def die(self, number):
        """End a start of a rank; the coordinator hears of it at some time, or at once."""
        members = {*self.coordinator.members}
        left, bases = members - self.gone - {number}, (members, *self.coordinator.bases)
        if number in self.gone or number == 0 or any(2 * len(left & {*base}) <= len(base) for base in bases):
            return
        self.gone.add(number)

    def notice(self):
        """Let the coordinator hear of a death."""
        for number in sorted(self.gone & {*self.coordinator.members}):
            if self.chance.random() < 0.3:
                self.send(self.coordinator.lose({number: "is gone"}, self.now_s))

    def revive(self):
        """Start a lost rank again."""
        for number in sorted(self.gone - {*self.coordinator.members}):
            if self.chance.random() < 0.1:
                self.starts[number] += 1
                self.gone.discard(number)
                self.ranks[number] = Rank(number, self.starts[number])


@settings(max_examples=drawn(200), deadline=None)
@given(st.integers(3, 6), st.integers(0, 1 << 32), st.integers(0, 12), st.integers(0, 3))
def test_whoever_is_let_in_agrees_with_all_on_every_result_from_then_on(ranks, seed, deaths, spares):
    chance, requests = random.Random(seed), 24
    world = World(ranks, chance, requests, spares)
    moments = {chance.randrange(1, 600) for _ in range(deaths)}
    for turn in range(20000):
        if turn in moments:
            world.die(chance.randrange(1, ranks + spares))
        world.notice()
        world.revive()
        world.act()
        members = {*world.coordinator.members}
        settled = turn > 600 and not members & world.gone and not world.coordinator.gathering
        if settled and all(world.ranks[number].done == requests for number in members):
            break
    members = world.coordinator.members
    assert {world.ranks[number].done for number in members} == {requests}
    for seq in range(requests):
        holding = [rank for rank in world.ranks.values() if seq in rank.results]
        (found,) = {str(rank.results[seq]) for rank in holding if rank.number in members}
        parts, new = next(rank.results[seq] for rank in holding if rank.number in members)
        assert found == str((parts, new))
        carried = [rank for part in parts for rank in part]
        assert len(carried) == len(set(carried))
        assert {rank.number for rank in holding if rank.number in members} <= set(carried)
        assert new is None or set(new) <= set(carried)
    for rank in (world.ranks[number] for number in members):
        # It takes part from the request on by which it was let in, and without a gap.
        assert sorted(rank.results) == list(range(min(rank.results), requests))
        if rank.start:
            assert rank.number in rank.results[min(rank.results)][1]


def all_ready(coordinator, seq, request, now_s=0.0):
    """Return the decision once all members are ready for a request."""
    found = []
    for rank in coordinator.members:
        found += coordinator.hear(rank, Ready(seq, request), now_s)
    return found


def without_one(ranks, lost, rank=0):
    """A coordinator of ``ranks`` that has lost one of them, at request 0."""
    coordinator = Coordinator(rank, Membership((*range(ranks),)), WaitPolicy(), lambda *_: 0.0)
    coordinator.lose({lost: "is gone"}, 0.0)
    for one in coordinator.members:
        coordinator.hear(one, WorkerState(1, 0, (), {}), 0.0)
    return coordinator


def test_nobody_is_let_in_but_where_all_have_arrived():
    coordinator = without_one(3, 1)
    assert coordinator.hear(1, Join(1, {0: 0, 2: 0}), 0.0) == []
    (go,) = all_ready(coordinator, 0, ASKED)
    assert isinstance(go, Go) and go.part == (0, 2)
    (regroup,) = all_ready(coordinator, 1, ADMIT)
    after = Membership((0, 1, 2), 2, joined={1: 1}, starts={1: 1}, joining=(1,))
    assert (regroup.epoch, regroup.membership) == (2, after)
    for rank in (0, 2):
        assert coordinator.hear(rank, WorkerState(2, 1, (), {1: ADMIT}), 0.0) == []
    decisions = coordinator.hear(1, WorkerState(2, -1, (), {}), 0.0)
    assert decisions == [Resume(2, 1, 0, {}), Go(2, 1, ADMIT, (0, 1, 2), 0, last=True)]


@pytest.mark.parametrize(
    ("met", "asked_s"), [({0: 0}, 0.0), ({0: 0, 2: 1}, 0.0), ({0: 0, 2: 0}, -9.0)], ids=["few", "old", "gone"]
)
def test_a_rank_that_does_not_reach_all_or_asks_no_more_is_not_let_in(met, asked_s):
    coordinator = without_one(3, 1)
    coordinator.hear(1, Join(1, met), asked_s)
    assert coordinator.unmet(1) == (() if met == {0: 0, 2: 0} else (2,))
    assert all_ready(coordinator, 0, ADMIT) == [Go(1, 0, ADMIT, (0, 2), 0, last=True)]


def test_two_are_let_in_together_if_they_reach_each_other():
    for met, joined in (({0: 0, 1: 0, 3: 0, 2: 1}, (2, 4)), ({0: 0, 1: 0, 3: 0}, (2,))):
        coordinator = Coordinator(0, Membership((*range(5),)), WaitPolicy(), lambda *_: 0.0)
        coordinator.lose({2: "is gone", 4: "is gone"}, 0.0)
        for rank in coordinator.members:
            coordinator.hear(rank, WorkerState(1, 0, (), {}), 0.0)
        coordinator.hear(2, Join(1, {0: 0, 1: 0, 3: 0}), 0.0)
        coordinator.hear(4, Join(1, met), 0.0)
        assert (coordinator.unmet(4) == ()) == (joined == (2, 4))
        (regroup,) = all_ready(coordinator, 0, ADMIT)
        assert regroup.membership.joining == joined


def test_a_rank_that_dies_before_it_is_in_does_not_count():
    coordinator = Coordinator(1, Membership((1,)), WaitPolicy(), lambda *_: 0.0)
    coordinator.hear(0, Join(1, {1: 0}), 0.0)
    (regroup,) = coordinator.hear(1, Ready(0, ADMIT), 0.0)
    assert regroup.membership.members == (0, 1)
    (regroup,) = coordinator.lose({0: "is gone"}, 0.1)
    assert (regroup.epoch, regroup.membership.members, regroup.membership.joining) == (2, (1,), ())
    assert coordinator.hear(1, WorkerState(2, 0, (), {0: ADMIT}), 0.1)[-1] == Go(
        2, 0, ADMIT, (1,), 0, last=True
    )


def test_who_takes_over_while_ranks_join_needs_enough_of_both_memberships():
    def taking_over():
        members = Membership((0, 1, 2, 3), epoch=3, joined={3: 6}, starts={3: 1}, joining=(3,))
        return Coordinator(1, members, WaitPolicy(), lambda *_: 0.0)

    (regroup,) = taking_over().lose({0: "is gone"}, 0.0)
    assert (regroup.membership.members, regroup.membership.joining) == ((1, 2, 3), (3,))
    with pytest.raises(LostRankError, match="2 of 4 ranks are left"):
        taking_over().lose({0: "is gone", 3: "is gone"}, 0.0)


def test_the_one_that_is_there_longest_decides():
    assert leader_of((0, 1, 2), {0: 7}) == 1
    assert leader_of((0, 2), {0: 7, 2: 9}) == 0


def test_a_rank_that_is_told_of_an_epoch_that_it_has_is_told_of_a_later_one():
    coordinator = without_one(3, 0, rank=1)
    (regroup,) = coordinator.hear(2, Outdated(4), 0.0)
    assert (regroup.epoch, regroup.membership.members) == (5, (1, 2))
    assert coordinator.hear(2, Outdated(4), 0.0) == []
