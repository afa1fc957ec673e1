"""Watches with a short budget on drawn networks with a known fault: what is named, when, and changed."""

import itertools
import math
import random

import numpy as np
import pytest
from few_methods import search_briefly
from given_profile import profile_of_links

from ccctl.artifacts import codec
from ccctl.launching import Deadline
from ccctl.render.text.watch import say_decision, say_found, summary as summary_of
from ccctl.watch.once import WatchRequest, measure_and_judge, replan
from ccctl.watch.state import opened, read_schedule
from exec.replan import SchedulePrediction
from synth import synthesize
from synth.networks.measured import from_profile

ROUND_S = 0.1
NOISE = 0.01
# Promises hold for measured noise and for the loss of a link that must be reported.
LEAST_OF_PROMISE = 0.92


@pytest.fixture(autouse=True)
def few_methods(monkeypatch):
    search_briefly(monkeypatch)


def profile(hosts, share, *, pairs=None, seed=0, noise=NOISE, seconds=1.0):
    """Links of 1 GB/s between hosts, those in ``share`` of less, as one measurement gives them."""
    rng = np.random.default_rng(seed)
    pairs = list(itertools.permutations(range(len(hosts)), 2)) if pairs is None else pairs
    beta = np.array([1e-9 / share.get(pair, 1.0) for pair in pairs]) * np.exp(
        rng.uniform(-noise, noise, len(pairs))
    )
    spread = {"alphas": (1, 1.05, 1.1), "betas": (1, 1.01, 1.02, 0.995, 1.005), "samples": 30}
    return profile_of_links(hosts, pairs, 20e-6, beta, **spread, seconds=seconds)


class Cluster:
    """A baseline and a schedule for it; what links really do; a clock that counts rounds."""

    def __init__(self, folder, hosts, *, size=1 << 20):
        self.hosts = [f"gpu{number}" for number in range(hosts)]
        self.share, self.runs, self.looks = {}, 0, 0
        self.folder = folder
        codec.write(str(folder / "profile.json"), "profile", profile(self.hosts, {}))
        ring = synthesize(from_profile(profile(self.hosts, {}, noise=0)), "all_reduce", size, method="ring")
        codec.write(str(folder / "schedule.json"), "schedule", ring.schedule)

    def request(self, budget_s):
        baseline = codec.read(str(self.folder / "profile.json"), "profile")
        return WatchRequest(baseline, read_schedule(str(self.folder / "schedule.json")), None, 1.05, budget_s)

    def measure(self, look):
        """The rounds that fit, the first in any case, as a profile."""
        self.looks += 1
        rounds = {}
        for at, *pair in zip(
            look.turns.round.tolist(), look.turns.src.tolist(), look.turns.dst.tolist(), strict=True
        ):
            rounds.setdefault(at, []).append(tuple(pair))
        fit = list(rounds.values())[: max(1, int(look.budget_s / ROUND_S + 1e-9))]
        for ring in fit:
            assert len({src for src, _ in ring}) == len({dst for _, dst in ring}) == len(ring)
        there = range(len(self.hosts))
        pairs = [pair for ring in fit for pair in ring if pair[0] in there and pair[1] in there]
        return profile(self.hosts, self.share, pairs=pairs, seed=self.looks, seconds=ROUND_S * len(fit))

    def run(self, budget_s):
        """The request, the findings and the decision of one run, a minute after the last."""
        self.runs += 1
        request, at_s = self.request(budget_s), 1e9 + 60.0 * self.runs
        with opened(str(self.folder / "state")) as state:
            found = measure_and_judge(request, state, self.measure, at_s)
            return request, found, replan(request, state, found, Deadline(None), at_s)

    @property
    def network(self):
        return from_profile(profile(self.hosts, self.share, noise=0))

    def named(self, found):
        return {
            (int(found.verdict.history.src[row]), int(found.verdict.history.dst[row]))
            for one in found.standing
            for row in one.change.rows
        }


def drawn(rng, hosts):
    """A fault: what a host sends or receives, links of a host by different amounts, or single links."""
    pairs = list(itertools.permutations(range(hosts), 2))
    kind, bad = rng.choice(["sends", "receives", "uneven", "single"]), rng.randrange(hosts)
    if kind == "single":
        return {pair: rng.uniform(0.1, 0.8) for pair in rng.sample(pairs, rng.randint(1, 3))}
    mine = [pair for pair in pairs if pair[kind == "receives"] == bad]
    share = rng.uniform(0.1, 0.8)
    return {pair: rng.uniform(0.1, 0.8) if kind == "uneven" else share for pair in mine}


