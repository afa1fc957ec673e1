"""Named samples of each kind of fault, and what must not change which faults are found."""

from collections.abc import Callable

import numpy as np
import pytest
from drawn_examples import drawn
from faulty_profile import RATE, Faulty
from hypothesis import given, settings, strategies as st

from probes.base import ints
from probes.link_costs import HostMemory, Links, Profile, SentSegments, SharedPort
from probes.localization import Bought, FabricPlan, Fault, locate

EVERY = list(range(6))
OFFER = Bought("1 GB/s", nic_bytes_per_s=RATE / 0.92)


def named(faults: list[Fault]) -> list[tuple[str, tuple[str, ...]]]:
    return sorted((fault.kind, fault.parts) for fault in faults)


def slow_egress(net: Faulty) -> None:
    net.rate[net.between([2], EVERY)] *= 0.5


def slow_ingress(net: Faulty) -> None:
    net.rate[net.between(EVERY, [2])] *= 0.6


def slow_host(net: Faulty) -> None:
    net.rate[net.of(2)] *= 0.7


def small_mtu(net: Faulty) -> None:
    net.rate[net.of(2)] *= 0.9


def unlike_ways(net: Faulty) -> None:
    net.rate[net.between([2], EVERY)] *= 0.5
    net.rate[net.between(EVERY, [2])] *= 0.75


def slow_pair(net: Faulty) -> None:
    net.rate[1, 4] *= 0.5
    net.rate[4, 1] *= 0.5


def slow_way(net: Faulty) -> None:
    net.rate[4, 1] *= 0.5


def slow_trunk(net: Faulty) -> None:
    net.racks([0, 1, 2, 3], [4, 5])
    net.rate[net.between([0, 1, 2, 3], [4, 5]) | net.between([4, 5], [0, 1, 2, 3])] *= 0.4


def slow_uplink(net: Faulty) -> None:
    net.racks([0, 1], [2, 3], [4, 5])
    net.rate[net.between([2, 3], [0, 1, 4, 5]) | net.between([0, 1, 4, 5], [2, 3])] *= 0.4


def far_host(net: Faulty) -> None:
    net.alpha_s[net.of(3)] += 1e-3


def far_pair(net: Faulty) -> None:
    net.alpha_s[net.between([0], [5]) | net.between([5], [0])] += 1e-3


def two_far_hosts(net: Faulty) -> None:
    net.alpha_s[net.of(3)] += 1e-3
    net.alpha_s[net.of(1)] += 2e-3


def far_and_slow(net: Faulty) -> None:
    far_host(net)
    net.rate[net.of(3)] *= 0.3


def unsteady_host(net: Faulty) -> None:
    net.late[net.of(3)] = 4.0


def unsteady_pair(net: Faulty) -> None:
    net.late[net.between([0], [5]) | net.between([5], [0])] = 4.0


def lossy_sender(net: Faulty) -> None:
    net.rate[net.between([3], EVERY)] *= 0.5
    net.late[net.between([3], EVERY)] = 2.0
    net.segments = tuple(SentSegments(name, 100_000, 3_000 if name == "gpu4" else 1) for name in net.names())


def lossy_receiver(net: Faulty) -> None:
    net.rate[net.between(EVERY, [3])] *= 0.5
    net.late[net.between(EVERY, [3])] = 2.0
    net.segments = tuple(SentSegments(name, 100_000, 1 if name == "gpu4" else 500) for name in net.names())


def silent_loss(net: Faulty) -> None:
    net.segments = tuple(SentSegments(name, 100_000, 3_000 if name == "gpu4" else 1) for name in net.names())


def slow_memory(net: Faulty) -> None:
    net.memory = tuple(
        HostMemory(name, (1024, 4096), (cost, cost), (cost, cost))
        for name in net.names()
        for cost in [2e-10 if name == "gpu5" else 1e-10]
    )


def slow_cpu(net: Faulty) -> None:
    slow_memory(net)
    net.rate[net.of(4)] *= 0.5
    net.alpha_s[net.of(4)] *= 1.5


def two_at_once(net: Faulty) -> None:
    slow_egress(net)
    net.rate[net.between(EVERY, [4])] = 0.3 * RATE


