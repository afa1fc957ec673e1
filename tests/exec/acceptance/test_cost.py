"""The price of faults, and the best hosts to keep."""

import math
from itertools import combinations

import pytest
from accepted_clusters import cluster_profile
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from exec.acceptance import collective_time_s, cost, costs, sound_network, spares, without_hosts
from probes.base import UsageError
from probes.localization import Fault, locate
from synth import Request, synthesize
from synth.networks import from_profile
from synth.prediction import schedule_run_s

SIZE = 1 << 26


def of_hosts(factors):
    """Return what slows links down that leave or enter these hosts."""
    return lambda src, dst: 1.0 if src == dst else max(factors.get(src, 1.0), factors.get(dst, 1.0))


def fault_of(profile, host, level):
    hosts = [rank.host for rank in profile.ranks]
    ends = enumerate(zip(profile.links.src.tolist(), profile.links.dst.tolist(), strict=True))
    rows = tuple(at for at, (src, dst) in ends if (hosts[src] == host) != (hosts[dst] == host))
    return Fault("host", (host,), level, rows=rows)


def test_a_single_rank_needs_no_time():
    assert collective_time_s(from_profile(cluster_profile(1, 1)), "all_reduce", SIZE) == 0.0


def test_estimates_of_many_ranks_continue_the_replays_of_few():
    times = [
        collective_time_s(from_profile(cluster_profile(hosts, 4)), "all_reduce", SIZE) for hosts in (64, 66)
    ]
    assert times[1] / times[0] == pytest.approx((263 / 264) / (255 / 256), rel=0.01)


def test_a_host_at_half_rate_costs_half_the_time():
    profile = cluster_profile(6, beta=of_hosts({"gpu3": 2.0}))
    found = costs(
        from_profile(profile), sound_network(profile), [fault_of(profile, "gpu3", 0.5)], "all_reduce", SIZE
    )
    assert found[0].times == pytest.approx(2.0, rel=0.01)
    assert (found[0].collective, found[0].size_bytes) == ("all_reduce", SIZE)


def test_of_two_equal_faults_each_costs_nothing_but_by_itself():
    profile = cluster_profile(6, beta=of_hosts({"gpu3": 2.0, "gpu5": 2.0}))
    faults = [fault_of(profile, host, 0.5) for host in ("gpu3", "gpu5")]
    asked = (from_profile(profile), sound_network(profile), faults, "all_reduce", SIZE)
    assert [one.times for one in costs(*asked)] == pytest.approx([1.0, 1.0], rel=0.01)
    assert [one.times for one in costs(*asked, alone=True)] == pytest.approx([2.0, 2.0], rel=0.01)


def test_latency_costs_small_messages_only():
    profile = cluster_profile(4, extra_s=lambda src, dst: 5e-3 * (src == "gpu2"))
    rows = tuple(at for at, src in enumerate(profile.links.src.tolist()) if src == 1)
    fault = Fault("latency", ("gpu2",), extra_s=5e-3, rows=rows)
    small, large = (
        costs(from_profile(profile), sound_network(profile), [fault], "all_reduce", size)[0].times
        for size in (8, SIZE)
    )
    assert small > 10
    assert large < 1.05


def test_the_slow_hosts_are_left_out():
    profile = cluster_profile(8, 2, beta=of_hosts({"gpu2": 3.0, "gpu7": 2.0}))
    network, whole = from_profile(profile), sound_network(profile)
    one, two = (spares(network, whole, [], count, size_bytes=SIZE) for count in (1, 2))
    assert (one.left_out, one.kept) == (("gpu2",), 7)
    assert (two.left_out, two.kept) == (("gpu2", "gpu7"), 6)
    assert one.percent < 60
    assert two.percent == pytest.approx(100, rel=0.02)
    assert spares(network, whole, [], 0, size_bytes=SIZE).left_out == ()


def test_among_equal_hosts_those_at_fault_go_first():
    network = from_profile(cluster_profile(5))
    assert spares(network, network, [], 1, size_bytes=SIZE).left_out == ("gpu5",)
    fault = Fault("loss", ("gpu2 mlx5_0",))
    assert spares(network, network, [fault], 1, size_bytes=SIZE).left_out == ("gpu2",)


@pytest.mark.parametrize("count", [-1, 4])
def test_more_spares_than_hosts_are_refused(count):
    network = from_profile(cluster_profile(4))
    with pytest.raises(UsageError, match=f"found {count}"):
        spares(network, network, [], count)


slow_hosts = st.lists(st.sampled_from([1.0, 1.0, 1.5, 2.0, 4.0]), min_size=4, max_size=7)


@settings(max_examples=drawn(25), deadline=None)
@given(slow_hosts, st.integers(1, 2), st.sampled_from(["all_reduce", "all_to_all"]), st.booleans())
def test_no_other_choice_is_faster(factors, count, kind, by_search):
    """Leave hosts out by every choice, and by the search that many hosts need."""
    profile = cluster_profile(
        len(factors), beta=of_hosts({f"gpu{at + 1}": factor for at, factor in enumerate(factors)})
    )
    network = from_profile(profile)
    with pytest.MonkeyPatch.context() as patch:
        if by_search:
            patch.setattr(cost, "_MOST_TRIED", 0)
        found = spares(network, network, [], count, kind, SIZE)
    hosts = dict.fromkeys(network.hosts)
    best_s = min(
        collective_time_s(without_hosts(network, left_out), kind, SIZE)
        for left_out in combinations(hosts, count)
    )
    assert found.time_s == pytest.approx(best_s, rel=0.01)


def test_a_host_that_cannot_be_reached_is_left_out():
    profile = cluster_profile(4)
    network = from_profile(profile)
    from synth.networks import Failures, without

    severed = without(network, Failures(links=tuple((2, other) for other in (0, 1, 3))))
    found = spares(severed, network, [], 1, size_bytes=SIZE)
    assert found.left_out == ("gpu3",)
    assert math.isfinite(found.time_s)


def test_an_all_to_all_of_many_ranks_is_estimated():
    times = [
        collective_time_s(from_profile(cluster_profile(hosts, 2)), "all_to_all", SIZE) for hosts in (64, 66)
    ]
    assert times[1] / times[0] == pytest.approx((130 / 132) / (126 / 128), rel=0.05)


def test_the_cost_is_that_of_the_schedule_that_runs():
    profile = cluster_profile(4, beta=lambda src, dst: 2.0 if src == "gpu2" else 1.0)
    network, sound = from_profile(profile, "measured"), sound_network(profile)
    [fault] = locate(profile)
    chosen = synthesize(Request(network, "all_reduce", sizes=(1 << 20,), jobs=1)).schedule
    [cost] = costs(network, sound, [fault], "all_reduce", 1 << 20, selection=chosen)
    schedule = chosen.choose(1 << 20)
    assert cost.algorithm == schedule.method
    # The schedule avoids the slow sender better than a ring can, and the rest is the model of its run.
    [ring] = costs(network, sound, [fault], "all_reduce", 1 << 20)
    assert ring.algorithm == ""
    assert cost.with_s == pytest.approx(schedule_run_s(schedule), rel=0.01)
    assert cost.without_s < cost.with_s
    # A selection of another collective does not count.
    [other] = costs(network, sound, [fault], "all_gather", 1 << 20, selection=chosen)
    assert other.algorithm == ""
