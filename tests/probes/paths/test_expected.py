import dataclasses

import pytest
from hypothesis import given, strategies as st

from probes.paths.bandwidth import load
from probes.paths.expected import Expected, expected_gbs, link_gbs
from probes.topology import FabricLink, Gpu, Host, Nic, NumaNode, PciDevice

TABLES = load()


def port(bus_id, role, parent="", root="pci0", speed=16.0, width=16, **fields):
    return PciDevice(
        bus_id,
        "m",
        parent=parent,
        root=root,
        role=role,
        max_speed_gts=speed,
        max_width=width,
        numa=0,
        **fields,
    )


def link(source, target, count, kind="gpu", how="nvlink", **fields):
    return FabricLink(source, target, kind, how, count, "m", **fields)


def host(fabric=(), vendor="AuthenticAMD", **changed):
    """a and b below one switch, c on a root port of eight lanes, d on another NUMA node; a NIC beside b."""
    pci = {
        device.bus_id: device
        for device in (
            port("r1", "root"),
            port("u", "upstream", "r1"),
            port("p1", "downstream", "u"),
            port("p2", "downstream", "u"),
            port("p3", "downstream", "u", speed=8.0),
            port("a", "device", "p1", width=16),
            port("b", "device", "p2", width=16),
            port("n", "device", "p3", speed=16.0),
            port("r2", "root", width=8),
            port("c", "device", "r2"),
            dataclasses.replace(port("r3", "root", root="pci1"), numa=1),
            dataclasses.replace(port("d", "device", "r3", root="pci1", speed=32.0), numa=1),
        )
    }
    pci |= {name: dataclasses.replace(pci[name], **fields) for name, fields in changed.items()}
    gpus = tuple(Gpu(name, "m", index=i, arch="sm_80") for i, name in enumerate("abcd"))
    return Host(
        "h",
        "m",
        numa=tuple(NumaNode(n, "m", arch="x86_64", vendor=vendor, model=85) for n in (0, 1)),
        pci=tuple(pci.values()),
        gpus=gpus,
        nics=(Nic("n", "m", physical=True, bus_id="n", speed_mbit=200_000),),
        fabric=tuple(fabric),
    )


def way(found, a, b):
    devices = {gpu.bus_id: gpu for gpu in found.gpus} | {nic.name: nic for nic in found.nics}
    return Expected(found, TABLES).between(devices[a], devices[b])


def test_a_bridge_above_both_ends_does_not_limit_them():
    found = host(u={"max_width": 4})
    assert way(found, "a", "b").gbs == 24.0
    assert (way(found, "a", "c").gbs, way(found, "a", "c").limit) == (6.0, "PCIe link of u")


@pytest.mark.parametrize(
    ("a", "b", "path", "gbs", "limit"),
    [
        ("a", "b", "PIX", 24.0, "PCIe link of"),
        ("a", "n", "PIX", 12.0, "PCIe link of n"),  # the port above the NIC can 8 GT/s only
        ("a", "c", "PHB", 12.0, "PCIe link of c"),  # eight lanes of the root port
        ("a", "d", "SYS", 16.0, "between NUMA nodes"),
        ("a", "a", "LOC", None, ""),
    ],
)
def test_the_narrowest_part_of_the_way_over_pcie_decides(a, b, path, gbs, limit):
    for ends in ((a, b), (b, a)):
        found = way(host(), *ends)
        assert (found.path, found.gbs) == (path, gbs)
        assert limit in found.limit


def test_lanes_in_use_count_before_lanes_that_could_be_and_an_idle_speed_does_not():
    assert way(host(a={"width": 8, "speed_gts": 2.5}), "a", "b").gbs == 12.0


def test_a_slow_port_decides_before_pcie():
    found = host()
    slow = dataclasses.replace(found, nics=(dataclasses.replace(found.nics[0], speed_mbit=25_000),))
    assert way(slow, "b", "n").gbs == 3.125
    assert way(slow, "b", "n").limit == "the speed of n"


def test_intels_cpus_cost_gpus_but_not_nics_a_fifth():
    intel = host(vendor="GenuineIntel")
    assert way(intel, "a", "c").gbs == 10.0
    assert way(intel, "a", "b").gbs == 24.0
    assert way(intel, "c", "n").gbs == 12.0
    assert way(intel, "a", "d").gbs == 10.0  # between two Skylakes


def test_only_the_speed_on_the_wire_is_enough():
    bare = {"max_speed_gts": None, "max_width": None}
    names = ("r1", "u", "p1", "p2", "a", "b")
    found = host(**{name: bare | {"raw_gbs": 15.753846} for name in names})
    assert way(found, "a", "b").gbs == 12.0


