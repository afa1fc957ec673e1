"""Whatever arrives when, and whoever is lost: every survivor's data is in each result once, and all agree."""

import math
import random

import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from exec.adaptive.coordinator import ANSWERING, Coordinator, WaitPolicy
from exec.adaptive.messages import (
    Beat,
    CollectiveCall,
    Go,
    Membership,
    PartDone,
    Ready,
    Regroup,
    Resume,
    WorkerState,
)
from probes.base.errors import LostRankError

ASKED = CollectiveCall("all_reduce", "sum", "float32", 8, 4)


class Rank:
    """A rank that carries out decisions one by one, as its session does."""

    def __init__(self, number):
        self.number, self.epoch, self.done = number, 0, 0
        self.parts, self.results, self.queue, self.asked = [], {}, [], set()
        self.open_to, self.members = frozenset(), frozenset()

    def step(self):
        """Carry out the next decision; what it says to the coordinator."""
        decision = self.queue.pop(0)
        if isinstance(decision, Regroup):
            self.epoch, self.members = decision.epoch, frozenset(decision.membership.members)
            ready = {seq: ASKED for seq in self.asked if seq >= self.done}
            return WorkerState(self.epoch, self.done, tuple(self.parts), ready, self.open_to)
        if decision.epoch != self.epoch:
            return Beat()
        if isinstance(decision, Resume):
            if self.done == decision.seq:
                del self.parts[decision.kept :]
                if not decision.kept:
                    self.open_to = frozenset()
            self.wanted = decision
            return Beat()
        assert isinstance(decision, Go) and decision.seq == self.done
        if self.number in decision.part:
            assert decision.seq in self.asked
        if not self.parts:
            # Every late rank may have joined.
            self.open_to = self.members - {*decision.part}
        self.parts.append(decision.part)
        if decision.last:
            assert self.open_to <= {rank for part in self.parts for rank in part}
            self.results[self.done], self.parts, self.open_to = tuple(self.parts), [], frozenset()
            self.done += 1
        return PartDone(self.epoch, decision.seq, decision.number, decision.last, 0.0)


class World:
    """Ranks, a coordinator and a clock; messages arrive in the order they were sent."""

    def __init__(self, ranks, chance, buy_s, requests):
        self.ranks = {number: Rank(number) for number in range(ranks)}
        for rank in self.ranks.values():
            rank.members = frozenset(self.ranks)
        self.chance, self.now_s, self.requests = chance, 0.0, requests
        self.coordinator = Coordinator(0, Membership((*range(ranks),)), WaitPolicy(), lambda *_: buy_s)
        self.ever_in = {}

    def send(self, decisions):
        for decision in decisions:
            for number in self.coordinator.members:
                self.ranks[number].queue.append(decision)
            if isinstance(decision, Resume):
                self.fetch(decision)

    def fetch(self, resume):
        """Ranks that lack a result get it from one that has it, before they go on."""
        for seq, holder in resume.holders.items():
            for number in self.coordinator.members:
                rank = self.ranks[number]
                if rank.done <= seq:
                    rank.results[seq] = self.ranks[holder].results[seq]
                    rank.done, rank.parts, rank.open_to = seq + 1, [], frozenset()

    def tell(self, number, message):
        self.send(self.coordinator.hear(number, message, self.now_s))

    def act(self):
        """Let something happen."""
        self.now_s += self.chance.choice([0.0, 0.001, 0.02])
        alive = [self.ranks[number] for number in self.coordinator.members]
        able = [rank for rank in alive if rank.queue]
        asking = [rank for rank in alive if len(rank.asked) < self.requests]
        if asking and (not able or self.chance.random() < 0.3):
            rank = self.chance.choice(asking)
            rank.asked.add(len(rank.asked))
            self.tell(rank.number, Ready(len(rank.asked) - 1, ASKED))
        elif able:
            rank = self.chance.choice(able)
            self.tell(rank.number, rank.step())
        else:
            self.send(self.coordinator.decide(self.now_s))

    def kill(self, number):
        self.send(self.coordinator.lose({number: "is gone"}, self.now_s))