def none(net: Faulty) -> None:
    """Nothing is wrong."""


SAMPLES: list[tuple[Callable[[Faulty], None], list[tuple[str, tuple[str, ...]]]]] = [
    (slow_egress, [("egress", ("gpu3",))]),
    (slow_ingress, [("ingress", ("gpu3",))]),
    (slow_host, [("host", ("gpu3",))]),
    (small_mtu, [("host", ("gpu3",))]),
    (unlike_ways, [("host", ("gpu3",))]),
    (slow_pair, [("pair", ("gpu2", "gpu5"))]),
    (slow_way, [("one_way_pair", ("gpu5", "gpu2"))]),
    (slow_trunk, [("trunk", ("gpu1,gpu2,gpu3,gpu4", "gpu5,gpu6"))]),
    (slow_uplink, [("trunk", ("gpu3,gpu4",))]),
    (far_host, [("latency", ("gpu4",))]),
    (far_pair, [("latency", ("gpu1", "gpu6"))]),
    (two_far_hosts, [("latency", ("gpu2",)), ("latency", ("gpu4",))]),
    (far_and_slow, [("latency", ("gpu4",))]),
    (unsteady_host, [("flapping", ("gpu4",))]),
    (unsteady_pair, [("flapping", ("gpu1", "gpu6"))]),
    (lossy_sender, [("loss", ("gpu4",))]),
    (lossy_receiver, [("loss", ("gpu4",))]),
    (silent_loss, [("loss", ("gpu4",))]),
    (slow_memory, [("cpu", ("gpu5",))]),
    (slow_cpu, [("cpu", ("gpu5",))]),
    (two_at_once, [("egress", ("gpu3",)), ("ingress", ("gpu5",))]),
    (none, []),
]


@pytest.mark.parametrize(("inject", "expected"), SAMPLES, ids=[sample[0].__name__ for sample in SAMPLES])
@pytest.mark.parametrize("offer", [None, OFFER], ids=["", "bought"])
def test_each_kind_of_fault_is_named_and_nothing_else(inject, expected, offer):
    net = Faulty()
    inject(net)
    assert named(locate(net.profile(), offer)) == expected


def test_evidence_has_counts_rates_and_the_normal_value():
    net = Faulty()
    slow_egress(net)
    (fault,) = locate(net.profile())
    (sentence,) = fault.evidence
    assert sentence.startswith("5 of 5 links from gpu3 carry 0.5")
    assert sentence.endswith("GB/s") and "normal is " in sentence
    assert fault.level == pytest.approx(0.5, rel=0.03)
    profile = net.profile()
    assert [profile.links.src[row] for row in fault.rows] == [2] * 5
    assert fault.sure == "certain"


def test_latency_has_the_seconds_that_are_too_much():
    net = Faulty()
    far_host(net)
    (fault,) = locate(net.profile())
    assert fault.extra_s == pytest.approx(1e-3, rel=0.05)
    assert "take 1.0" in fault.evidence[0] and "normal is 20 us" in fault.evidence[0].replace("19.9", "20")


def test_the_rate_of_a_long_link_is_not_a_second_fault():
    net = Faulty()
    far_and_slow(net)
    (fault,) = locate(net.profile())
    assert fault.level == pytest.approx(0.3, rel=0.05) and len(fault.evidence) == 2


def test_a_slow_host_with_somewhat_more_latency_is_slow():
    net = Faulty()
    net.rate[net.of(3)] *= 0.3
    net.alpha_s[net.of(3)] *= 2.0
    (fault,) = locate(net.profile())
    assert (fault.kind, fault.parts) == ("host", ("gpu4",))
    assert fault.extra_s == pytest.approx(20e-6, rel=0.1)


def test_a_thin_trunk_between_two_racks_is_only_possible_without_a_plan():
    net = Faulty()
    slow_trunk(net)
    plan = FabricPlan({"A": ("gpu1", "gpu2", "gpu3", "gpu4"), "B": ("gpu5", "gpu6")})
    (without,), (planned,) = locate(net.profile()), locate(net.profile(), plan=plan)
    assert (without.sure, planned.sure) == ("possible", "certain")
    assert planned.parts == ("A", "B")


