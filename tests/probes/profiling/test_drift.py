import dataclasses
import itertools

import numpy as np
import pytest
from given_profile import profile_of_links
from slow_host import profile_with_slow_host

from probes.base.columns import floats
from probes.profiling.drift import Change, below_expectation, compare

HOSTS = tuple(f"gpu{host}" for host in range(6))


def profile(
    bandwidth_of=lambda src, dst: 10e9, *, hosts=HOSTS, spread=0.01, seed=0, alpha_s=5e-6, pairs=None
):
    """Links whose samples wander by ``spread``, as one run would show them."""
    pairs = list(itertools.permutations(range(len(hosts)), 2)) if pairs is None else pairs
    rng = np.random.default_rng(seed)
    beta = np.array([1 / bandwidth_of(src, dst) for src, dst in pairs])
    beta *= np.exp(rng.normal(0, spread / 2, len(pairs)))
    alpha = np.full(len(pairs), alpha_s) * np.exp(rng.normal(0, 0.05, len(pairs)))
    betas = (1, 1 + spread, 1 + 3 * spread, 1 - spread / 2, 1 + spread / 2)
    return profile_of_links(hosts, pairs, alpha, beta, alphas=(1, 1.1, 1.3), betas=betas, samples=50)


@pytest.mark.parametrize("spread", [0.002, 0.01, 0.05, 0.3])
def test_two_runs_of_one_cluster_hardly_ever_differ(spread):
    runs = [
        compare(profile(seed=2 * n, spread=spread), profile(seed=2 * n + 1, spread=spread)) for n in range(60)
    ]
    assert all(found.compared == 30 for found in runs)
    # Thresholds drawn from the spread may let chance through about once in 60 comparisons of 30 links.
    assert sum(bool(found.findings) for found in runs) <= 2


@pytest.mark.parametrize(
    ("share", "spread", "told"), [(0.8, 0.01, True), (0.8, 0.3, False), (0.3, 0.3, True)]
)
def test_how_much_is_too_much_comes_from_the_spread_of_the_baseline(share, spread, told):
    slow = profile(lambda src, dst: 10e9 * (share if (src, dst) == (1, 4) else 1), seed=1, spread=spread)
    found = compare(profile(spread=spread), slow)
    assert len(found.findings) == told
    if told:
        assert found.findings[0].startswith("gpu1 → gpu4: bandwidth 1")
        (change,) = found.changes
        assert change.links == ((1, 4),)
        assert change.now / change.before == pytest.approx(share, rel=0.3)
        assert change.worse


@pytest.mark.parametrize(
    ("slow", "start"),
    [
        (lambda src, dst: src == 2, "host gpu2 sends (5 of 5 links): bandwidth"),
        (lambda src, dst: dst == 2, "host gpu2 receives (5 of 5 links): bandwidth"),
        (lambda src, dst: True, "all 30 links: bandwidth"),
    ],
)
def test_what_changed_alike_is_one_finding(slow, start):
    found = compare(profile(), profile(lambda src, dst: 6e9 if slow(src, dst) else 10e9, seed=1))
    assert len(found.findings) == 1, found.findings
    assert found.findings[0].startswith(start)
    assert "% of the baseline" in found.findings[0]


@pytest.mark.parametrize(("before_gbs", "now_gbs"), [(9.47, 6.09), (6.09, 9.47)])
def test_medians_that_noise_hides_are_too_noisy_to_tell_and_no_lack_of_drift(before_gbs, now_gbs):
    noisy = {"hosts": HOSTS[:4], "spread": 0.35}
    before = profile(lambda src, dst: before_gbs * 1e9, **noisy)
    found = compare(before, profile(lambda src, dst: now_gbs * 1e9, seed=1, **noisy))
    assert found.findings == ()
    (one,) = found.unsure
    assert one.quantity == "bandwidth"
    assert one.before == pytest.approx(before_gbs * 1e9, rel=0.15)
    assert one.now == pytest.approx(now_gbs * 1e9, rel=0.15)


def test_medians_that_agree_or_whose_change_is_reported_are_not_too_noisy_to_tell():
    assert compare(profile(), profile(seed=1)).unsure == ()
    for rate in (6e9, 20e9):
        assert compare(profile(), profile(lambda src, dst, rate=rate: rate, seed=1)).unsure == ()


def test_what_became_faster_is_a_note():
    found = compare(profile(), profile(lambda src, dst: 20e9 if dst == 3 else 10e9, seed=1))
    assert found.findings == ()
    assert found.notes[0].startswith("host gpu3 receives (5 of 5 links): bandwidth")


def test_slow_once_is_not_slow_in_the_middle():
    now = profile(seed=1)
    beta = now.links.beta_s_per_byte.copy()
    beta[3] *= 2
    spoiled = dataclasses.replace(now.links, beta_s_per_byte=floats(beta))
    assert compare(profile(), dataclasses.replace(now, links=spoiled)).findings == ()