@settings(max_examples=drawn(200), deadline=None)
@given(st.integers(2, 6), st.integers(0, 1 << 32), st.sampled_from([0.0, 0.005, 1.0]), st.integers(0, 2))
def test_survivors_agree_on_results_that_hold_their_data_once(ranks, seed, buy_s, deaths):
    chance, requests = random.Random(seed), 6
    world = World(ranks, chance, buy_s, requests)
    kills = sorted(chance.sample(range(1, 200), deaths))
    for turn in range(2000):
        if kills and turn == kills[0]:
            kills.pop(0)
            victim = chance.choice([number for number in world.coordinator.members if number] or [None])
            most = max(map(len, world.coordinator.bases))
            if victim is not None and 2 * (len(world.coordinator.members) - 1) >= most:
                world.kill(victim)
        world.act()
        if all(world.ranks[number].done == requests for number in world.coordinator.members):
            break
    members = world.coordinator.members
    survivors = [world.ranks[number] for number in members]
    assert {rank.done for rank in survivors} == {requests}
    for seq in range(requests):
        (parts,) = {rank.results[seq] for rank in survivors}
        carried = [rank for part in parts for rank in part]
        assert len(carried) == len(set(carried))
        assert set(members) <= set(carried)


def test_all_ready_at_once_is_one_part():
    coordinator = Coordinator(0, Membership((*range(3),)), WaitPolicy(), lambda *_: 1.0)
    assert coordinator.hear(0, Ready(0, ASKED), 0.0) == []
    assert coordinator.hear(2, Ready(0, ASKED), 0.0) == []
    (go,) = coordinator.hear(1, Ready(0, ASKED), 0.0)
    assert (go.part, go.last) == ((0, 1, 2), True)


def test_it_goes_on_without_the_late_once_waiting_has_cost_as_much():
    coordinator = Coordinator(0, Membership((*range(3),)), WaitPolicy(), lambda *_: 0.010)
    coordinator.hear(0, Ready(0, ASKED), 0.0)
    assert coordinator.hear(1, Ready(0, ASKED), 0.004) == []
    assert coordinator.decide(0.009) == []
    (first,) = coordinator.decide(0.010)
    assert (first.part, first.last) == ((0, 1), False)
    (second,) = coordinator.hear(2, Ready(0, ASKED), 0.5)
    assert (second.part, second.number, second.last) == ((2,), 1, True)


def test_an_offer_ends_with_the_schedules_that_it_was_made_for():
    costs = [0.010]
    coordinator = Coordinator(0, Membership((*range(3),)), WaitPolicy(), lambda *_: costs[-1])
    assert coordinator.hear(0, Ready(0, ASKED), 1.0) == []
    assert coordinator.hear(1, Ready(0, ASKED), 1.002) == []
    # Between two requests the ranks swap to schedules that have no contexts for late ranks.
    costs.append(math.inf)
    assert coordinator.decide(1.005) == []
    assert coordinator.decide(9.0) == []
    costs.append(0.020)
    [go] = coordinator.decide(9.1)
    assert go.part == (0, 1)


@pytest.mark.parametrize(("open_to", "kept"), [((), 1), ((2,), 1), ((3,), 0), ((2, 3), 0)])
def test_a_part_that_a_lost_rank_may_have_joined_is_done_again(open_to, kept):
    coordinator = Coordinator(0, Membership((*range(4),)), WaitPolicy(), lambda *_: 0.0)
    for rank in (0, 1):
        coordinator.hear(rank, Ready(0, ASKED), 0.0)
    coordinator.lose({3: "is gone"}, 1.0)
    for rank in (0, 1, 2):
        ready = {0: ASKED} if rank < 2 else {}
        decisions = coordinator.hear(rank, WorkerState(1, 0, ((0, 1),), ready, frozenset(open_to)), 1.0)
    assert decisions[0] == Resume(1, 0, kept, {})