def test_a_trunk_that_is_as_thin_as_planned_is_no_fault():
    net = Faulty()
    slow_trunk(net)
    racks = {"A": ("gpu1", "gpu2", "gpu3", "gpu4"), "B": ("gpu5", "gpu6")}
    assert locate(net.profile(), plan=FabricPlan(racks, trunk_bytes_per_s=0.4 * RATE)) == []


def test_four_slow_hosts_of_six_are_named_where_it_is_known_what_was_bought():
    net = Faulty()
    for host in range(4):
        net.rate[net.of(host)] = 0.6 * RATE
    assert named(locate(net.profile(), OFFER)) == [("host", (f"gpu{host}",)) for host in range(1, 5)]


def test_a_cluster_that_is_slow_as_a_whole_has_one_fault_if_it_is_known_what_was_bought():
    net = Faulty()
    net.rate *= 0.6
    (fault,) = locate(net.profile(), OFFER)
    assert (fault.kind, fault.parts) == ("fabric", ("fabric",))
    assert fault.level == pytest.approx(0.6, rel=0.03)
    assert locate(net.profile()) == []


def test_latency_of_the_whole_fabric_is_compared_with_what_was_bought():
    net = Faulty()
    assert named(locate(net.profile(), Bought("5 us", latency_s=5e-6))) == [("latency", ("fabric",))]
    assert locate(net.profile(), Bought("20 us", latency_s=20e-6)) == []


def test_a_host_in_another_rack_than_planned_is_miswired():
    net = Faulty(hosts=8)
    net.racks([0, 1, 2, 3], [4, 5, 6, 7])
    names = net.names()
    plan = FabricPlan({"A": (*names[:3], names[4]), "B": (names[3], *names[5:])})
    faults = locate(net.profile(), plan=plan)
    assert named(faults) == [("miswired", ("gpu4",)), ("miswired", ("gpu5",))]
    assert faults[0].evidence == ("latencies of gpu4 are those of rack A, the plan says rack B",)


def test_a_nic_on_another_rail_than_planned_is_miswired():
    net = Faulty(hosts=6, ranks=4)
    rail = np.tile(np.arange(4), 6)
    rail[[9, 10]] = rail[[10, 9]]
    net.alpha_s[rail[:, None] != rail[None, :]] += 10e-6
    plan = FabricPlan(rails={(name, f"mlx5_{nic}"): nic for name in net.names() for nic in range(4)})
    assert named(locate(net.profile(), plan=plan)) == [
        ("miswired", ("gpu3 mlx5_1",)),
        ("miswired", ("gpu3 mlx5_2",)),
    ]


def test_a_slow_nic_is_named_and_not_its_host():
    net = Faulty(ranks=4)
    net.rate[9, net.host != 2] *= 0.5
    assert named(locate(net.profile())) == [("egress", ("gpu3 mlx5_1",))]


def test_links_across_rails_may_be_slower_by_design():
    net = Faulty(ranks=2)
    slot = np.tile([0, 1], 6)
    across = (slot[:, None] != slot[None, :]) & net.between(EVERY, EVERY)
    net.rate[across] *= 0.5
    net.alpha_s[across] *= 2
    assert locate(net.profile()) == []


def test_what_is_slow_inside_a_host_is_named_by_its_siblings():
    net = Faulty(ranks=4)
    net.rate[8, 9:12] *= 0.3
    net.rate[9:12, 8] *= 0.3
    net.rate[20, 21] *= 0.3
    net.rate[21, 20] *= 0.3
    assert named(locate(net.profile())) == [
        ("inside", ("gpu3 rank 8",)),
        ("inside", ("gpu6 rank 20", "gpu6 rank 21")),
    ]


def test_one_host_is_compared_with_itself():
    net = Faulty(hosts=1, ranks=8)
    assert locate(net.profile()) == []
    net.rate[3, :] *= 0.4
    assert named(locate(net.profile())) == [("inside", ("gpu1 rank 3",))]


def test_links_inside_a_host_whose_ranks_share_cores_show_no_fault():
    for cores, faults in ((8, [("inside", ("gpu1 rank 3",))]), (2, []), (0, [("inside", ("gpu1 rank 3",))])):
        net = Faulty(hosts=1, ranks=8, cores=cores)
        net.rate[3, :] *= 0.4
        assert named(locate(net.profile())) == faults


