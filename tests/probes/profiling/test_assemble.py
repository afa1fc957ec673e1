import itertools
from dataclasses import replace

import pytest

from probes.link_costs import SentSegments
from probes.profiling.assemble import assemble, preempted, to_retest
from probes.profiling.instances import Instances
from probes.sampling.packet_trains import Trains
from probes.sampling.samples import Place, Samples
from probes.sharing.model import Share, ports

SIZES = [128 << 10 << step for step in range(6)]


def samples(ranks, beta_of=lambda src, dst: 1e-9):
    found = Samples()
    for src, dst in itertools.permutations(range(ranks), 2):
        cost = beta_of(src, dst)
        found.trains[src, dst] = Trains({size: [1e-6 + cost * size] * 5 for size in SIZES})
        if src < dst:
            found.round_trips_s[src, dst] = [2e-6, 3e-6, 9e-6]
    return found


def assembled(found, places):
    return assemble(found, places, library="Some MPI 1.0", seconds=1.23456, rounds=3)


def test_a_profile_holds_what_was_timed():
    profile = assembled(samples(3), [Place("a", 8)] * 3)
    assert profile.problems() == []
    assert list(zip(profile.links.src, profile.links.dst, strict=True)) == list(
        itertools.permutations(range(3), 2)
    )
    assert profile.links.alpha_s == pytest.approx([1e-6] * 6)
    assert profile.links.alpha_median_s == pytest.approx([1.5e-6] * 6)
    assert profile.links.beta_s_per_byte == pytest.approx([1e-9] * 6)
    assert list(profile.links.samples) == [30] * 6
    assert profile.links.flags == ("",) * 6
    assert profile.findings == ()
    assert (profile.library, profile.rounds) == ("Some MPI 1.0", 3)


def test_a_latency_is_flagged_where_an_end_waited_for_a_core_in_every_look():
    found = samples(3)
    found.waited = {(0, 1): [0.4, 0.5], (1, 0): [0.0, 0.1], (0, 2): [0.5, 0.01], (2, 0): [0.0, 0.03]}
    assert preempted(found, [Place("a", 2)] * 3) == []
    for pair in ((0, 1), (0, 2)):
        found.round_trips_s[pair] = [4e-3, 5e-3, 9e-3]
    assert preempted(found, [Place("a", 2)] * 3) == [(0, 1)]
    profile = assembled(found, [Place("a", 2)] * 3)
    ends = zip(profile.links.src.tolist(), profile.links.dst.tolist(), profile.links.flags, strict=True)
    assert [(src, dst) for src, dst, words in ends if words == "preempted"] == [(0, 1), (1, 0)]
    assert profile.findings == (
        "latency of 2 links is an upper limit: an end waited for a core in every measurement: "
        "3 ranks on host a, which has 2 cores",
    )


def test_a_slow_link_is_flagged_told_and_measured_again():
    found = samples(4, lambda src, dst: 3e-9 if (src, dst) == (1, 2) else 1e-9)
    places = [Place("a", 8)] * 4
    profile = assembled(found, places)
    rows = [row for row, flag in enumerate(profile.links.flags) if flag]
    assert [(profile.links.src[row], profile.links.dst[row]) for row in rows] == [(1, 2)]
    assert profile.links.flags[rows[0]] == "asymmetric"
    assert profile.findings == ("1 link looked slow, not reported: there was no time to measure again",)
    found.again[1, 2] = found.trains[1, 2]
    profile = assembled(found, places)
    assert profile.links.flags[rows[0]] == "outlier,asymmetric,retested"
    assert profile.findings == (
        "the link between a rank 1 and a rank 2 is slower than others inside the host: "
        "33 % of the normal rate: "
        "1 of 1 links from a rank 1 to a rank 2 carry 0.3333 GB/s, normal is 1 GB/s; "
        "a ring all_reduce through it takes 3.0 times as long, unless it avoids the link; "
        "measure again while nothing else runs there; then check NUMA binding, and the PCIe width and "
        "peer-to-peer access of a GPU",
    )
    assert to_retest(found, places) == [(1, 2)]


