"""Findings of simulated profiles: the part, its flags, and what a profile missed before it named parts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from drawn_examples import drawn
from faulty_profile import RATE, Faulty
from hypothesis import given, settings, strategies as st

from probes.link_costs import FAULT_FLAGS, Profile, SharedPort
from probes.localization import Bought, FabricPlan, Fault
from probes.profiling.findings import confirmed, faults_of, is_single, suspected, with_faults

BOUGHT = Bought("8Gbit/s", RATE, goodput=1.0)


def found_in(net: Faulty, bought: Bought | None = None, plan: FabricPlan | None = None) -> Profile:
    profile = net.profile()
    return with_faults(profile, faults_of(profile, bought, plan), bought=bought is not None)


def starts(profile: Profile) -> list[str]:
    return [text.partition(":")[0] for text in profile.findings]


def flags_between(profile: Profile) -> Counter[str]:
    return Counter(words for words in profile.links.flags if words)


def test_a_slow_trunk_between_two_racks_is_one_finding() -> None:
    net = Faulty(7)
    net.racks([0, 1], [2, 3, 4, 5, 6])
    net.rate[net.between([0, 1], [2, 3, 4, 5, 6]) | net.between([2, 3, 4, 5, 6], [0, 1])] *= 0.4
    profile = found_in(net)
    assert starts(profile) == [
        "the trunk between gpu1,gpu2 and gpu3,gpu4,gpu5,gpu6,gpu7 carries 40 % of the normal rate "
        "(if it is not planned so)"
    ]
    assert flags_between(profile) == {"slow_trunk": 20}
    planned = FabricPlan({"r1": ("gpu1", "gpu2"), "r2": ("gpu3", "gpu4", "gpu5", "gpu6", "gpu7")})
    assert starts(found_in(net, None, planned)) == [
        "the trunk between r1 and r2 carries 40 % of the normal rate"
    ]


def test_a_trunk_that_is_thin_only_in_all_is_named_against_the_plan() -> None:
    net = Faulty(8)
    net.racks([0, 1, 2, 3], [4, 5, 6, 7])
    near, far = ",".join(net.names()[:4]), ",".join(net.names()[4:])
    links = net.profile().links
    rows = [row for row, (a, b) in enumerate(zip(links.src, links.dst, strict=True)) if a < 4 <= b]
    net.ports = (SharedPort(f"trunk {near} → {far}", tuple(rows), "measured", 1 / RATE),)
    plan = FabricPlan(
        {"r1": tuple(net.names()[:4]), "r2": tuple(net.names()[4:])}, trunk_bytes_per_s=4 * RATE
    )
    assert found_in(net).findings == ()
    (start,) = starts(found_in(net, None, plan))
    assert start == "the trunk between r1 and r2 carries 25 % of the normal rate"


@pytest.mark.parametrize("extra_s", [1e-3, 5e-3])
def test_a_late_host_is_named_with_its_latency(extra_s: float) -> None:
    net = Faulty(6)
    net.alpha_s[net.of(2)] += extra_s
    profile = found_in(net)
    (finding,) = profile.findings
    assert finding.startswith("messages of gpu3 take ") and "normal is 19.9 us" in finding
    assert flags_between(profile) == {"late": 10}
    assert "interrupt moderation" in finding


def test_four_slow_hosts_of_six_are_named_where_it_is_known_what_was_bought() -> None:
    net = Faulty(6)
    for host in range(4):
        net.rate[net.of(host)] = 0.6 * RATE
    assert {start.split(" ")[0] for start in starts(found_in(net, BOUGHT))} == {
        "gpu1",
        "gpu2",
        "gpu3",
        "gpu4",
    }


def test_all_at_sixty_percent_is_found_only_with_what_was_bought() -> None:
    net = Faulty(6)
    net.rate[net.between(list(range(6)), list(range(6)))] *= 0.6
    assert found_in(net).findings == ()
    profile = found_in(net, BOUGHT)
    assert starts(profile) == ["all links carry 60 % of what was bought"]
    assert flags_between(profile) == {"outlier": 30}


def test_a_small_mtu_is_a_host_a_tenth_below_normal() -> None:
    net = Faulty(6)
    net.rate[net.of(4)] *= 0.88
    assert starts(found_in(net)) == ["gpu5 sends and receives at 88 % of the normal rate"]


def test_links_of_a_host_are_flagged_by_their_direction() -> None:
    net = Faulty(5)
    net.rate[net.of(1)] *= 0.5
    profile = found_in(net)
    links = profile.links
    assert flags_between(profile) == {"slow_sender": 4, "slow_receiver": 4}
    assert (links.flagged("slow_sender") == (links.src == 1)).all()
    assert (links.flagged("slow_receiver") == (links.dst == 1)).all()


@pytest.mark.parametrize("retested", [False, True])
def test_a_single_link_is_reported_once_it_was_slow_alone_too(retested: bool) -> None:
    net = Faulty(6)
    net.rate[2, 3] *= 0.5
    if retested:
        net.flags[2, 3] = "retested"
    profile = net.profile()
    (suspect,) = suspected(profile)
    assert is_single(suspect) and suspect.parts == ("gpu3", "gpu4")
    assert confirmed(profile, [suspect]) == [suspect] * retested
    assert flags_between(found_in(net)) == ({"outlier,retested": 1} if retested else {})


def test_many_single_links_are_suspects_until_they_are_measured_again() -> None:
    net = Faulty(12)
    for at in range(6):
        net.rate[at, at + 6] *= 0.5
    assert len(suspected(net.profile())) == 6 and found_in(net).findings == ()


def test_other_findings_stay_and_those_of_other_faults_go() -> None:
    net = Faulty(6)
    net.rate[net.between([0], list(range(6)))] *= 0.5
    profile = replace(
        found_in(net),
        findings=("cut short", "old", "noisy"),
        finding_kinds=("incomplete", "slow", "doubtful"),
    )
    again = with_faults(profile, faults_of(profile))
    assert again.finding_kinds == ("incomplete", "slow", "doubtful")
    assert [text.partition(":")[0] for text in again.findings] == [
        "cut short",
        "gpu1 sends at 50 % of the normal rate",
        "noisy",
    ]
    clean = with_faults(again, [])
    assert (clean.findings, set(clean.links.flags)) == (("cut short", "noisy"), {""})
    assert again.problems() == clean.problems() == []


@settings(max_examples=drawn(25), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.integers(1, 2))
def test_a_sound_cluster_has_no_findings(seed: int, hosts: int, ranks: int) -> None:
    profile = found_in(Faulty(hosts, ranks, seed))
    assert profile.findings == () and not any(profile.links.flags)


@given(
    st.lists(st.sampled_from(["egress", "ingress", "host", "trunk", "loss", "latency", "cpu"]), max_size=3)
)
def test_flags_of_faults_are_known_words(kinds: list[str]) -> None:
    profile = Faulty(4).profile()
    faults = [Fault(kind, ("gpu2",), 0.5, rows=(0, 3)) for kind in kinds]  # type: ignore[arg-type] # drawn
    words = {word for flags in with_faults(profile, faults).links.flags for word in flags.split(",") if word}
    assert words <= set(FAULT_FLAGS)
