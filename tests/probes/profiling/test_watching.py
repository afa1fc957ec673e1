"""A watch never names unchanged links, always a halved link, and small changes that last."""

import dataclasses
import itertools

import numpy as np
import pytest
from drawn_examples import drawn
from given_profile import profile_of_links
from hypothesis import given, settings, strategies as st

from probes.base.columns import floats, ints
from probes.profiling.combine import brought_up_to_date, joined
from probes.profiling.history import MOST_EVENTS, MOST_RUNS, Event, begun, lasting_level, wander
from probes.profiling.watching import EFFECT, judged, with_events

HOSTS = ("gpu0", "gpu1", "gpu2", "gpu3")
PAIRS = list(itertools.permutations(range(len(HOSTS)), 2))
ONE = PAIRS.index((1, 3))


def profile(share=None, *, noise=0.0, spread=None, seed=0, alpha_s=10e-6, pairs=PAIRS, hosts=HOSTS):
    """Links of 10 GB/s, those in ``share`` of less, off by up to ``noise``; samples show ``spread``."""
    rng = np.random.default_rng(seed)
    spread = max(2 * noise, 0.002) if spread is None else spread
    beta = np.array([1e-10 / (share or {}).get(pair, 1.0) for pair in pairs])
    beta *= np.exp(rng.uniform(-noise, noise, len(pairs)))
    betas = (1, 1 + spread, 1 + 2 * spread, 1 / (1 + spread / 2), 1 + spread / 2)
    return profile_of_links(hosts, pairs, alpha_s, beta, alphas=(1, 1.05, 1.1), betas=betas, samples=50)


def followed(baseline, runs, **how):
    """The verdict on each of ``runs``, each after those before it."""
    history, found = begun(baseline), []
    for number, now in enumerate(runs):
        found.append(judged(history, baseline, now, 1000.0 + number, **how))
        history = found[-1].history
    return found


def named(verdict):
    return [(one.change.what, one.change.quantity) for one in verdict.standing]


@settings(max_examples=drawn(40))
@given(st.integers(0, 2**32 - 20), st.floats(0.0, 0.3), st.integers(1, 9))
def test_links_that_do_not_change_are_never_named(seed, noise, runs):
    given = [profile(noise=noise, seed=seed + number) for number in range(1 + runs)]
    for verdict in followed(given[0], given[1:]):
        assert (verdict.standing, verdict.recovered) == ((), ())
    assert verdict.history.runs == runs
    assert verdict.history.problems() == []


def test_a_host_is_named_though_one_of_its_links_came_and_went_before():
    def halved(**ends):
        at, host = next((("src", "dst").index(end), host) for end, host in ends.items())
        return {pair: 0.5 for pair in PAIRS if pair[at] == host}

    sends, receives = halved(src=3), halved(dst=2)
    runs = [{}, sends, sends, {}, {}, receives]
    given = [profile(share, noise=0.005, seed=number) for number, share in enumerate([{}, *runs])]
    found = followed(given[0], given[1:])
    assert named(found[1]) == [("host gpu3 sends (3 of 3 links)", "bandwidth")]
    assert named(found[-1]) == [("host gpu2 receives (3 of 3 links)", "bandwidth")]


@settings(max_examples=drawn(40))
@given(st.integers(0, 2**32 - 20), st.floats(0.0, 0.045), st.integers(0, 9), st.sampled_from(PAIRS))
def test_a_halved_link_is_always_named_and_no_other(seed, noise, quiet, pair):
    given = [profile(noise=noise, seed=seed + number) for number in range(1 + quiet)]
    slow = profile({pair: 0.5}, noise=noise, seed=seed - 1 if seed else 99)
    verdict = followed(given[0], [*given[1:], slow])[-1]
    (one,) = verdict.standing
    assert one.change.rows == (PAIRS.index(pair),)
    assert (one.change.quantity, one.new, one.lasting) == ("bandwidth", True, False)
    assert one.change.now / one.change.before == pytest.approx(0.5, rel=2 * noise + 0.01)


@settings(max_examples=drawn(40))
@given(st.floats(0.0, 50.0), st.floats(0.01, 0.3))
def test_no_noise_explains_that_a_link_has_less_than_a_third(spread, left):
    baseline = profile(spread=spread)
    (one,) = judged(begun(baseline), baseline, profile({(1, 3): left}, spread=spread), 1.0).standing
    assert one.change.rows == (ONE,)


