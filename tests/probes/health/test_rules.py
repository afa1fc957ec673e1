"""Rules of one host: each finding on a host that has the cause, and none on the same host without it."""

from dataclasses import replace

import pytest

from probes.health import GpuHealth, HostHealth, NicHealth, host_problems, kernel_events, read_host
from tests.helpers.health_machines import GROUPS, config, make, net, place, port


def problems(root, changes=(), **values):
    return host_problems(replace(read_host("h", make(root.resolve(), changes)), **values))


INFINIBAND = {port(g, "link_layer"): "InfiniBand" for g in GROUPS}


@pytest.mark.parametrize(
    ("changes", "part", "kind", "severity", "words"),
    [
        # One port of four that are alike is down.
        (
            {port(1, "state"): "1: DOWN", port(1, "phys_state"): "2: Polling", net(1, "operstate"): "down"},
            "mlx5_1 (rdma1)",
            "port_down",
            "fault",
            "the port is down (Polling); 3 of 3 ports like it are active",
        ),
        (
            {net(2, "speed"): "200000"},
            "mlx5_2 (rdma2)",
            "port_slow",
            "fault",
            "the port runs at 200 Gbit/s; 3 of 3 ports like it have at least 400 Gbit/s",
        ),
        (
            INFINIBAND | {port(0, "rate"): "100 Gb/sec (1X NDR)", net(0, "speed"): None},
            "mlx5_0 (rdma0)",
            "port_slow",
            "fault",
            "the port runs at 100 Gbit/s; 3 of 3 ports like it have at least 400 Gbit/s",
        ),
        (
            {f"{place(3, 'nic')}/current_link_width": "8"},
            "mlx5_3 (rdma3)",
            "pcie_width",
            "fault",
            "its PCIe link has 8 lanes; both its ends can do 16",
        ),
        (
            {f"{place(3, 'nic')}/current_link_speed": "16.0 GT/s PCIe"},
            "mlx5_3 (rdma3)",
            "pcie_speed",
            "fault",
            "its PCIe link runs at 16 GT/s; both its ends can do 32 GT/s",
        ),
        (
            {
                f"{place(3, part)}/{which}_link_speed": "16.0 GT/s PCIe"
                for part in ("nic", "nic port")
                for which in ("current", "max")
            },
            "mlx5_3 (rdma3)",
            "pcie_below_port",
            "remark",
            "its slot carries 252.1 Gbit/s (PCIe 16 GT/s x16); its port can do 400 Gbit/s",
        ),
        (
            {port(0, "counters/symbol_error"): "11"},
            "mlx5_0 (rdma0)",
            "counter_high",
            "remark",
            "11 symbol errors since its driver was loaded (symbol_error); up to 10 are normal",
        ),
        (
            {net(0, "mtu"): "1500"},
            "mlx5_0 (rdma0)",
            "rdma_mtu",
            "remark",
            "RoCE packets carry 1024 bytes as the MTU is 1500; 4096 are normal",
        ),
        (
            {port(0, "gids/2"): None, port(0, "gids/3"): None},
            "mlx5_0 (rdma0)",
            "roce_gid",
            "remark",
            "its best GID (index 1) is link-local; RoCE v2 with an IP address is normal",
        ),
        (
            {f"{place(0, 'nic')}/config": config(relaxed=False)},
            "mlx5_0 (rdma0)",
            "relaxed_ordering",
            "remark",
            "relaxed ordering is off",
        ),
        (
            {f"{place(g, 'nic port')}/config": config(acs=0x1D) for g in GROUPS},
            "PCIe switches",
            "acs",
            "remark",
            "4 ports of PCIe switches (0000:12:04.0, 0000:22:04.0, 0000:32:04.0, 0000:42:04.0) redirect",
        ),
        (
            {f"{place(g, 'gpu')}/iommu_group/type": "DMA" for g in GROUPS},
            "IOMMU",
            "iommu",
            "remark",
            "the IOMMU translates",
        ),
        (
            {"sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave"},
            "CPU clocks",
            "governor",
            "remark",
            "is powersave; performance is normal",
        ),
        (
            {"proc/sys/kernel/numa_balancing": "1"},
            "NUMA balancing",
            "numa_balancing",
            "remark",
            "is 1; 0 is normal",
        ),
        (
            {"sys/module/nvidia_peermem/refcnt": None, "proc/sys/kernel/osrelease": "5.4.0-150-generic"},
            "GPUDirect RDMA",
            "peer_memory",
            "remark",
            "nvidia_peermem is not loaded",
        ),
        (
            {
                "sys/module/nvidia_peermem/refcnt": None,
                "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07",
            },
            "GPUDirect RDMA",
            "peer_memory",
            "remark",
            "nvidia_peermem is not loaded",
        ),
    ],
)
def test_a_cause_gives_its_finding_alone(tmp_path, changes, part, kind, severity, words):
    (found,) = problems(tmp_path, changes)
    assert (found.host, found.part, found.kind, found.severity) == ("h", part, kind, severity)
    assert words in found.text
    assert found.remedy


