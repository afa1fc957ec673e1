import os

import pytest

from probes.base.errors import UsageError
from probes.profiling.declared import NICS, bind_nic, declared_nic, host_of
from probes.topology import Gpu, Host, Nic, PciDevice, Topology

BOX = Host(
    "gpu1",
    "test",
    pci=(
        PciDevice("0000:01:00.0", "test", role="switch", root="pci0"),
        PciDevice("0000:02:00.0", "test", parent="0000:01:00.0", root="pci0", role="device"),
        PciDevice("0000:03:00.0", "test", parent="0000:01:00.0", root="pci0", role="device"),
        PciDevice("0000:11:00.0", "test", role="switch", root="pci1"),
        PciDevice("0000:12:00.0", "test", parent="0000:11:00.0", root="pci1", role="device"),
        PciDevice("0000:13:00.0", "test", parent="0000:11:00.0", root="pci1", role="device"),
    ),
    gpus=(Gpu("0000:02:00.0", "test", 0), Gpu("0000:12:00.0", "test", 1)),
    nics=tuple(
        Nic(name, "test", physical=True, bus_id=bus_id)
        for name, bus_id in (("mlx5_0", "0000:03:00.0"), ("mlx5_1", "0000:13:00.0"))
    ),
)


@pytest.fixture(autouse=True)
def unbound(monkeypatch):
    """No NIC is bound here, and what a test binds goes with it."""
    for name in (NICS, "CCCTL_NIC", "OMPI_MCA_btl_tcp_if_include", "UCX_NET_DEVICES", "FI_TCP_IFACE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.parametrize(("bus_id", "nic"), [("00000000:02:00.0", "mlx5_0"), ("0000:12:00.0", "mlx5_1")])
def test_a_gpu_leaves_by_the_nic_on_its_switch(bus_id, nic):
    assert declared_nic(Topology((BOX,)), "gpu1", bus_id).name == nic


def test_of_a_process_nothing_is_known_unless_it_is_bound(monkeypatch):
    assert declared_nic(Topology((BOX,)), "gpu1") is None
    monkeypatch.setenv(NICS, "mlx5_0,mlx5_1")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "3")
    bind_nic()
    assert os.environ["UCX_NET_DEVICES"] == "mlx5_1"
    assert declared_nic(Topology((BOX,)), "gpu1").name == "mlx5_1"


def test_one_host_stands_for_all_and_of_several_the_name_counts():
    assert host_of(Topology((BOX,)), "gpu7") is BOX
    other = Host("gpu2", "test")
    assert host_of(Topology((BOX, other)), "gpu2.cluster") is other
    with pytest.raises(UsageError, match="no host gpu3"):
        host_of(Topology((BOX, other)), "gpu3")