# Seed 2: four hosts, the links of one differ, and the budget covers a third of the links.
# Seed 8: five hosts, one receives slowly, and the budget covers most of the links.
SHORT = (2, 8)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.long] * (seed not in SHORT)) for seed in range(16)]
)
def test_no_schedule_is_changed_on_a_guess_and_every_fault_is_named_in_its_turn(seed, tmp_path):
    rng = random.Random(seed)
    cluster = Cluster(tmp_path, rng.randint(4, 7))
    rounds = len(cluster.hosts) - 1
    budget_s = ROUND_S * rng.randint(1, rounds + 1)
    for _ in range(rng.randint(0, 3)):
        cluster.run(budget_s)
    cluster.share = drawn(rng, len(cluster.hosts))
    worst = min(cluster.share, key=cluster.share.__getitem__)
    turns = math.ceil(rounds * ROUND_S / budget_s - 1e-9)
    named_in, changed = None, False
    for number in range(1, 2 * turns + 2):
        _, found, outcome = cluster.run(budget_s)
        named = cluster.named(found)
        assert named <= cluster.share.keys()
        if worst in named and named_in is None:
            named_in = number
        if named_in is not None:
            # It stays named, whether its turn has come again or not.
            assert worst in named
        if outcome.adopted is not None:
            assert named == cluster.share.keys()
            before, after = (
                SchedulePrediction(one).time_s(cluster.network)
                for one in (found.current.schedule, outcome.plan.schedule)
            )
            assert before / after >= LEAST_OF_PROMISE * outcome.plan.gain
            changed = True
    assert named_in <= turns
    assert not outcome.unknown
    # In the end it is as with a budget for all.
    (tmp_path / "all").mkdir()
    rich = Cluster(tmp_path / "all", len(cluster.hosts))
    rich.share = cluster.share
    assert changed == (rich.run(10.0)[2].adopted is not None)


@pytest.mark.parametrize("rounds", [1, pytest.param(2, marks=pytest.mark.long), 3])
def test_what_does_not_fit_is_said_with_the_budget_that_would_do(rounds, tmp_path, capsys):
    cluster = Cluster(tmp_path, 5)
    cluster.share = {(2, other): 0.3 for other in range(5) if other != 2}
    budget_s = ROUND_S * rounds
    request, found, outcome = cluster.run(budget_s)
    say_found(request, found)
    say_decision(request, found, outcome, tmp_path / "current.json")
    said = capsys.readouterr()
    left = 20 - 5 * rounds
    advice = f"--budget {found.budget_for_all_s:g}s"
    assert (
        f"{left} of 20 links of {tmp_path}/profile.json did not fit into --budget {budget_s:g}s" in said.err
    )
    assert f"{advice} measures all in one run" in said.err
    assert (outcome.plan, outcome.adopted) == (None, None)
    assert "current.json stays: " in said.out
    assert f"{left} of 20 links (" in said.out and f"or with {advice}" in said.out
    summary = summary_of(request, found, outcome, tmp_path / "current.json", 1.0)
    assert (summary["unmeasured"], len(summary["unknown"])) == (left, left)
    assert summary["budget_for_all_s"] == found.budget_for_all_s <= 2 * 4 * ROUND_S
    _, found, outcome = cluster.run(found.budget_for_all_s)
    assert (found.budget_for_all_s, outcome.unknown) == (None, ())
    assert outcome.adopted is not None


def test_links_of_a_host_that_drifts_come_first_and_stay_named_until_they_are_measured_well(tmp_path):
    cluster = Cluster(tmp_path, 4)
    for _ in range(3):
        cluster.run(ROUND_S)
    cluster.share = {(1, other): 0.4 for other in (0, 2, 3)}
    _, found, _ = cluster.run(ROUND_S)
    [first] = cluster.named(found)
    assert first in cluster.share
    cluster.share = {}
    # A bad link is measured again at once, and has recovered; no link is bad that was not measured.
    _, found, _ = cluster.run(ROUND_S)
    assert (found.standing, [one.what for one in found.verdict.recovered]) == ((), [_name(cluster, first)])


def test_a_host_that_is_gone_is_an_event_once_until_it_is_back(tmp_path):
    cluster = Cluster(tmp_path, 4)
    everybody, kinds = cluster.hosts, []
    for hosts in (everybody, everybody[:3], everybody[:3], everybody, everybody[:3]):
        cluster.hosts = hosts
        _, found, outcome = cluster.run(10.0)
        kinds.append([event.kind for event in found.events])
        assert outcome.adopted is None
    assert kinds == [[], ["gone"], [], [], ["gone"]]


def _name(cluster, pair):
    return " → ".join(cluster.hosts[rank] for rank in pair)