@pytest.mark.parametrize(
    ("passes", "alone", "starved"),
    [(5, 3e-9, False), (5, 2e-9, True), (5, None, True), (5, 4e-9, False), (1, 3e-9, False), (1, 4e-9, True)],
)
def test_a_link_that_repeats_its_rate_is_not_starved_though_an_end_waited(passes, alone, starved):
    found = samples(4, lambda src, dst: 3e-9 if (src, dst) == (1, 2) else 1e-9)
    found.trains[1, 2] = Trains({size: [1e-6 + 3e-9 * size] * passes for size in SIZES[:3]})
    found.sender_waited[1, 2] = found.receiver_waited[1, 2] = [0.5, 0.5]
    if alone is not None:
        found.again[1, 2] = Trains({size: [1e-6 + alone * size] * 5 for size in SIZES})
    profile = assembled(found, [Place(name, 8) for name in "abcd"])
    [flags] = [
        words
        for src, dst, words in zip(profile.links.src, profile.links.dst, profile.links.flags, strict=True)
        if (src, dst) == (1, 2)
    ]
    assert ("starved" in flags) == starved


def test_alone_a_link_is_what_it_can_do_and_keeps_who_held_it_up():
    hosts = [Place(name, 8) for name in "abcd"]
    found = samples(4, lambda src, dst: 3e-9 if (src, dst) == (1, 2) else 1e-9)
    found.again[1, 2] = Trains({size: [1e-6 + 1e-9 * size] * 5 for size in SIZES})
    profile = assembled(found, hosts)
    assert profile.findings == ()
    assert [flag for flag in profile.links.flags if flag] == ["retested,contended"]
    assert profile.links.beta_s_per_byte == pytest.approx([1e-9] * 12)


@pytest.mark.parametrize("others", [False, True])
def test_a_link_that_is_fast_alone_keeps_its_slow_messages_if_no_others_held_it_up(others):
    found = samples(4)
    best = 1.5 if others else 1
    seconds = {size: [1e-6 + 1e-9 * size * times for times in (best, best, 9, 9)] for size in SIZES}
    found.trains[1, 2] = Trains(seconds, [best * 1e-9, 9e-9])
    found.again[1, 2] = Trains({size: [1e-6 + 1e-9 * size] * 2 for size in SIZES}, [1e-9])
    links = assembled(found, [Place(name, 8) for name in "abcd"]).links
    [row] = [row for row, pair in enumerate(zip(links.src, links.dst, strict=True)) if pair == (1, 2)]
    assert links.beta_s_per_byte[row] == pytest.approx(1e-9)
    assert links.beta_p90_s_per_byte[row] == pytest.approx(1e-9 if others else 9e-9, rel=0.1)


def test_a_slow_sender_is_one_finding_and_not_three():
    found = samples(4, lambda src, dst: 2.5e-9 if src == 3 else 1e-9)
    places = [Place(name, 8) for name in ("gpu0", "gpu1", "gpu2", "gpu3")]
    # Two of its links say how slow it is.
    chosen = to_retest(found, places)
    assert len(chosen) == 2
    assert {src for src, _ in chosen} == {3}
    found.again |= {pair: found.trains[pair] for pair in chosen}
    assert to_retest(found, places) == []
    assert assembled(found, places).findings == (
        "gpu3 sends at 40 % of the normal rate: "
        "3 of 3 links from gpu3 carry 0.4 GB/s, normal is 1 GB/s; "
        "a ring all_reduce takes 2.5 times as long; "
        "check its NIC (ethtool: rate, errors; lspci -vv: LnkSta) and rate limits; then swap the cable",
    )


def test_what_is_slow_is_told_before_doubts_and_after_an_interruption():
    found = samples(4, lambda src, dst: 2.5e-9 if src == 3 else 1e-9)
    places = [Place(name, 8) for name in "abcd"]
    found.again |= {pair: found.trains[pair] for pair in to_retest(found, places)}
    sent = [SentSegments("a", 5000, 9), SentSegments("b", 5000, 50), SentSegments("c", 50000, 50)]
    profile = assemble(
        found,
        places,
        library="",
        seconds=1.0,
        rounds=1,
        notes=["2 links not measured"],
        interrupted="killed",
        segments=sent,
    )
    assert profile.findings[0] == "killed" and profile.findings[1].startswith("d sends at 40 %")
    # Some packets are only late, on a busy host.
    assert profile.findings[2] == (
        "packets from b get lost (likely): "
        "host b retransmitted 1.0% of its TCP segments (50 of 5000): packets get lost on their way from it; "
        "look at the error counters of both ends; clean or swap the cable and its transceiver"
    )
    assert profile.findings[3:] == ("2 links not measured",)
    assert profile.finding_kinds == ("incomplete", "slow", "slow", "doubtful")
    assert profile.problems() == []
    assert replace(profile, finding_kinds=("slow",)).problems() == [
        "finding_kinds: expected 4 values, as many as findings, found 1"
    ]