def test_a_link_inside_a_host_is_not_confirmed_where_an_end_waited_for_a_core():
    net = Faulty(hosts=1, ranks=8)
    net.rate[3, :] *= 0.4
    net.flags = {(3, 1): "starved"}
    [fault] = locate(net.profile())
    assert (fault.parts, fault.confirmed) == (("gpu1 rank 3",), False)


def test_of_two_hosts_only_a_difference_of_the_two_ways_shows():
    net = Faulty(hosts=2)
    assert locate(net.profile()) == []
    assert named(locate(net.profile(), Bought("3 GB/s", 3 * RATE))) in (
        [("fabric", ("fabric",))],
        [("pair", ("gpu1", "gpu2"))],
    )
    net.rate[0, 1] *= 0.5
    assert named(locate(net.profile())) == [("one_way_pair", ("gpu1", "gpu2"))]


def test_a_trunk_that_carries_less_in_all_than_the_others_is_slow():
    net = Faulty(hosts=9)
    names = net.names()
    ports = []
    for first, carried in ((0, 2.0), (3, 1.2), (6, 2.0)):
        near = [first, first + 1, first + 2]
        far = [host for host in range(9) if host not in near]
        for src, dst in ((near, far), (far, near)):
            rows = [8 * a + b - (b > a) for a in src for b in dst]
            sides = " → ".join(",".join(names[host] for host in side) for side in (src, dst))
            ports.append(SharedPort(f"trunk {sides}", tuple(rows), "measured", 1 / (carried * RATE)))
    net.ports = tuple(ports)
    (fault,) = locate(net.profile())
    assert (fault.kind, fault.parts, len(fault.evidence)) == ("trunk", ("gpu4,gpu5,gpu6",), 2)


def test_rates_of_links_between_distant_racks_vary_more():
    net = Faulty(hosts=8, samples=2)
    net.racks([0, 1, 2, 3], [4, 5, 6, 7], extra_s=2e-3)
    across = net.between([0, 1, 2, 3], [4, 5, 6, 7]) | net.between([4, 5, 6, 7], [0, 1, 2, 3])
    net.rate[across] *= np.exp(-np.abs(np.random.default_rng(5).normal(0.15, 0.15, int(across.sum()))))
    net.late[across] = 1.5
    net.flags = {(int(src), int(dst)): "starved" for src, dst in zip(*np.nonzero(across), strict=True)}
    assert locate(net.profile()) == []


def test_unsteady_links_through_a_slow_trunk_make_no_flapping_host():
    net = Faulty(hosts=8)
    across = net.between([0, 1, 2, 3], [4, 5, 6, 7]) | net.between([4, 5, 6, 7], [0, 1, 2, 3])
    net.rate[across] *= 0.4
    net.late[0, 5] = net.late[5, 1] = 4.0
    assert [fault.kind for fault in locate(net.profile())] == ["trunk"]


def test_a_wait_for_a_core_is_no_latency():
    net = Faulty()
    far_host(net)
    net.flags = {(3, peer): "preempted" for peer in EVERY} | {(peer, 3): "preempted" for peer in EVERY}
    net.jitter[net.of(3)] = 4.0
    assert locate(net.profile()) == []


def test_a_long_latency_shows_although_ends_waited_for_cores():
    net = Faulty()
    net.alpha_s[net.of(3)] += 2e-3
    net.jitter[net.of(3)] = 1.5
    net.flags = {(3, peer): "preempted" for peer in EVERY} | {(peer, 3): "preempted" for peer in EVERY}
    assert named(locate(net.profile())) == [("latency", ("gpu4",))]


@pytest.mark.parametrize(("starved", "level"), [(False, 0.6), (True, 0.87)])
def test_latency_explains_a_small_loss_of_rate_of_a_host_whose_ends_waited_for_cores(starved, level):
    net = Faulty()
    net.alpha_s[net.of(3)] += 0.3e-3
    net.rate[3, :] *= level
    net.flags = {(3, peer): "starved" for peer in EVERY} if starved else {}
    net.late[3, :] = 1.3
    assert named(locate(net.profile())) == [("latency" if starved else "egress", ("gpu4",))]


