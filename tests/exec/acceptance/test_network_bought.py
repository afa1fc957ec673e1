"""The network as it should be, with one fault repaired, and without some hosts."""

from dataclasses import replace

import numpy as np
import pytest
from accepted_clusters import ALPHA_S, BETA, INSIDE_BETA, cluster_profile
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from exec.acceptance import (
    bought,
    link_classes,
    repaired,
    sound_network,
    usual_costs,
    without_hosts,
)
from probes.base import UsageError
from probes.link_costs import SharedPort
from probes.localization import FabricPlan, Fault
from synth.network import Network
from synth.networks import from_profile

RACKS = FabricPlan({"a": ("gpu1", "gpu2"), "b": ("gpu3", "gpu4")})


def rows_of(profile, wanted):
    hosts = [rank.host for rank in profile.ranks]
    ends = zip(profile.links.src.tolist(), profile.links.dst.tolist(), strict=True)
    return tuple(row for row, (src, dst) in enumerate(ends) if wanted(hosts[src], hosts[dst]))


def ports_of(network, src, dst):
    row = int(np.flatnonzero((network.src == src) & (network.dst == dst))[0])
    return {network.ports[port] for port in network.ports_of(row)}


def egress_of(host, level=0.5):
    return lambda src, dst: 1 / level if src == host != dst else 1.0


def test_links_are_inside_a_host_in_a_rack_or_across():
    hosts = ("gpu1", "gpu1", "gpu2", "gpu3")
    found = link_classes(hosts, np.array([0, 0, 0, 3]), np.array([1, 2, 3, 0]), RACKS)
    assert found == ["inside", "rack", "across", "across"]
    assert link_classes(hosts, np.array([0]), np.array([3]), FabricPlan()) == ["rack"]


def test_usual_costs_are_those_of_sound_links():
    profile = cluster_profile(4, 2, beta=egress_of("gpu3", 0.1))
    usual = usual_costs(profile, FabricPlan())
    assert usual("rack").beta_s_per_byte == pytest.approx(BETA)
    assert usual("inside").beta_s_per_byte == pytest.approx(INSIDE_BETA)
    # Without a plan no link is across racks; the next class that has links stands for it.
    assert usual("across") == usual("rack")


def test_every_link_has_the_bought_rate_and_latency():
    profile = cluster_profile(4, 2, beta=egress_of("gpu2"), extra_s=lambda src, dst: 1e-3 * (src == "gpu3"))
    sound = sound_network(profile, bought("100Mbit/s,20us"))
    assert sound.problems() == []
    between = ~sound.within_host
    assert np.allclose(sound.beta_s_per_byte[between], 8e-8 / bought("100Mbit/s").goodput)
    assert np.allclose(sound.alpha_s[between], 20e-6)
    # The inside of a host was not bought: its usual costs stay.
    assert np.allclose(sound.beta_s_per_byte[~between], INSIDE_BETA)
    assert not sound.measured
    assert sound.queues


def test_without_an_offer_links_have_their_usual_costs():
    profile = cluster_profile(4, 1, beta=egress_of("gpu2"))
    assert np.allclose(sound_network(profile).beta_s_per_byte, BETA)
    assert np.allclose(sound_network(profile).alpha_s, ALPHA_S)


def test_the_inside_of_hosts_was_bought_for_gpus_only():
    for transport, beta in (("cuda", 1 / 370.8e9), ("mpi", INSIDE_BETA)):
        sound = sound_network(cluster_profile(2, 2, transport=transport), bought("dgx-h100"))
        assert np.allclose(sound.beta_s_per_byte[sound.within_host], beta)


def test_ranks_share_the_nics_that_were_bought():
    profile = cluster_profile(2, 4)
    assert "gpu1 NIC egress" in ports_of(from_profile(profile), 0, 5)
    sound = sound_network(profile, bought("2x0.1"))
    nics = [ports_of(sound, rank, 4) & {"gpu1 NIC 0 egress", "gpu1 NIC 1 egress"} for rank in range(4)]
    assert [one.pop()[9] for one in nics] == ["0", "0", "1", "1"]
    assert "gpu2 NIC 1 ingress" in ports_of(sound, 0, 7)
    assert "rank 0 egress" in ports_of(sound, 0, 1)
    # One NIC each, and no more NICs than ranks.
    assert len({port for port in sound_network(profile, bought("8x0.1")).ports if "NIC" in port}) == 16