@settings(max_examples=drawn(40))
@given(st.integers(0, 2**32 - 20), st.floats(0.01, 0.9), st.floats(0.001, 0.5))
def test_a_share_that_is_given_is_the_limit_whatever_the_noise(seed, share, beyond):
    baseline = profile(spread=0.3)
    inside, outside = 1 - share * (1 - beyond), 1 - share - beyond * (1 - share)
    verdicts = [
        judged(begun(baseline), baseline, profile({(1, 3): left}, spread=0.3), 1.0, share)
        for left in (inside, outside)
    ]
    assert [len(verdict.standing) for verdict in verdicts] == [0, 1]


def test_what_was_told_stays_so_until_half_way_back_and_then_has_recovered():
    levels = (0.89, 0.92, 0.96, 0.92, 0.89)
    found = followed(profile(), [profile({(1, 3): level}) for level in levels], share=0.1)
    assert [bool(verdict.standing) for verdict in found] == [True, True, False, False, True]
    assert [[one.what for one in verdict.recovered] for verdict in found] == [[], [], ["gpu1 → gpu3"], [], []]
    (back,) = found[2].recovered
    assert (back.since_s, back.rows) == (1000.0, (ONE,))
    assert str(back) == "gpu1 → gpu3: bandwidth 9.6 GB/s, 96% of the baseline"
    assert [one.new for verdict in found for one in verdict.standing] == [True, False, True]


def test_one_bad_run_does_not_last_and_several_do():
    quiet, slow = profile(), profile({(1, 3): 0.5})
    once = followed(quiet, [quiet, slow, quiet])
    assert [one.lasting for one in once[1].standing] == [False]
    assert once[2].standing == ()
    often = followed(quiet, [quiet] + [slow] * 6)
    lasting = [one.lasting for verdict in often[1:] for one in verdict.standing]
    assert lasting == [False] * 4 + [True] * 2
    assert {one.since_s for verdict in often[1:] for one in verdict.standing} == {1001.0}


def test_a_drop_below_what_one_run_can_tell_is_named_once_six_runs_agree():
    """Samples of a run agree with each other, but runs differ by up to 8 %: the history alone shows that."""
    how = {"noise": 0.08, "spread": 0.002}
    quiet = [profile(**how, seed=number) for number in range(30)]
    small = [profile({(1, 3): 0.78}, **how, seed=100 + number) for number in range(8)]
    baseline = profile(spread=0.002)
    found = followed(baseline, quiet + small)
    assert [named(verdict) for verdict in found[10:30]] == [[]] * 20
    assert found[30].standing == ()
    (one,) = found[-1].standing
    assert (one.change.what, one.lasting) == ("gpu1 → gpu3", True)


def test_a_host_that_sends_slower_is_one_change_and_so_is_its_recovery():
    slow = {pair: 0.5 for pair in PAIRS if pair[0] == 2}
    found = followed(profile(), [profile(slow), profile()])
    assert named(found[0]) == [("host gpu2 sends (3 of 3 links)", "bandwidth")]
    assert [one.what for one in found[1].recovered] == ["host gpu2 sends (3 of 3 links)"]


def test_a_latency_that_costs_nothing_does_not_stand():
    baseline, now = profile(), profile(alpha_s=20e-6)
    assert named(judged(begun(baseline), baseline, now, 1.0)) == [("all 12 links", "latency")]
    free = judged(begun(baseline), baseline, now, 1.0, matters=lambda change: change.quantity == "bandwidth")
    assert free.standing == ()
    assert not free.history.latency_since_s.any()


def test_links_that_were_not_measured_neither_recover_nor_count():
    some = [pair for pair in PAIRS if pair != (1, 3)]
    found = followed(profile(), [profile({(1, 3): 0.5}), profile(pairs=some), profile()])
    assert [len(verdict.recovered) for verdict in found] == [0, 0, 1]
    assert found[1].drift.unmeasured == 1
    assert found[-1].history.series("bandwidth", ONE).tolist() == [5e9, 10e9]


def test_a_host_that_is_gone_is_named_and_the_others_are_judged():
    three = [pair for pair in PAIRS if 3 not in pair]
    now = profile({(0, 1): 0.5}, pairs=three, hosts=HOSTS[:3])
    found = judged(begun(profile()), profile(), now, 1.0)
    assert found.drift.gone == ("host gpu3",)
    assert named(found) == [("gpu0 → gpu1", "bandwidth")]