@pytest.mark.parametrize(("extra_s", "trunks"), [(2e-3, 0), (15e-6, 1)])
def test_a_trunk_of_long_latency_is_no_fault_for_a_small_loss_of_rate_beside_waits_for_cores(extra_s, trunks):
    net = Faulty(hosts=8)
    net.racks([0, 1, 2, 3], [4, 5, 6, 7], extra_s=extra_s)
    across = net.between([0, 1, 2, 3], [4, 5, 6, 7]) | net.between([4, 5, 6, 7], [0, 1, 2, 3])
    net.rate[across] *= 0.85
    net.late[across] = 1.3
    net.flags = {(int(src), int(dst)): "starved" for src, dst in zip(*np.nonzero(across), strict=True)}
    assert len(locate(net.profile())) == trunks


def test_a_rate_of_whole_transfers_is_lowered_by_latency():
    net = Faulty()
    net.alpha_s[net.of(3)] += 2e-3
    net.rate[net.of(3)] *= 0.9
    net.flags = {(3, peer): "unsound" for peer in EVERY} | {(peer, 3): "unsound" for peer in EVERY}
    assert named(locate(net.profile())) == [("latency", ("gpu4",))]


@pytest.mark.parametrize(
    ("samples", "flag", "confirmed"), [(2, "", False), (2, "retested", True), (30, "", True)]
)
def test_a_slow_link_is_confirmed_if_it_was_measured_again_or_often(samples, flag, confirmed):
    net = Faulty(samples=samples)
    net.rate[1, 2] *= 0.5
    net.flags = {(1, 2): flag}
    [fault] = locate(net.profile())
    assert (fault.kind, fault.confirmed) == ("one_way_pair", confirmed)


def test_a_slow_link_whose_ends_waited_for_cores_is_not_confirmed():
    net = Faulty()
    net.rate[1, 2] *= 0.5
    net.flags = {(1, 2): "retested,starved"}
    [fault] = locate(net.profile())
    assert not fault.confirmed


@pytest.mark.parametrize("samples", [4, 30])
def test_an_unsteady_link_is_a_fault_only_if_it_was_measured_often(samples):
    net = Faulty(hosts=8, samples=samples)
    net.late[1, 2] = 3.0
    net.flags = {(1, 2): "retested"}
    assert [fault.kind for fault in locate(net.profile())] == (["flapping"] if samples == 30 else [])


@pytest.mark.parametrize("far", [False, True])
def test_a_single_slow_link_of_a_slow_host_is_no_fault_of_its_own_until_it_is_confirmed(far):
    net = Faulty(samples=2)
    net.rate[net.of(3)] *= 0.93
    single = (0, 1) if far else (0, 3)
    net.rate[single] *= 0.8
    net.flags = {pair: "starved" for pair in [*zip(*np.nonzero(net.of(3)), strict=True), single]}
    host = ("host", ("gpu4",))
    expected = {host, ("one_way_pair", ("gpu1", "gpu2"))} if far else {host}
    assert set(named(locate(net.profile()))) == expected


def test_links_that_share_a_slow_trunk_are_no_faults_of_their_own():
    net = Faulty(hosts=8, samples=2)
    across = net.between([0, 1, 2, 3], [4, 5, 6, 7]) | net.between([4, 5, 6, 7], [0, 1, 2, 3])
    net.rate[across] *= 0.4
    for pair in ((2, 6), (6, 2), (3, 4)):
        net.rate[pair] *= 0.25
    assert {fault.kind for fault in locate(net.profile())} == {"trunk"}


@pytest.mark.parametrize(("losers", "losses"), [((0, 1, 2), 0), ((0,), 1)])
def test_most_hosts_before_a_slow_trunk_that_lose_packets_are_no_faults_of_their_own(losers, losses):
    net = Faulty(hosts=8)
    net.racks([0, 1, 2, 3], [4, 5, 6, 7])
    across = net.between([0, 1, 2, 3], [4, 5, 6, 7]) | net.between([4, 5, 6, 7], [0, 1, 2, 3])
    net.rate[across] *= 0.3
    net.segments = tuple(SentSegments(f"gpu{at + 1}", 20_000, 300 if at in losers else 2) for at in range(8))
    kinds = [fault.kind for fault in locate(net.profile())]
    assert sorted(kinds) == ["loss"] * losses + ["trunk"]