def test_a_declared_nic_is_kept():
    profile = cluster_profile(2, 2)
    ranks = tuple(replace(rank, nic="mlx5_3") for rank in profile.ranks)
    sound = sound_network(replace(profile, ranks=ranks), bought("8x0.1"))
    assert ports_of(sound, 0, 3) & ports_of(sound, 1, 3) == {"gpu1 NIC mlx5_3 egress", "rank 3 ingress"} | {
        "gpu2 NIC mlx5_3 ingress"
    }


def test_trunks_come_from_the_plan():
    trunk = SharedPort("trunk gpu1,gpu2 → gpu3,gpu4", (1, 2), "measured", 5e-8)
    profile = cluster_profile(4, 1, ports=[trunk])
    plan = replace(RACKS, trunk_bytes_per_s=12.5e6)
    sound = sound_network(profile, bought("100Mbit/s"), plan)
    assert sound.problems() == []
    assert {port for port in sound.ports if "trunk" in port} == {
        "trunk a up",
        "trunk a down",
        "trunk b up",
        "trunk b down",
    }
    assert {"trunk a up", "trunk b down"} < ports_of(sound, 0, 2)
    assert not any("trunk" in port for port in ports_of(sound, 0, 1))
    rate = sound.port_s_per_byte[sound.ports.index("trunk a up")]
    assert rate == pytest.approx(8e-8 / bought("100Mbit/s").goodput)


def test_a_trunk_slower_than_a_nic_bounds_its_links():
    plan = replace(RACKS, trunk_bytes_per_s=1.25e6)
    sound = sound_network(cluster_profile(4, 1), bought("100Mbit/s"), plan)
    across = [kind == "across" for kind in link_classes(sound.hosts, sound.src, sound.dst, plan)]
    beta = sound.beta_s_per_byte
    assert np.allclose(beta[across], 10 * beta[np.logical_not(across)][0])


def test_measured_trunks_of_unknown_rate_are_as_fast_as_the_fastest():
    slow = SharedPort("trunk gpu1,gpu2 → gpu3,gpu4", (1, 2, 4, 5), "measured", 6e-8)
    fast = SharedPort("trunk gpu3,gpu4 → gpu1,gpu2", (6, 7, 9, 10), "measured", 3e-8)
    sound = sound_network(cluster_profile(4, 1, ports=[slow, fast]), plan=RACKS)
    trunks = [at for at, port in enumerate(sound.ports) if port.startswith("trunk")]
    assert sound.port_beta_s_per_byte[trunks].tolist() == [3e-8, 3e-8]


def test_repairing_the_only_fault_gives_the_sound_network():
    profile = cluster_profile(4, 2, beta=egress_of("gpu2", 0.25))
    network, sound = from_profile(profile), sound_network(profile)
    fault = Fault("egress", ("gpu2",), 0.25, rows=rows_of(profile, lambda src, dst: src == "gpu2" != dst))
    mended = repaired(network, sound, fault)
    assert np.allclose(mended.beta_s_per_byte, sound.beta_s_per_byte)
    assert np.allclose(mended.port_s_per_byte, sound.port_s_per_byte)
    assert mended.problems() == []


def test_what_another_fault_explains_stays_slow():
    def beta(src, dst):
        return max(2.0 if src == "gpu1" != dst else 1.0, 4.0 if dst == "gpu2" != src else 1.0)

    profile = cluster_profile(3, 1, beta=beta)
    network, sound = from_profile(profile), sound_network(profile)
    egress = Fault("egress", ("gpu1",), 0.5, rows=rows_of(profile, lambda src, dst: src == "gpu1"))
    ingress = Fault("ingress", ("gpu2",), 0.25, rows=rows_of(profile, lambda src, dst: dst == "gpu2"))
    ends = list(zip(network.src.tolist(), network.dst.tolist(), strict=True))

    def betas(fault, other):
        mended = repaired(network, sound, fault, [other])
        return {end: round(beta / BETA, 6) for end, beta in zip(ends, mended.beta_s_per_byte, strict=True)}

    first = betas(egress, ingress)
    assert (first[0, 1], first[0, 2], first[2, 1]) == (4, 1, 4)
    second = betas(ingress, egress)
    assert (second[0, 1], second[0, 2], second[2, 1]) == (2, 2, 1)