def test_a_sender_whose_checked_links_are_fast_is_checked_link_by_link():
    found = samples(4, lambda src, dst: 2.5e-9 if src == 3 else 1e-9)
    places = [Place(name, 8) for name in "abcd"]
    chosen = to_retest(found, places)
    found.again |= {pair: found.trains[0, 1] for pair in chosen}
    assert set(to_retest(found, places)) == {(3, 0), (3, 1), (3, 2)} - set(chosen)


def test_every_link_of_a_slow_rank_is_measured_again_within_a_host():
    found = samples(4, lambda src, dst: 2.5e-9 if src == 3 else 1e-9)
    assert set(to_retest(found, [Place("a", 8)] * 4)) == {(3, 0), (3, 1), (3, 2)}


def test_a_fit_that_is_refused_is_flagged_and_measured_again():
    found = samples(3)
    found.trains[0, 1] = Trains({size: [1e-3 / size] for size in SIZES})
    places = [Place("a", 8)] * 3
    assert to_retest(found, places)[0] == (0, 1)
    profile = assembled(found, places)
    assert "unsound" in profile.links.flags[0]
    assert profile.problems() == []


def test_a_link_without_alpha_or_beta_is_left_out():
    found = samples(3)
    del found.trains[0, 1]
    del found.round_trips_s[1, 2]
    links = assembled(found, [Place("a", 8)] * 3).links
    assert list(zip(links.src, links.dst, strict=True)) == [(0, 2), (1, 0), (2, 0)]


PAIRS = list(itertools.permutations(range(4), 2))


def named(places):
    return {port.name: [PAIRS[row] for row in port.links] for port in ports(PAIRS, places, [])}


def test_a_process_is_a_port_each_way():
    found = named([Place("a", 8)] * 4)
    assert found["rank 1 egress"] == [(1, 0), (1, 2), (1, 3)]
    assert found["rank 1 ingress"] == [(0, 1), (2, 1), (3, 1)]
    assert set(found) == {f"rank {rank} {way}" for rank in range(4) for way in ("egress", "ingress")}


def test_the_ranks_of_a_host_share_its_nic_towards_other_hosts():
    found = named([Place("a", 8), Place("a", 8), Place("b", 8), Place("b", 8)])
    assert found["a NIC egress"] == found["b NIC ingress"] == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert (0, 1) not in found["a NIC egress"]


def test_ranks_without_a_core_of_their_own_share_one():
    found = named([Place("a", 2)] * 4)
    assert found["a core 0"] == [pair for pair in PAIRS if pair[1] in (0, 2)]
    assert found["a core 1"] == [pair for pair in PAIRS if pair[1] in (1, 3)]


def test_what_was_tried_takes_the_place_of_what_is_assumed():
    places = [Place("a", 8), Place("a", 8), Place("b", 8), Place("b", 8)]
    shares = [
        Share("a NIC egress"),
        Share("a NIC 0 egress", ((0, 2), (0, 3))),
        Share("rail", ((0, 2), (9, 9))),
    ]
    found = {port.name: port for port in ports(PAIRS, places, shares)}
    assert "a NIC egress" not in found
    assert found["b NIC ingress"].method == "host"
    assert [PAIRS[row] for row in found["a NIC 0 egress"].links] == [(0, 2), (0, 3)]
    assert [PAIRS[row] for row in found["rail"].links] == [(0, 2)]
    assert found["rail"].method == "measured"


def test_what_was_not_measured_is_inferred_and_says_so():
    places = [Place(f"h{rank // 2}", 8, "process", "eth0") for rank in range(6)]
    instances = Instances(places)
    found = samples(6, lambda src, dst: 2e-9 if 0 in (src // 2, dst // 2) else 1e-9)
    kept = {pair for pairs in instances.rounds() for pair in pairs}
    found.trains = {pair: trains for pair, trains in found.trains.items() if pair in kept}
    profile = assemble(
        found, places, library="Some MPI 1.0", seconds=1.0, rounds=3, instances=instances, topology="box.xml"
    )
    assert profile.problems() == []
    links = profile.links
    assert len(links.src) == 30
    for src, dst, beta, flags, count in zip(
        links.src, links.dst, links.beta_s_per_byte, links.flags, links.samples, strict=True
    ):
        assert beta == pytest.approx(2e-9 if 0 in (src // 2, dst // 2) else 1e-9)
        assert (flags == "inferred") == ((src, dst) not in kept) == (count == 0)
    assert profile.topology == "box.xml"
    shared = {port.name: port for port in profile.ports if port.method == "topology"}
    assert set(shared) == {f"h{host} NIC eth0 {way}" for host in range(3) for way in ("egress", "ingress")}
    assert len(shared["h1 NIC eth0 egress"].links) == 8
