"""Rail fabrics: which leaf and which uplink the traffic between two GPUs takes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from synth.networks.dgx import fabric_of, machine_of, pod
from synth.networks.families import family
from synth.networks.host_links import Fabric, Machine, Port, host_links, link_count, ports_between

RAILS = (
    "dgx-h100:4/rail",
    "dgx-h100:4/rail/2",
    "dgx-a100/4x200:2x4/rail/4",
    "nvl36:2x2/rail/2",
    "dgx-1:4/rail",
)


@st.composite
def fabrics(draw: st.DrawFn) -> tuple[Machine, Fabric]:
    trays, rails, shared = (draw(st.integers(1, 3)) for _ in range(3))
    machine = Machine(trays * rails * shared, 450.0, (), trays * rails, 50.0, trays=trays)
    over = draw(st.integers(1, 3))
    return machine, Fabric(over * draw(st.integers(1, 3)), draw(st.integers(1, 3)), "rail", over)


def leaf(machine: Machine, fabric: Fabric, rank: int) -> tuple[int, int]:
    """The unit and the rail of a rank."""
    host, gpu = divmod(rank, machine.gpus)
    return host // fabric.hosts, machine.nic_of(gpu) % machine.rails


@given(fabrics())
def test_only_traffic_between_leaves_takes_uplinks(made: tuple[Machine, Fabric]) -> None:
    machine, fabric = made
    ranks = machine.gpus * fabric.count
    for src in range(0, ranks, max(1, ranks // 7)):
        for dst in range(ranks):
            if src // machine.gpus == dst // machine.gpus:
                continue
            ports = ports_between(machine, fabric, src, dst)
            assert [port.kind for port in ports[:2]] == ["egress", "ingress"]
            ends = leaf(machine, fabric, src), leaf(machine, fabric, dst)
            assert [port.kind for port in ports[2:]] == ([] if ends[0] == ends[1] else ["up", "down"])
            for port, (unit, rail) in zip(ports[2:], ends, strict=False):
                assert (port.host // fabric.hosts, port.nic % machine.rails) == (unit, rail)


@given(fabrics())
def test_a_leaf_has_as_many_uplinks_as_its_oversubscription_leaves(made: tuple[Machine, Fabric]) -> None:
    machine, fabric = made
    links = list(host_links(machine, fabric))
    assert len(links) == link_count(machine, fabric)
    names = {name for link in links for name in link.ports if name.startswith("leaf")}
    leaves = Counter(name.rpartition(" ")[0] for name in names)
    below = fabric.hosts * machine.trays
    assert set(leaves.values()) <= {below // fabric.oversubscription}
    if machine.rails * fabric.units > 1 and fabric.units > 1:
        assert len(leaves) == 2 * machine.rails * fabric.units


@given(fabrics(), st.integers(1, 1000))
def test_if_all_nics_send_as_far_no_uplink_carries_more_than_its_share(
    made: tuple[Machine, Fabric], distance: int
) -> None:
    """The first GPU of each NIC sends to the GPU a number of NICs further."""
    machine, fabric = made
    shared = machine.gpus // machine.nics
    ranks = range(0, machine.gpus * fabric.count, shared)
    users: Counter[Port] = Counter()
    for src in ranks:
        dst = (src + distance * shared) % (len(ranks) * shared)
        if src // machine.gpus != dst // machine.gpus:
            users.update(ports_between(machine, fabric, src, dst))
    most = Counter(
        {port: 1 if port.kind in ("egress", "ingress") else fabric.oversubscription for port in users}
    )
    assert all(users[port] <= most[port] for port in users)


@pytest.mark.parametrize("spec", RAILS)
def test_names_of_ports_tell_them_apart(spec: str) -> None:
    machine, fabric = machine_of(spec)[0], fabric_of(spec)
    network, between = pod(spec), 0
    for link in range(0, network.links, 5):
        src, dst = int(network.src[link]), int(network.dst[link])
        if src // machine.gpus != dst // machine.gpus:
            between += 1
            ports = ports_between(machine, fabric, src, dst)
            assert len(ports) == len(set(network.ports_of(link).tolist()))
    assert between


def test_a_family_of_rails_is_the_machine_of_its_numbers() -> None:
    plain = family("rail:2x4x8/2", [0.7e-6, 1.7e-6], [450e9, 50e9])
    machine = pod("dgx-h100:2x4/rail/2")
    assert (plain.src == machine.src).all() and (plain.dst == machine.dst).all()
    assert plain.beta_s_per_byte == pytest.approx(machine.beta_s_per_byte)
    assert plain.alpha_s == pytest.approx(machine.alpha_s)
    assert (plain.ports, plain.hosts) == (machine.ports, machine.hosts)
