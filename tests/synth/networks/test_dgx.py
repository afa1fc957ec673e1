from __future__ import annotations

import json
from importlib.resources import files

import networkx
import numpy as np
import pytest

from probes.base.errors import UsageError
from synth.networks.dgx import (
    fabric_of,
    hosts_named,
    is_pod,
    machine_of,
    pod,
    pod_aliases,
    pod_names,
    pods_of,
    trays_of,
)
from synth.networks.failures import Failures, without
from synth.networks.host_links import Fabric

# GPUs a host, links inside one, bandwidth out of one GPU inside its host in GB/s.
MACHINES = {
    "dgx-1": (8, 48, 150),
    "dgx-1p": (8, 32, 80),
    "dgx-2": (16, 240, 150),
    "dgx-a100": (8, 56, 300),
    "dgx-h100": (8, 56, 450),
    "dgx-h200": (8, 56, 450),
    "dgx-b200": (8, 56, 900),
    "ndv2": (8, 48, 150),
    "ndv4": (8, 56, 300),
    "mi250": (16, 112, 350),
    "mi300x": (8, 56, 448),
    "hgx-b300": (8, 56, 900),
    "gb200-nvl72": (72, 5112, 900),
    "gb200-nvl36": (36, 1260, 900),
    "gb300-nvl72": (72, 5112, 900),
    "h20": (8, 56, 450),
    "l40s": (4, 12, 32),
    "dgx-spark": (1, 0, 0),
    "gh200": (1, 0, 0),
    "mi325x": (8, 56, 448),
    "mi355x": (8, 56, 537.6),
}
# NICs of a host and the Gbit/s of each.
NICS = {
    "hgx-b300": (8, 800),
    "gb200-nvl72": (72, 400),
    "gb200-nvl36": (36, 400),
    "gb300-nvl72": (72, 800),
    "h20": (8, 400),
    "l40s": (2, 200),
    "dgx-spark": (1, 200),
    "gh200": (1, 400),
    "mi325x": (8, 400),
    "mi355x": (8, 400),
}