def test_a_history_is_bounded_and_goes_on_when_a_clock_is_set_back():
    baseline = profile(pairs=PAIRS[:2])
    history = begun(baseline)
    for number in range(MOST_RUNS + 5):
        history = judged(history, baseline, baseline, 1000.0 - number).history
    assert history.runs == MOST_RUNS
    assert history.problems() == []
    many = with_events(history, [Event(1.0, "drift", str(number)) for number in range(MOST_EVENTS + 5)])
    assert [many.events[0].text, len(many.events)] == ["5", MOST_EVENTS]


def test_wander_is_that_of_the_runs_and_not_moved_by_a_change_of_the_level():
    baseline = profile()
    runs = [profile({(1, 3): 0.5 if number > 20 else 1.0}, noise=0.05, seed=number) for number in range(40)]
    history = followed(baseline, runs)[-1].history
    found = wander(history, "bandwidth")
    # This is the deviation of a uniform distribution over ± 5 %; no link is steadier than the middle one.
    assert found == pytest.approx(np.full(12, 0.05 / np.sqrt(3)), rel=0.6)
    assert not wander(begun(baseline), "bandwidth").any()
    level = lasting_level(history, "bandwidth", ONE, expected=10e9, sigma=0.03, least=0.08)
    assert level == pytest.approx(5e9, rel=0.05)
    assert lasting_level(history, "bandwidth", 0, expected=10e9, sigma=0.03, least=0.08) == 0.0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"hosts": ()}, "hosts: expected at least 1 rank, found none"),
        ({"dst": ints([1])}, "dst: expected 12 values, found 1"),
        ({"src": ints([9] + [0] * 11)}, "src[0]: there is no rank 9"),
        ({"alpha_s": floats([1.0])}, "alpha_s: expected 0 values, found 1"),
        ({"at_s": floats([-1.0])}, "at_s[0]: expected seconds from 0 to 253402300799, found -1.0"),
        (
            {"searched_s_per_byte": floats([1e-40] * 12)},
            "searched_s_per_byte[0]: expected 0, or a",
        ),
        ({"searched_s_per_byte": floats([1.0])}, "searched_s_per_byte: expected 12 values, found 1"),
        ({"events": (Event(-1.0, "drift", ""),)}, "events[0].at_s: expected seconds from 0"),
    ],
)
def test_what_contradicts_itself_is_a_problem(changed, said):
    found = dataclasses.replace(begun(profile()), **changed).problems()
    assert any(problem.startswith(said) for problem in found), found


def test_the_joined_two_measurements_is_taken_link_by_link():
    first = profile({(1, 3): 0.5, (0, 1): 0.5})
    again = profile({(1, 3): 1.0, (0, 1): 0.4}, pairs=[(0, 1), (1, 3)], alpha_s=5e-6)
    found = joined(first, again).links
    assert found.beta_s_per_byte[ONE] == pytest.approx(1e-10)
    assert found.beta_s_per_byte[0] == pytest.approx(2e-10)
    assert found.alpha_s[ONE] == 5e-6
    assert found.alpha_s[-1] == 10e-6


@pytest.mark.parametrize(("first", "second", "both"), [(True, True, True), (True, False, False)])
def test_one_undisturbed_look_is_enough_to_trust_a_latency(first, second, both):
    looks = []
    for preempted in (first, second):
        found = profile()
        flags = ("noisy,preempted" if preempted else "noisy",) * len(PAIRS)
        looks.append(dataclasses.replace(found, links=dataclasses.replace(found.links, flags=flags)))
    assert joined(*looks).links.flagged("preempted").tolist() == [both] * len(PAIRS)
    assert joined(*looks).links.flagged("noisy").all()


def test_only_what_changed_is_brought_up_to_date():
    baseline = profile()
    now = profile({(1, 3): 0.5, (0, 1): 0.97}, alpha_s=11e-6)
    found = judged(begun(baseline), baseline, now, 1.0)
    links = brought_up_to_date(baseline, now, found.changes).links
    assert links.beta_s_per_byte[ONE] == now.links.beta_s_per_byte[ONE]
    others = np.arange(12) != ONE
    assert (links.beta_s_per_byte[others] == baseline.links.beta_s_per_byte[others]).all()
    assert (links.alpha_s == baseline.links.alpha_s).all()
    assert EFFECT > 0.03
