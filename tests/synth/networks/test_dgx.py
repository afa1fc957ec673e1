from __future__ import annotations

import networkx
import numpy as np
import pytest

from probes.base.errors import UsageError
from synth.networks.dgx import hosts_named, is_pod, pod, pod_names

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
}


def test_every_machine_is_tested():
    assert set(MACHINES) == set(pod_names())


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("count", [1, 2])
def test_shape_and_bandwidth(name, count):
    gpus, links, out_gbs = MACHINES[name]
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