def test_where_nothing_is_known_nothing_is_expected():
    bare = {"max_speed_gts": None, "max_width": None}
    found = host(**{device.bus_id: bare for device in host().pci})
    assert way(found, "a", "b").gbs is None
    assert way(found, "a", "n").gbs == 25.0


@pytest.mark.parametrize(
    ("fabric", "path", "gbs"),
    [
        ([link("a", "b", 4), link("b", "a", 4)], "NVL", 80.0),
        ([link("a", "b", 4), link("b", "a", 3)], "NVL", 60.0),
        ([link("b", "a", 4)], "NVL", 80.0),
        ([link("a", "s", 12, "switch"), link("b", "s", 11, "switch")], "NVL", 220.0),
        ([link("a", "c", 4), link("c", "b", 2)], "NVB", 40.0),
        ([link("a", "c", 1), link("c", "b", 1), link("a", "d", 2), link("d", "b", 2)], "NVB", 40.0),
        (
            [link("a", "numa0", 10, "cpu", "c2c", gbs=44.7), link("b", "numa0", 10, "cpu", "c2c", gbs=40.0)],
            "C2C",
            400.0,
        ),
    ],
)
def test_over_the_fabric(fabric, path, gbs):
    found = way(host(fabric), "a", "b")
    assert (found.path, found.gbs) == (path, pytest.approx(gbs))


def test_links_to_cpus_carry_between_sockets():
    fabric = [link(gpu, f"numa{numa}", 3, "cpu") for gpu, numa in (("a", 0), ("d", 1))]
    assert way(host(fabric), "a", "d").gbs == 16.0
    assert way(host(fabric, vendor="X"), "a", "d").gbs == 60.0  # nothing known between such CPUs


def test_a_nearer_gpu_relays_to_a_nic():
    fabric = [link("b", "d", 12), link("d", "b", 12)]
    found = host(fabric)
    d, c = found.gpus[3], found.gpus[2]
    relayed = Expected(found, TABLES).over_peer(d, found.nics[0])
    assert (relayed.path, relayed.gbs, relayed.through) == ("PXN", 12.0, "b")
    assert Expected(found, TABLES).over_peer(c, found.nics[0]) is None
    assert Expected(found, TABLES).over_peer(found.gpus[1], found.nics[0]) is None


@pytest.mark.parametrize(
    ("arch", "told", "version", "gbs"),
    [
        ("sm_80", 25.781, "3.0", 20.0),  # what it is sold as, and what it delivers
        ("sm_80", 12.5, "3.0", 12.5),  # a link that runs slower than it could
        ("", None, "4.0", 20.6),
        ("", 25.0, "", 25.0),
        ("", None, "", 20.0),
    ],
)
def test_what_one_link_delivers(arch, told, version, gbs):
    one = link("a", "b", 1, gbs=told, version=version)
    assert link_gbs(one, Gpu("a", "m", arch=arch), TABLES) == gbs


def test_the_table_has_every_gpu_against_every_gpu_and_port():
    assert expected_gbs(host(), TABLES) == {
        "GPU0": {"GPU1": 24.0, "GPU2": 12.0, "GPU3": 16.0, "n": 12.0},
        "GPU1": {"GPU0": 24.0, "GPU2": 12.0, "GPU3": 16.0, "n": 12.0},
        "GPU2": {"GPU0": 12.0, "GPU1": 12.0, "GPU3": 12.0, "n": 12.0},
        "GPU3": {"GPU0": 16.0, "GPU1": 16.0, "GPU2": 12.0, "n": 12.0},
    }


speeds = st.sampled_from([2.5, 5.0, 8.0, 16.0, 32.0, None])
widths = st.sampled_from([1, 4, 8, 16, None])


@given(
    st.fixed_dictionaries(
        {
            name: st.fixed_dictionaries({"max_speed_gts": speeds, "max_width": widths})
            for name in ("r1", "u", "a", "c", "n")
        }
    )
)
def test_no_way_exceeds_any_part_of_it_and_both_directions_are_alike(changed):
    found = host(**changed)
    devices = [*found.gpus, *found.nics]
    expected = Expected(found, TABLES)
    for a in devices:
        for b in devices:
            one = expected.between(a, b)
            assert one.gbs == expected.between(b, a).gbs
            for end in (a, b):
                own = next(device for device in found.pci if device.bus_id == end.bus_id)
                limit = TABLES.pcie_gbs(own.max_speed_gts, own.max_width)
                if one.gbs is not None and one.path != "LOC" and limit is not None:
                    assert one.gbs <= limit