def test_a_host_that_loses_on_several_links_is_one_fault():
    net = Faulty(hosts=4, segments=tuple(SentSegments(f"gpu{at}", 20_000, 2) for at in range(2, 5)))
    net.segments = (SentSegments("gpu1", 20_000, 400), *net.segments)
    for peer in (1, 3):
        net.rate[0, peer] *= 0.5
        net.late[0, peer] = 2.0
    assert named(locate(net.profile())) == [("loss", ("gpu1",))]


def test_a_host_that_loses_towards_a_far_host_is_one_fault_beside_the_far_one():
    net = Faulty(hosts=7, segments=tuple(SentSegments(f"gpu{at}", 60_000, 2) for at in range(1, 7)))
    net.segments = (*net.segments, SentSegments("gpu7", 80_000, 1_000))
    net.alpha_s[net.of(1)] += 0.3e-3
    net.rate[6, 1] *= 0.75
    net.late[6, 1] = 2.0
    net.flags = {(6, 1): "retested"}
    assert sorted(named(locate(net.profile()))) == [("latency", ("gpu2",)), ("loss", ("gpu7",))]


def test_inferred_links_are_no_evidence():
    net = Faulty()
    net.rate[3, 1] *= 0.5
    net.flags = {(3, 1): "inferred"}
    assert locate(net.profile()) == []


def test_a_ring_of_links_shows_the_slow_one():
    net = Faulty(hosts=8)
    net.unmeasured = {(a, b) for a in range(8) for b in range(8) if b != (a + 1) % 8}
    net.rate[3, 4] *= 0.5
    assert named(locate(net.profile())) == [("one_way_pair", ("gpu4", "gpu5"))]


@settings(max_examples=drawn(40), deadline=None)
@given(st.sampled_from([sample for sample in SAMPLES if sample[0] is not far_and_slow]), st.floats(0.01, 40))
def test_the_unit_of_rates_does_not_matter(sample, scale):
    inject, expected = sample
    net = Faulty()
    inject(net)
    assert named(locate(net.profile(scale))) == expected


@settings(max_examples=drawn(40), deadline=None)
@given(st.sampled_from(SAMPLES), st.permutations(EVERY))
def test_the_order_of_ranks_does_not_matter(sample, order):
    inject, expected = sample
    net = Faulty()
    inject(net)
    found = named(locate(reordered(net.profile(), order)))

    def parts(one: tuple[str, tuple[str, ...]]) -> tuple[str, frozenset[str] | tuple[str, ...]]:
        names = [",".join(sorted(part.split(","))) for part in one[1]]
        return one[0], tuple(names) if one[0] == "one_way_pair" else frozenset(names)

    assert sorted(map(str, map(parts, found))) == sorted(map(str, map(parts, expected))) or set(
        map(parts, found)
    ) == set(map(parts, expected))


@settings(max_examples=drawn(60), deadline=None)
@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_a_sound_cluster_has_no_faults(hosts, ranks, seed):
    if hosts * ranks > 1:
        assert locate(Faulty(hosts, ranks, seed).profile()) == []


@settings(max_examples=drawn(60), deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1), st.floats(0.2, 1.0))
def test_any_part_of_the_links_gives_faults_of_these_links(hosts, seed, share):
    net = Faulty(hosts)
    net.rate[0, 1] *= 0.2
    net.alpha_s[net.of(1)] *= 5
    rng = np.random.default_rng(seed)
    pairs = [(a, b) for a in range(hosts) for b in range(hosts) if a != b]
    net.unmeasured = {pair for pair in pairs[1:] if rng.random() > share}
    profile = net.profile()
    for fault in locate(profile):
        assert np.isfinite([fault.level, fault.extra_s]).all()
        assert set(fault.rows) <= set(range(len(profile.links.src)))
        assert fault.evidence and "nan" not in " ".join(fault.evidence)