def test_every_machine_is_tested():
    assert set(MACHINES) == set(pod_names())


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("count", [1, 2])
def test_shape_and_bandwidth(name, count):
    gpus, links, out_gbs = MACHINES[name]
    if gpus * count == 1:
        with pytest.raises(UsageError, match="at least two ranks"):
            pod(name)
        return
    network = pod(f"{name}:{count}")
    assert network.problems() == []
    assert network.ranks == count * gpus
    assert network.links == count * links + count * (count - 1) * gpus**2
    graph = networkx.DiGraph(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    assert networkx.is_strongly_connected(graph)
    inside = network.src // gpus == network.dst // gpus
    for rank in range(network.ranks):
        own = np.flatnonzero(inside & (network.src == rank))
        gates = {tuple(network.ports_of(link)[:1].tolist()) or (-1 - link,): link for link in own}
        rate = sum(1e-9 / network.beta_s_per_byte[link] for link in gates.values())
        assert rate == pytest.approx(out_gbs)


@pytest.mark.parametrize("name", NICS)
def test_the_nics_of_two_hosts_carry_what_is_published(name):
    network = pod(f"{name}:2")
    between = np.flatnonzero(~network.within_host)
    used = {network.ports[port] for link in between for port in network.ports_of(link)}
    nics, gbit = NICS[name]
    assert len(used) == 2 * 2 * nics
    assert 8e-9 / network.beta_s_per_byte[between] == pytest.approx(gbit)


@pytest.mark.parametrize("name", NICS)
def test_says_where_rates_are_published_and_what_is_an_estimate(name):
    values = json.loads(files("synth.networks").joinpath("dgx.json").read_text("utf-8"))[name]
    assert values["source"]
    assert all(source.startswith("https://") for source in values["source"])
    assert "estimate" in values or name == "gb200-nvl72"


def test_other_names_are_those_of_one_machine():
    assert len(set(pod_aliases())) == len(pod_aliases())
    assert not set(pod_aliases()) & set(pod_names())
    assert machine_of("nvl72:4") == machine_of("gb200-nvl72:4")
    assert machine_of("HGX_B300:2") == machine_of("dgx-b300:2") == machine_of("b300:2")


def test_gpus_have_the_machines_that_hold_them():
    assert pods_of(8, "NVIDIA B300 SXM6 AC") == ("hgx-b300",)
    assert pods_of(8, "AMD Instinct MI355X") == ("mi355x",)
    assert pods_of(72, "NVIDIA GB300") == ("gb300-nvl72",)


def test_a_domain_of_nvlink_has_trays():
    assert [trays_of(name) for name in ("gb200-nvl72", "nvl36:2", "dgx-h100")] == [18, 9, 1]
    assert machine_of("nvl72")[0].rails == 4
    # NICs that trays cannot share evenly belong to the domain as a whole.
    assert machine_of("nvl72/4x400")[0].trays == 1


def test_a_ring_of_cables_joins_neighbours_through_one_nic_each():
    network = pod("dgx-spark:5/ring")
    steps = (network.dst - network.src) % 5
    assert sorted(steps.tolist()) == [1] * 5 + [4] * 5
    assert len(network.ports) == 10
    assert pod("dgx-spark:3/ring").links == pod("dgx-spark:3").links
    assert pod("dgx-spark:2/ring").links == 2
    with pytest.raises(UsageError, match="machines of one GPU"):
        pod("dgx-h100:4/ring")


def test_fabrics_are_written_behind_the_number():
    assert fabric_of("dgx-h100") == Fabric(1)
    assert fabric_of("dgx-h100:64/rail") == Fabric(64, 1, "rail")
    assert fabric_of("dgx-h100/4x400:64/RAIL/2") == Fabric(64, 1, "rail", 2)
    assert fabric_of("dgx-h100:4x16/rail") == Fabric(16, 4, "rail")
    assert hosts_named("dgx-h100:4x16/rail/2") == 64


@pytest.mark.parametrize(
    ("fabric", "says"),
    [
        ("6/rail/4", "divides 6, found '4'"),
        ("6/rail/0", "divides 6"),
        ("6/rail/x", "divides 6"),
        ("6/leaf", "then a fabric"),
        ("6/2", "then a fabric"),
        ("6/", "then a fabric"),
        ("6/rail/2/2", "then a fabric"),
        ("2x3", "then a fabric"),
        ("2x3x4/rail", "then a fabric"),
        ("4/ring/2", "then a fabric"),
        ("x/rail", "1 to 32768"),
        ("0x4/rail", "1 to 32768"),
        ("9000x9000/rail", "1 to 32768"),
    ],
)
def test_refuses_fabrics_that_make_no_sense(fabric, says):
    with pytest.raises(UsageError, match=says):
        pod(f"dgx-h100:{fabric}")


def test_gpus_share_the_nics_of_their_host_in_both_directions():
    network = pod("dgx-2:2")
    between = np.flatnonzero(network.src // 16 != network.dst // 16)
    for end, word in ((network.src, "egress"), (network.dst, "ingress")):
        sharing = {}
        for link in between:
            (port,) = (network.ports[p] for p in network.ports_of(link) if network.ports[p].endswith(word))
            sharing.setdefault(port, set()).add(int(end[link]))
        assert len(sharing) == 16
        assert all(len(ranks) == 2 for ranks in sharing.values())


def test_links_between_two_gpus_can_be_several():
    network = pod("mi250")
    parallel = np.count_nonzero((network.src == 0) & (network.dst == 1))
    assert parallel == 4


def test_names_are_read_loosely():
    assert is_pod("DGX_A100:2")
    assert pod("dgx_a100:2").ranks == 16
    assert not is_pod("dgx-9")


@pytest.mark.parametrize("count", ["0", "x", "", "40000"])
def test_refuses_a_count_that_makes_no_sense(count):
    with pytest.raises(UsageError, match="1 to 32768"):
        pod(f"dgx-a100:{count}")


def test_other_nics_are_written_behind_the_name():
    network = pod("dgx-a100/2x100:2")
    between = np.flatnonzero(network.src // 8 != network.dst // 8)
    used = {network.ports[port] for link in between for port in network.ports_of(link)}
    assert used == {
        f"n{host} nic{nic} {way}" for host in "01" for nic in "01" for way in ("egress", "ingress")
    }
    assert 1e-9 / network.beta_s_per_byte[between] == pytest.approx(12.5)
    assert is_pod("dgx-a100/2x100")
    assert [hosts_named(spec) for spec in ("dgx-a100", "dgx-a100:3")] == [None, 3]


@pytest.mark.parametrize("nics", ["", "4", "x", "9x100", "0x100", "4x0", "4xnan", "4x-1", "4x1e9"])
def test_refuses_nics_that_make_no_sense(nics):
    with pytest.raises(UsageError, match="NICs of"):
        pod(f"dgx-a100/{nics}:2")


def test_refuses_more_than_fit() -> None:
    with pytest.raises(UsageError, match="at most 8192 of these machines"):
        pod("dgx-a100:9000")
    with pytest.raises(UsageError, match="links are more than"):
        _ = pod("dgx-a100:512").src


MULTIPROCESSORS = {
    "dgx-1p": 56,
    "dgx-1": 80,
    "dgx-a100": 108,
    "dgx-h100": 132,
    "dgx-b200": 148,
    "mi300x": 304,
}


@pytest.mark.parametrize("name", MULTIPROCESSORS)
def test_a_network_knows_how_many_threadblocks_its_gpus_run(name):
    count = MULTIPROCESSORS[name]
    assert [pod(f"{name}:{hosts}").multiprocessors for hosts in (1, 2)] == [count, count]
    assert without(pod(name), Failures(ranks=(0,))).multiprocessors == count


def test_a_network_of_more_ranks_than_it_lists_knows_it_too():
    assert pod("dgx-h100:512").multiprocessors == 132