def test_extra_latency_goes_with_its_fault():
    profile = cluster_profile(3, 1, extra_s=lambda src, dst: 2e-3 * (src == "gpu1"))
    rows = rows_of(profile, lambda src, dst: src == "gpu1")
    fault = Fault("latency", ("gpu1",), extra_s=2e-3, rows=rows)
    mended = repaired(from_profile(profile), sound_network(profile), fault)
    assert np.allclose(mended.alpha_s, ALPHA_S)


def test_a_repaired_trunk_carries_several_links_again():
    across = rows_of(cluster_profile(4), lambda src, dst: {src, dst} in ({"gpu1", "gpu3"}, {"gpu1", "gpu4"}))
    up = rows_of(cluster_profile(4), lambda src, dst: src in ("gpu1", "gpu2") and dst in ("gpu3", "gpu4"))
    assert len(across) == len(up) == 4
    # The trunk carries a quarter of the 200 Mbit/s that it should: half the rate of a NIC.
    trunk = SharedPort("trunk gpu1,gpu2 → gpu3,gpu4", up, "measured")
    slow = {("gpu1", "gpu3"), ("gpu1", "gpu4"), ("gpu2", "gpu3"), ("gpu2", "gpu4")}
    profile = cluster_profile(4, beta=lambda src, dst: 2.0 if (src, dst) in slow else 1.0, ports=[trunk])
    fault = Fault("trunk", ("a",), 0.25, rows=up)
    network, sound = from_profile(profile), sound_network(profile)
    mended = repaired(network, sound, fault)
    at = mended.ports.index(trunk.name)
    assert network.port_s_per_byte[at] == pytest.approx(2 * BETA)
    assert mended.port_s_per_byte[at] == pytest.approx(BETA / 2)
    assert np.allclose(mended.beta_s_per_byte[list(up)], BETA)


@settings(max_examples=drawn(40), deadline=None)
@given(st.data())
def test_a_repair_never_slows_a_link(data):
    hosts = data.draw(st.integers(2, 5))
    factors = data.draw(st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=hosts, max_size=hosts))
    profile = cluster_profile(hosts, 1, beta=lambda src, dst: factors[int(src[3:]) - 1])
    network = from_profile(profile)
    rows = data.draw(st.lists(st.integers(0, network.links - 1), unique=True))
    fault = Fault("egress", ("gpu1",), data.draw(st.sampled_from([0.0, 0.2, 0.5, 1.0])), rows=tuple(rows))
    mended = repaired(network, sound_network(profile), fault)
    assert (mended.beta_s_per_byte <= network.beta_s_per_byte).all()
    assert (mended.port_s_per_byte <= network.port_s_per_byte * (1 + 1e-12)).all()
    assert mended.problems() == []


def test_hosts_are_left_out_with_their_links():
    network = from_profile(cluster_profile(4, 2))
    less = without_hosts(network, ["gpu2", "gpu4"])
    assert isinstance(less, Network)
    assert less.hosts == ("gpu1", "gpu1", "gpu3", "gpu3")
    assert (less.links, less.problems()) == (12, [])


@pytest.mark.parametrize(("hosts", "said"), [(["gpu9"], "no host 'gpu9'"), (["gpu1", "gpu2"], "fewer than")])
def test_hosts_that_cannot_be_left_out(hosts, said):
    with pytest.raises(UsageError, match=said):
        without_hosts(from_profile(cluster_profile(3, 1)), hosts)


def test_a_fault_of_another_profile_is_refused():
    network = from_profile(cluster_profile(2, 1))
    with pytest.raises(UsageError, match="link 7"):
        repaired(network, network, Fault("egress", ("gpu1",), rows=(7,)))