@pytest.mark.parametrize(("alpha_s", "told"), [(5.5e-6, 0), (15e-6, 1)])
def test_latency_drifts_too(alpha_s, told):
    found = compare(profile(), profile(seed=1, alpha_s=alpha_s))
    assert [text.partition(": l")[0] for text in found.findings] == ["all 30 links"][:told]


@pytest.mark.parametrize(
    ("quantity", "before", "now", "told"),
    [
        ("bandwidth", 12e6, 6e6, "bandwidth 0.012 → 0.006 GB/s, 50% of the baseline"),
        ("latency", 8e-6, 24e-6, "latency 8 → 24 us, 300% of the baseline"),
        ("latency", 8e-6, 2.99e-3, "latency 8 us → 2.99 ms, 374 times the baseline"),
        ("latency", 1e-3, 5e-3, "latency 1 → 5 ms, 500% of the baseline"),
    ],
)
def test_values_are_told_in_three_digits_and_the_unit_that_fits(quantity, before, now, told):
    assert Change("a → b", quantity, before, now, 1.0, ()).summary == f"a → b: {told}"


def test_a_latency_whose_ends_waited_for_cores_is_a_note():
    now = profile(seed=1, alpha_s=15e-6)
    links = dataclasses.replace(now.links, flags=("noisy,preempted", *now.links.flags[1:]))
    found = compare(profile(), dataclasses.replace(now, links=links))
    assert all("gpu0 → gpu1" not in text for text in found.findings)
    assert found.findings
    (note,) = found.notes
    assert note.startswith("gpu0 → gpu1: latency 4.75 → 16.7 us")
    assert note.endswith("does not count: one end waited for a core in every measurement")
    better = compare(dataclasses.replace(now, links=links), profile())
    assert (better.findings, better.doubtful) == ((), ())


def test_a_latency_of_nothing_that_doubles_is_no_finding():
    assert compare(profile(alpha_s=0.7e-6), profile(alpha_s=2.0e-6, seed=1)).findings == ()
    assert compare(profile(alpha_s=0.0), profile(alpha_s=1e-6, seed=1)).findings == ()


def test_ranks_are_matched_by_host_whatever_their_numbers():
    moved = tuple(reversed(HOSTS))
    slow = profile(
        lambda src, dst: 3e9 if (moved[src], moved[dst]) == ("gpu0", "gpu5") else 10e9, hosts=moved
    )
    assert compare(profile(), profile(hosts=moved)).findings == ()
    (finding,) = compare(profile(), slow).findings
    assert finding.startswith("gpu0 → gpu5: bandwidth 10")


def test_who_is_gone_and_who_is_new_is_named():
    now = profile(hosts=(*HOSTS[:4], "gpu9", "gpu9"))
    found = compare(profile(hosts=(*HOSTS[:4], *HOSTS[:2])), now)
    assert found.findings == (
        "rank 1 of host gpu0 of the baseline is not there",
        "rank 1 of host gpu1 of the baseline is not there",
    )
    assert "host gpu9 is not in the baseline" in found.notes
    assert found.compared == 12
    gone = compare(profile(), profile(hosts=("other",) * 6))
    assert len(gone.findings) == 6
    assert (gone.compared, gone.changes) == (0, ())


def test_links_that_one_side_lacks_are_counted():
    some = list(itertools.permutations(range(6), 2))[:20]
    found = compare(profile(), profile(pairs=some, seed=1))
    assert (found.compared, found.unmeasured, found.added) == (20, 10, 0)
    assert "10 links of the baseline were not measured now" in found.notes
    back = compare(profile(pairs=some, seed=1), profile())
    assert (back.compared, back.unmeasured, back.added) == (20, 0, 10)
    assert "10 links were not measured in the baseline" in back.notes


@pytest.mark.parametrize("hosts", [3, 4, 5])
@pytest.mark.parametrize("share", [0.75, 0.2])
def test_one_host_of_few_that_is_slow_both_ways_is_not_everybody(hosts, share):
    names = HOSTS[:hosts]
    slow = profile(lambda src, dst: 10e9 * (share if 1 in (src, dst) else 1), seed=1, hosts=names)
    found = compare(profile(hosts=names), slow).findings
    assert [text.split(" (")[0] for text in found] == ["host gpu1 sends and receives"]


SLOW_HOST = profile_with_slow_host(hosts=6, ranks_a_host=2, slow=3, times=2.4)


def test_the_links_of_a_slow_host_are_below():
    told = below_expectation(SLOW_HOST, 0.9e9)
    assert told.startswith("20 of 132 links below 0.9 GB/s: ")
    assert told.count("(node3 → ") == 4
    assert told.endswith(" and 16 more links")


def test_nothing_is_below_what_the_slowest_carries():
    slowest = float(1 / SLOW_HOST.links.beta_s_per_byte.max())
    assert below_expectation(SLOW_HOST, slowest) == ""
    assert below_expectation(SLOW_HOST, 1.001 * slowest).startswith("1 of 132 links below ")