def test_a_part_stays_with_the_data_of_a_lost_rank_where_all_of_that_is_in():
    coordinator = Coordinator(0, Membership((*range(4),)), WaitPolicy(), lambda *_: 0.0)
    coordinator.lose({3: "is gone"}, 1.0)
    for rank in (0, 1, 2):
        state = WorkerState(1, 0, ((0, 1), (3,)), {0: ASKED}, frozenset({2, 3}))
        decisions = coordinator.hear(rank, state, 1.0)
    assert decisions[:2] == [Resume(1, 0, 2, {}), Go(1, 0, ASKED, (2,), 2, last=True)]


def test_without_relays_everybody_is_waited_for():
    coordinator = Coordinator(0, Membership((*range(3),)), WaitPolicy(relays=False), lambda *_: 0.0)
    coordinator.hear(0, Ready(0, ASKED), 0.0)
    coordinator.hear(1, Ready(0, ASKED), 0.0)
    assert coordinator.decide(100.0) == []


def test_who_is_late_but_alive_is_not_lost():
    coordinator = Coordinator(0, Membership((*range(3),)), WaitPolicy(silent_s=1.0), lambda *_: 0.0)
    for tenth in range(200):
        for rank in (1, 2):
            coordinator.hear(rank, Beat(), tenth / 10)
        assert coordinator.silent(tenth / 10) == {}
    for tenth in range(200, 212):
        lost = coordinator.silent(tenth / 10)
    assert set(lost) == {1, 2}


def test_as_published_who_is_not_ready_in_time_is_lost_although_alive():
    policy = WaitPolicy(as_published=True, fault_factor=5.0)
    coordinator = Coordinator(0, Membership((*range(3),)), policy, lambda *_: 0.0)
    for rank in (0, 1):
        coordinator.hear(rank, Ready(0, ASKED), 10.0)
    coordinator.hear(0, PartDone(0, 0, 0, False, 0.1), 10.1)
    for now_s in (10.2, 10.4, 10.59):
        coordinator.hear(2, Beat(), now_s)
        assert coordinator.silent(now_s) == {}
    coordinator.hear(2, Beat(), 10.61)
    assert list(coordinator.silent(10.61)) == [2]


@pytest.mark.parametrize("answering", [set(), {1}, {1, 2}])
def test_a_rank_whose_host_answers_is_waited_for_three_times_as_long(answering):
    coordinator = Coordinator(0, Membership((*range(3),)), WaitPolicy(silent_s=1.0), lambda *_: 0.0)
    lost_s = {}
    for hundredth in range(400):
        for rank in coordinator.silent(hundredth / 100, lambda rank: rank in answering):
            lost_s.setdefault(rank, hundredth / 100)
    allowed_s = {rank: ANSWERING if rank in answering else 1.0 for rank in (1, 2)}
    assert {rank: round(at_s - allowed_s[rank], 1) for rank, at_s in lost_s.items()} == {1: 0.0, 2: 0.0}


def test_a_rank_whose_host_answers_no_longer_is_lost_at_once():
    coordinator = Coordinator(0, Membership((*range(3),)), WaitPolicy(silent_s=1.0), lambda *_: 0.0)
    answers = dict.fromkeys((1, 2), True)
    for hundredth in range(200):
        assert coordinator.silent(hundredth / 100, answers.__getitem__) == {}
    answers[2] = False
    assert set(coordinator.silent(2.0, answers.__getitem__)) == {2}


def test_while_the_coordinator_does_not_run_nobody_is_silent():
    coordinator = Coordinator(0, Membership((*range(3),)), WaitPolicy(silent_s=1.0), lambda *_: 0.0)
    for hundredth in range(50):
        assert coordinator.silent(hundredth / 100) == {}
    # It lacks a core for five seconds, and looks before it has read what came meanwhile.
    assert coordinator.silent(5.5) == {}
    coordinator.hear(1, Beat(), 5.51)
    for hundredth in range(551, 640):
        silent = coordinator.silent(hundredth / 100)
    assert set(silent) == {2}


