import pytest

from probes.paths.path_type import MEANING, Paths
from probes.topology import FabricLink, Gpu, Host, Nic, PciDevice


def switched(root, *chain):
    """One device below a chain of bridges given as (bus id, role)."""
    parent, found = "", []
    for bus_id, role in chain:
        found.append(PciDevice(bus_id, "m", parent=parent, root=root, role=role, numa=0))
        parent = bus_id
    return found


RP, UP, D1, D2, UP2, D3 = (
    ("r", "root"),
    ("u", "upstream"),
    ("d1", "downstream"),
    ("d2", "downstream"),
    ("u2", "upstream"),
    ("d3", "downstream"),
)


def host(fabric=(), **numa):
    """Six devices: a and b on one switch, c behind another switch below it, d, e, f further away."""
    pci = {
        device.bus_id: device
        for chain in (
            switched("pci0", RP, UP, D1, ("a", "device")),
            switched("pci0", RP, UP, D2, ("b", "device")),
            switched("pci0", RP, UP, ("d4", "downstream"), UP2, D3, ("c", "device")),
            switched("pci0", ("r2", "root"), ("d", "device")),
            switched("pci1", ("r3", "root"), ("e", "device")),
            [PciDevice("f", "m", root="pci2", numa=1), PciDevice("g", "m", root="pci3")],
        )
        for device in chain
    }
    gpus = tuple(Gpu(name, "m", index=i) for i, name in enumerate("acdef"))
    return Host(
        "h",
        "m",
        pci=tuple(pci.values()),
        gpus=gpus,
        nics=(Nic("n", "m", bus_id="b"), Nic("x", "m")),
        fabric=fabric,
    )


def gpu(found, name):
    return next((g for g in found.gpus if g.bus_id == name), Gpu(name, "m"))


def nvlink(source, target, kind="gpu", how="nvlink"):
    return FabricLink(source, target, kind, how, 1, "m")


@pytest.mark.parametrize(
    ("a", "b", "path"),
    [
        ("a", "a", "LOC"),
        ("a", "c", "PXB"),
        ("a", "d", "PHB"),
        ("a", "e", "NODE"),
        ("a", "f", "SYS"),
        ("a", "g", "?"),
    ],
)
def test_over_pci(a, b, path):
    found = host()
    between = Paths(found).between
    assert between(gpu(found, a), gpu(found, b)) == between(gpu(found, b), gpu(found, a)) == path


@pytest.mark.parametrize(
    ("a", "path"), [("a", "PIX"), ("c", "PXB"), ("d", "PHB"), ("e", "NODE"), ("f", "SYS")]
)
def test_from_a_gpu_to_a_nic(a, path):
    found = host()
    assert Paths(found).between(gpu(found, a), found.nics[0]) == path


def test_functions_below_one_root_port_cross_no_switch():
    pci = (
        PciDevice("r", "m", role="root", root="pci0"),
        *(PciDevice(name, "m", parent="r", root="pci0", role="device") for name in "ab"),
    )
    found = Host("h", "m", pci=pci)
    assert Paths(found).between(Gpu("a", "m"), Nic("n", "m", bus_id="b")) == "PIX"


@pytest.mark.parametrize(
    ("fabric", "path"),
    [
        ([nvlink("a", "f")], "NVL"),
        ([nvlink("f", "a")], "NVL"),
        ([nvlink("a", "s0", "switch"), nvlink("f", "s1", "switch")], "NVL"),
        ([nvlink("a", "s0", "switch")], "SYS"),
        ([nvlink("a", "c"), nvlink("c", "f")], "NVB"),
        ([nvlink("a", "c"), nvlink("c", "d"), nvlink("d", "f")], "SYS"),
        ([nvlink("a", "numa0", "cpu", "c2c"), nvlink("f", "numa0", "cpu", "c2c")], "C2C"),
        ([nvlink("a", "numa0", "cpu", "c2c"), nvlink("f", "numa1", "cpu", "c2c")], "SYS"),
        ([nvlink("a", "", "unknown"), nvlink("f", "", "unknown")], "SYS"),
    ],
)
def test_over_nvlink(fabric, path):
    found = host(fabric)
    assert Paths(found).between(gpu(found, "a"), gpu(found, "f")) == path


def test_a_nic_without_a_pci_device_is_told_by_numa_alone():
    found = host()
    between = Paths(found).between
    assert between(gpu(found, "a"), Nic("x", "m", numa=0)) == "NODE"
    assert between(gpu(found, "a"), Nic("x", "m", numa=1)) == "SYS"
    assert between(gpu(found, "a"), found.nics[1]) == "?"


def test_every_path_type_has_a_meaning():
    assert set(MEANING) == {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "PXN", "PHB", "NODE", "SYS", "NET", "?"}