def reordered(profile: Profile, order: list[int]) -> Profile:
    """Return the profile with its ranks, and the rows of its links, in another order."""
    new = np.argsort(order)
    links = profile.links
    src, dst = new[links.src], new[links.dst]
    rows = np.lexsort((dst, src))
    columns = {
        name: getattr(links, name)[rows]
        for name in Links.__dataclass_fields__
        if name not in ("src", "dst", "flags")
    }
    ranks = tuple(
        type(profile.ranks[0])(at, profile.ranks[old].host, profile.ranks[old].device)
        for at, old in enumerate(order)
    )
    flags = tuple(links.flags[row] for row in rows)
    return Profile(
        ranks,
        Links(ints(src[rows]), ints(dst[rows]), flags=flags, **columns),
        (),
        "mpi",
        "simulated",
        1.0,
        2,
        memory=profile.memory,
        segments=profile.segments,
    )


def test_some_slow_and_some_unsteady_links_of_a_host_are_one_flapping_host():
    net = Faulty(hosts=6, samples=2)
    net.rate[0, 3] *= 0.1
    net.rate[0, 4] *= 0.1
    net.late[0, 1] = 8.0
    net.flags = {(0, 3): "retested", (0, 4): "retested"}
    [fault] = locate(net.profile())
    assert (fault.kind, fault.parts, fault.confirmed) == ("flapping", ("gpu1",), True)


def test_a_slow_pair_is_no_flapping_host_because_of_another_link_that_was_disturbed():
    net = Faulty(hosts=11, samples=2)
    net.rate[6, 2] *= 0.4
    net.rate[2, 6] *= 0.4
    net.rate[6, 4] *= 0.88
    net.late[9, 6] = 1.7
    net.flags = {(6, 2): "retested", (2, 6): "retested", (6, 4): "starved"}
    assert named(locate(net.profile())) == [("pair", ("gpu3", "gpu7"))]


def test_ends_that_waited_for_cores_are_not_unsteady():
    net = Faulty(hosts=6)
    net.late[net.of(2)] = 3.0
    assert named(locate(net.profile())) == [("flapping", ("gpu3",))]
    net.flags = {(a, b): "starved" for a in range(6) for b in range(6) if 2 in (a, b)}
    assert locate(net.profile()) == []


def test_a_host_whose_links_are_unsteady_more_often_than_others_flaps_though_all_ends_waited():
    net = Faulty(hosts=7, samples=3)
    for to in (0, 2, 5, 6):
        net.late[1, to] = 8.0
    net.flags = {(a, b): "starved,preempted" for a in range(7) for b in range(7) if a != b}
    [fault] = locate(net.profile())
    assert (fault.kind, fault.parts, fault.confirmed) == ("flapping", ("gpu2",), True)
    # Links of other hosts are unsteady as often: this is the load.
    for src, to in ((0, 3), (2, 4), (3, 6), (4, 1), (5, 2), (6, 0), (0, 5), (2, 0), (4, 3), (5, 6), (6, 4)):
        net.late[src, to] = 8.0
    assert all(one.kind != "flapping" for one in locate(net.profile()))


def test_rates_that_vary_by_more_than_a_host_lacks_are_not_confirmed_where_ends_waited():
    net = Faulty()
    net.rate[net.of(3)] *= 0.9
    net.flags = {(a, b): "starved" for a in range(6) for b in range(6) if 3 in (a, b)}
    net.late[net.of(3)] = 1.3
    assert all(not one.confirmed for one in locate(net.profile()))


@pytest.mark.parametrize(
    ("level", "flag", "samples", "confirmed"),
    [
        (0.9, "", 2, True),
        (0.9, "starved", 2, False),
        (0.9, "starved", 30, True),
        (0.5, "starved", 2, True),
    ],
)
def test_a_host_is_a_little_slow_only_if_its_ranks_had_cores(level, flag, samples, confirmed):
    net = Faulty(samples=samples)
    net.rate[net.of(3)] *= level
    net.flags = {(a, b): flag for a in range(6) for b in range(6) if 3 in (a, b)}
    [fault] = locate(net.profile())
    assert (fault.kind, fault.parts, fault.confirmed) == ("host", ("gpu4",), confirmed)