def test_ranks_that_are_lost_one_by_one_count_together_until_the_rest_agrees():
    coordinator = Coordinator(0, Membership((*range(3),)), WaitPolicy(), lambda *_: 0.0)
    coordinator.lose({1: "was silent"}, 0.0)
    with pytest.raises(LostRankError, match="1 of 3 ranks are left"):
        coordinator.lose({2: "was silent"}, 0.1)
    coordinator = Coordinator(0, Membership((*range(3),)), WaitPolicy(), lambda *_: 0.0)
    coordinator.lose({1: "was silent"}, 0.0)
    for rank in (0, 2):
        coordinator.hear(rank, WorkerState(1, 0, (), {}), 0.1)
    (regroup,) = coordinator.lose({2: "was silent"}, 0.2)
    assert regroup.membership.members == (0,)


def test_a_minority_does_not_go_on():
    coordinator = Coordinator(0, Membership((*range(5),)), WaitPolicy(), lambda *_: 0.0)
    with pytest.raises(LostRankError, match="2 of 5 ranks are left"):
        coordinator.lose({1: "is gone", 2: "is gone", 3: "is gone"}, 0.0)
    upper = Coordinator(2, Membership((*range(4),)), WaitPolicy(), lambda *_: 0.0)
    with pytest.raises(LostRankError, match="cannot go on"):
        upper.lose({0: "is gone", 1: "is gone"}, 0.0)
    lower = Coordinator(0, Membership((*range(4),)), WaitPolicy(), lambda *_: 0.0)
    (regroup,) = lower.lose({2: "is gone", 3: "is gone"}, 0.0)
    assert regroup.membership.members == (0, 1)


def test_a_request_whose_root_is_lost_ends_with_nothing_once_all_have_asked():
    asked = CollectiveCall("broadcast", "sum", "float32", 8, 4, root=1)
    coordinator = Coordinator(0, Membership((*range(3),)), WaitPolicy(), lambda request, ready, late: 0.0)
    coordinator.lose({1: "is gone"}, 0.0)
    for rank in (0, 2):
        decisions = coordinator.hear(rank, WorkerState(1, 0, (), {}), 0.0)
    assert decisions == [Resume(1, 0, 0, {})]
    assert coordinator.hear(0, Ready(0, asked), 0.1) == []
    assert coordinator.hear(2, Ready(0, asked), 0.2) == [Go(1, 0, asked, (), 0, last=True)]


def test_a_broadcast_waits_for_late_ranks():
    asked = CollectiveCall("broadcast", "sum", "float32", 8, 4)
    coordinator = Coordinator(0, Membership((*range(3),)), WaitPolicy(), lambda request, ready, late: 0.0)
    for rank in (0, 1):
        assert coordinator.hear(rank, Ready(0, asked), 0.0) == []
    assert coordinator.decide(0.5) == []
    assert coordinator.hear(2, Ready(0, asked), 0.6) == [Go(0, 0, asked, (0, 1, 2), 0, last=True)]


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_to_all", "reduce"])
def test_what_has_data_of_several_ranks_goes_on_without_late_ones(kind):
    asked = CollectiveCall(kind, "sum", "float32", 8, 4)
    coordinator = Coordinator(0, Membership((*range(3),)), WaitPolicy(), lambda request, ready, late: 0.0)
    coordinator.hear(0, Ready(0, asked), 0.0)
    went = coordinator.hear(1, Ready(0, asked), 0.0) + coordinator.decide(0.5)
    assert went == [Go(0, 0, asked, (0, 1), 0, last=False)]
    assert coordinator.hear(2, Ready(0, asked), 0.6) == [Go(0, 0, asked, (2,), 1, last=True)]


def test_a_request_without_its_root_waits_for_all_and_costs_nothing():
    asked = CollectiveCall("reduce", "sum", "float32", 8, 4, root=2)

    def costs(request, ready, late):
        raise AssertionError("there is no schedule without the root")

    coordinator = Coordinator(0, Membership((*range(4),)), WaitPolicy(), costs)
    coordinator.lose({2: "died"}, 0.0)
    for rank in (0, 1, 3):
        coordinator.hear(rank, WorkerState(1, 0, (), {}, frozenset()), 0.0)
    assert coordinator.hear(0, Ready(0, asked), 0.1) + coordinator.hear(1, Ready(0, asked), 0.1) == []
    assert coordinator.decide(1.0) == []
    assert coordinator.hear(3, Ready(0, asked), 1.0) == [Go(1, 0, asked, (), 0, last=True)]