@pytest.mark.parametrize(
    "changes",
    [
        # A port that nobody uses: the second of each card, or one that is switched off.
        {port(g, "state"): "1: DOWN" for g in GROUPS}
        | {port(g, "phys_state"): "3: Disabled" for g in GROUPS},
        # Two lanes of NDR on all ports are a cable for two NICs, not lost lanes.
        INFINIBAND
        | {port(g, "rate"): "200 Gb/sec (2X NDR)" for g in GROUPS}
        | {net(g, "speed"): None for g in GROUPS},
    ],
)
def test_ports_that_are_all_alike_are_no_fault(tmp_path, changes):
    assert {one.severity for one in problems(tmp_path, changes)} == {"remark"}


@pytest.mark.parametrize(
    "changes",
    [
        {port(0, "counters/symbol_error"): "10"},
        {net(0, "mtu"): "4200"},
        {net(0, "carrier_changes"): "20"},
        {"sys/module/nvidia_peermem/refcnt": None},
        {f"{place(0, 'nic port')}/config": config(acs=0x51)},
        # A management port without a cable.
        {
            "sys/devices/pci0000:70/0000:70:01.0/class": "0x020000",
            "sys/devices/pci0000:70/0000:70:01.0/net/eno1/type": "1",
            "sys/devices/pci0000:70/0000:70:01.0/net/eno1/operstate": "down",
        },
    ],
)
def test_what_is_normal_gives_no_finding(tmp_path, changes):
    assert problems(tmp_path, changes) == []


def nic(**values):
    plain = NicHealth(name="ib0", rdma_device="mlx5_0", port=1, link_layer="InfiniBand", state="active")
    return replace(plain, **values)


def of(*nics, **values):
    return host_problems(HostHealth("h", nics=nics, **values))


def test_counters_that_grow_are_faults_if_the_wire_is_to_blame():
    grown = nic(
        grew={"symbol_error": 3, "out_of_sequence": 40}, counters={"symbol_error": 5000}, seconds=5.02
    )
    found = of(grown)
    assert [(one.kind, one.severity) for one in found] == [
        ("counter_grows", "fault"),
        ("counter_grows", "remark"),
    ]
    assert found[0].text == "3 symbol errors within 5.02 s (symbol_error); 0 is normal"
    # The growth says more than the total does.
    assert len(found) == 2


def test_a_port_that_was_up_and_is_down_is_a_fault_unless_it_was_switched_off():
    lost = nic(state="down", physical_state="Polling", counters={"link_downed": 2})
    assert [one.severity for one in of(lost)] == ["fault"]
    assert [one.severity for one in of(replace(lost, physical_state="Disabled"))] == ["remark"]
    assert [one.severity for one in of(replace(lost, counters={}))] == ["remark"]
    assert "if it is to be used" in of(lost)[0].remedy
    assert of(replace(lost, virtual=True)) == []


def test_a_port_below_what_its_driver_supports_is_a_remark():
    (found,) = of(nic(link_layer="Ethernet", speed_mbit=25_000, speed_most_mbit=100_000))
    assert (found.kind, found.severity) == ("port_slow", "remark")
    assert found.text == "the port runs at 25 Gbit/s; it can do 100 Gbit/s"
    (found,) = of(nic(speed_mbit=100_000, speed_most_mbit=400_000))
    assert (found.kind, found.severity) == ("port_slow", "fault")
    assert of(nic(speed_mbit=400_000, speed_most_mbit=400_000)) == []


def test_a_management_port_may_have_a_slower_switch():
    assert of(NicHealth("eno1", state="up", speed_mbit=1000, speed_most_mbit=10_000)) == []
    (found,) = of(NicHealth("eth0", state="up", speed_mbit=100_000, speed_most_mbit=200_000))
    assert (found.kind, found.severity) == ("port_slow", "remark")


def test_a_slow_management_card_is_no_fault():
    (found,) = of(NicHealth("eno1", state="up", speed_mbit=1000, pcie_width=1, pcie_width_most=4))
    assert (found.kind, found.severity) == ("pcie_width", "remark")


def test_settings_matter_only_where_they_cost():
    off = {"governor": "powersave", "numa_balancing": "1", "memlock": "8192 KiB"}
    assert of(alike=off) == []
    kinds = {one.kind for one in of(gpus=(GpuHealth("0000:1b:00.0"),), alike=off)}
    assert kinds == {"governor", "numa_balancing"}
    (found,) = of(nic(), alike=off)
    assert found.kind == "memlock"
    assert "8192 KiB" in found.text


def test_what_stands_between_devices_matters_only_if_there_are_two():
    one = (GpuHealth("0000:1b:00.0", name="H100"),)
    assert of(gpus=one, iommu="translating", acs=("0000:12:00.0",)) == []
    assert {found.kind for found in of(nic(), gpus=one, iommu="translating", acs=("0000:12:00.0",))} == {
        "acs",
        "iommu",
    }
    # The hypervisor's own translation is not seen in a guest, and the guest's is the provider's choice.
    assert of(nic(), gpus=one, iommu="translating", virtual_machine="KVM") == []


def test_a_virtual_machine_that_hides_its_switches_is_told():
    gpus = tuple(GpuHealth(f"0000:{bus}:00.0", name="H100") for bus in ("1b", "2b"))
    (found,) = of(nic(), gpus=gpus, virtual_machine="KVM", pcie_switches=0)
    assert found.kind == "virtual_pcie"
    assert "2 GPUs and 1 RDMA port" in found.text
    assert of(nic(), gpus=gpus, virtual_machine="KVM", pcie_switches=2) == []
    assert of(nic(), gpus=gpus, virtual_machine="", pcie_switches=0) == []
    assert of(nic(), gpus=gpus[:1], virtual_machine="KVM", pcie_switches=0) == []


@pytest.mark.parametrize(
    ("line", "severity", "words"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=a, GPU has fallen off the bus.", "fault", "fallen off"),
        ("NVRM: Xid (PCI:0000:3b:00): 48, pid=1, DBE (double bit error)", "fault", "uncorrectable"),
        ("NVRM: Xid (PCI:0000:3b:00): 63, Row Remapper: New row marked for remapping", "remark", "remapped"),
        ("NVRM: Xid (PCI:0000:3b:00): 64, Row Remapper: Failed", "fault", "could not be remapped"),
        ("NVRM: Xid (PCI:0000:3b:00): 94, pid=7, Contained: CE User Channel", "remark", "contained"),
        ("NVRM: Xid (PCI:0000:3b:00): 95, pid=7, Uncontained: LTC TAG", "fault", "uncontained"),
        ("NVRM: Xid (PCI:0000:3b:00): 119, pid=1, Timeout waiting for RPC from GSP", "fault", "GSP"),
        ("NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00", "fault", "NVLink"),
        ("NVRM: Xid (PCI:0000:3b:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13", None, ""),
        ("NVRM: Xid (PCI:0000:3b:00): 13, pid=1, Graphics Exception: ESR 0x1", None, ""),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=1, Ch 1, MMU Fault", None, ""),
        ("NVRM: Xid (PCI:0000:3b:00): 43, pid=1, Ch 8", None, ""),
        ("NVRM: Xid (PCI:0000:3b:00): 45, pid=1, Ch 8", None, ""),
        ("NVRM: Xid (PCI:0000:3b:00): 999, something new", "remark", "without an entry"),
        ("nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "fault", "20034"),
        ("nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 11021, Non-fatal, Link 3 ECC", "remark", "11021"),
        ("nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 Minion", None, ""),
        (
            "mlx5_core 0000:41:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
            "fault",
            "fatal",
        ),
        ("mlx5_core 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (RX)", None, ""),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0", "fault", "machine check"),
        ("mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 4: b200", "fault", "machine check"),
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0", None, ""),
    ],
)
def test_an_event_is_a_fault_only_if_a_part_is_to_blame(line, severity, words):
    found = of(events=kernel_events(line))
    if severity is None:
        assert found == []
    else:
        assert [one.severity for one in found] == [severity]
        assert words in found[0].text
        assert found[0].remedy


@pytest.mark.parametrize(
    "line",
    [
        "mlx5_core 0000:41:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1)",
    ],
)
def test_corrected_errors_are_a_remark_once_they_are_many(line):
    assert of(events=kernel_events("\n".join([line] * 10))) == []
    (found,) = of(events=kernel_events("\n".join([line] * 11)))
    assert found.severity == "remark"
    assert "11 " in found.text


def test_faults_come_first():
    found = of(nic(state="down"), events=kernel_events("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen"))
    assert [one.severity for one in found] == ["fault", "remark"]
