"""Reading of a host: recorded machines, a healthy host with single changes, and this machine."""

from dataclasses import fields, replace
from pathlib import Path

import pytest
from drawn_examples import drawn
from hypothesis import HealthCheck, given, settings, strategies as st

from probes.base import DataError
from probes.health import HostHealth, host_problems, read_host
from probes.sysfs import packed, unpack
from tests.helpers.health_machines import GROUPS, config, gpu_host, listing, make, net, place, port

MACHINES = Path(__file__).parents[2] / "machines"
# The true findings of each recorded machine: severity, part and kind. Its README has the reasons.
EXPECTED = {
    "linux-asus-rtx4090": set(),
    "linux-dell-h100pcie": {("remark", "mlx5_1 (ens5f1np1)", "port_down")},
    "linux-firecracker-h100": set(),
    "linux-firecracker-h200": set(),
    "linux-hpe-ibdown": {
        ("fault", "mlx5_0:2 (ib1)", "port_down"),
        ("remark", "mlx5_0:2 (ib1)", "counter_high"),
    },
    "linux-hyperv-h100": {("remark", "mlx5_0:2", "port_down")},
    "linux-kvm-a100": set(),
    "linux-nvidia-dgxa100": {("fault", "mlx5_5", "pcie_width"), ("fault", "mlx5_7", "port_down")},
    "linux-supermicro-mi300x": set(),
}


def test_every_recorded_machine_has_expected_findings():
    assert {folder.name for folder in MACHINES.iterdir() if folder.is_dir()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recorded_machine_gives_its_true_findings_and_no_other(name, tmp_path):
    root = tmp_path.resolve()
    unpack((MACHINES / name / "sysfs.txt").read_text(), root, name)
    found = host_problems(read_host(name, root))
    assert {(one.severity, one.part, one.kind) for one in found} == EXPECTED[name]
    assert all(one.host == name and one.text and one.remedy for one in found)


def test_a_healthy_host_is_read_whole_and_has_no_problem(tmp_path):
    health = read_host("h", make(tmp_path.resolve()))
    assert host_problems(health) == []
    expected = {
        "kernel": "6.8.0-45-generic",
        "distribution": "Ubuntu 22.04.4 LTS",
        "cpu": "Xeon 8480",
        "microcode": "0x2b0",
        "cpus": "0-63",
        "governor": "performance",
        "numa_balancing": "0",
        "swap": "none",
        "kernel options": "iommu=pt",
        "isolated cpus": "none",
        "driver": "550.90.07 (open module)",
        "ofed": "24.04-0.6.6",
        "efa": "none",
        "peer memory": "nvidia_peermem",
        "pci gpus": "4 x H100 SXM5 80GB",
        "rdma ports": "4 x MT_0000000838",
        "ports": "rdma0, rdma1, rdma2, rdma3",
        "mtu rdma2": "9000",
        "firmware mlx5_2": "28.39.1002",
        "gid rdma2": "RoCE v2 3",
        "rdma pcie rdma2": "32 GT/s x16",
    }
    assert {name: health.alike.get(name) for name in expected} == expected
    assert (health.iommu, health.acs, health.virtual_machine, health.pcie_switches) == (
        "passthrough",
        (),
        "",
        4,
    )
    for nic in health.nics:
        assert (nic.state, nic.speed_mbit, nic.rdma_mtu, nic.relaxed_ordering) == (
            "active",
            400_000,
            4096,
            True,
        )
        assert (nic.gid_index, nic.gid_type, nic.gid_routable) == (3, "RoCE v2", True)
    assert set(health.alike).isdisjoint(health.unread)


def test_this_machine_can_be_read_and_every_gap_is_explained():
    health = read_host("here")
    assert health.alike["kernel"]
    assert health.alike["memlock"] == "unlimited" or health.alike["memlock"].endswith(" KiB")
    assert all(len(reason) > 20 for reason in health.unread.values())
    facts = {
        "kernel",
        "cpu",
        "governor",
        "hugepages",
        "swap",
        "driver",
        "bios",
        "nccl",
        "cuda",
        "mpi",
        "memlock",
    }
    assert facts <= {*health.alike, *health.unread}
    assert set(health.alike).isdisjoint(health.unread)


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        (
            {"proc/swaps": "Filename Type Size Used Priority\n/dev/sda2 partition 8388608 0 -2"},
            {"swap": "8 GiB"},
        ),
        ({"sys/devices/system/cpu/isolated": "2-31"}, {"isolated cpus": "2-31"}),
        ({"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "512"}, {"hugepages": "512 of 2048kB"}),
        (
            {"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never"},
            {"transparent_hugepages": "madvise"},
        ),
        (
            {
                "sys/devices/system/memory/block_size_bytes": "80000000",
                "sys/devices/system/memory/memory0/state": "online",
                "sys/devices/system/memory/memory9/state": "online",
            },
            {"memory": "4 GiB"},
        ),
        (
            {
                "sys/module/nvidia/version": None,
                "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03",
            },
            {"driver": "535.54.03"},
        ),
        (
            {
                "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave",
                "sys/devices/system/cpu/cpufreq/policy1/scaling_governor": "performance",
            },
            {"governor": "performance, powersave"},
        ),
    ],
)
def test_a_setting_is_read_from_its_file(tmp_path, changes, facts):
    health = read_host("h", make(tmp_path.resolve(), changes))
    assert {name: health.alike.get(name) for name in facts} == facts


def test_a_recording_holds_what_health_reads_and_reads_the_same(tmp_path):
    changes = {
        f"{place(0, 'nic port')}/config": config(acs=0x1D),
        port(0, "gids/2"): None,
        port(0, "gids/3"): "0000:0000:0000:0000:0000:ffff:a9fe:0708",
        "sys/module/efa/parameters/x": "1",
    }
    make((tmp_path / "a").resolve(), changes)
    text = packed((tmp_path / "a").resolve())
    unpack(text, (tmp_path / "b").resolve(), "x")
    first, again = (read_host("h", (tmp_path / name).resolve()) for name in "ab")
    assert packed((tmp_path / "b").resolve()) == text
    # A recording may be shared, so it holds no serial number.
    assert first.serial == "SN-SECRET" and "SN-SECRET" not in text
    unread = {name: why for name, why in again.unread.items() if name != "serial"}
    again = replace(again, serial=first.serial, unread=unread)
    for one in fields(HostHealth):
        assert getattr(again, one.name) == getattr(first, one.name), one.name
    assert again.acs == ("0000:12:04.0",)
    assert again.alike["efa"] == "loaded"
    assert (again.nics[0].gid_index, again.nics[0].gid_routable) == (3, False)


def test_a_recording_names_no_machine(tmp_path):
    serial = bytes.fromhex("deadbeef01020304")
    changes = {
        f"{place(0, 'nic')}/config": config(serial=serial),
        f"{place(0, 'nic')}/infiniband/mlx5_0/node_guid": "b8ce:f603:0000:0001",
        port(0, "gids/5"): "2a01:04f8:0000:0000:0000:0000:0000:0007",
        "proc/swaps": "Filename Type Size Used Priority\n/dev/disk-of-ours partition 8388608 0 -2",
        "proc/sys/kernel/hostname": "gpu17.ours.example",
    }
    text = packed(make(tmp_path.resolve(), changes))
    secrets = (
        "b8:ce:f6",
        "b8ce:f603",
        "0a00:0000",
        "00ff:fe00",
        "2a01:04f8",
        "SN-SECRET",
        "5f0c",
        "10.1.2.3",
    )
    for secret in (*secrets, "ours", serial.hex(), serial[::-1].hex()):
        assert secret not in text, secret
    # The kinds of the addresses are kept, and with them the choice among them.
    assert "0000:0000:0000:0000:0000:ffff:c000:0201" in text


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({f"{place(g, 'gpu')}/iommu_group/type": "DMA-FQ" for g in GROUPS}, "translating"),
        ({}, "passthrough"),
    ],
)
def test_the_iommu_of_devices_is_that_of_their_groups(tmp_path, changes, state):
    assert read_host("h", make(tmp_path.resolve(), changes)).iommu == state


def test_an_old_kernel_tells_the_iommu_by_its_command_line(tmp_path):
    files, links = gpu_host()
    files = {name: content for name, content in files.items() if "iommu_group" not in name}
    files["sys/kernel/iommu_groups/1/reserved_regions"] = "0xfee00000"
    for number, (line, state) in enumerate([("iommu=pt quiet", "passthrough"), ("quiet", "translating")]):
        root = (tmp_path / str(number)).resolve()
        unpack(listing({**files, "proc/cmdline": line}, links), root, "x")
        assert read_host("h", root).iommu == state


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, ""),
        ({"proc/cpuinfo": "flags : fpu hypervisor"}, "DGX"),
        (
            {"proc/cpuinfo": "flags : fpu hypervisor", "sys/class/dmi/id/product_name": None},
            "a hypervisor without a name",
        ),
        ({"proc/cpuinfo": "CPU implementer : 0x41", "sys/class/dmi/id/sys_vendor": "QEMU"}, "QEMU DGX"),
        # A machine of a cloud that is not shared has its name, and no hypervisor.
        ({"sys/class/dmi/id/sys_vendor": "Amazon EC2"}, ""),
    ],
)
def test_a_virtual_machine_is_known_by_its_processor_or_its_product(tmp_path, changes, name):
    assert read_host("h", make(tmp_path.resolve(), changes)).virtual_machine == name


def test_without_root_the_hidden_registers_are_told_once(tmp_path):
    parts = ("gpu port", "nic port", "nic")
    hidden = {f"{place(g, part)}/config": config()[:64] for g in GROUPS for part in parts}
    health = read_host("h", make(tmp_path.resolve(), hidden))
    assert health.acs == ()
    assert "root" in health.unread["acs"]
    assert "root" in health.unread["relaxed ordering"]
    assert host_problems(health) == []


def test_a_port_of_a_root_complex_that_redirects_changes_nothing(tmp_path):
    health = read_host("h", make(tmp_path.resolve(), {f"{place(0, 'root')}/config": config(acs=0x1D)}))
    assert health.acs == ()


@given(st.data())
@settings(max_examples=drawn(25), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_content_of_the_files_is_read_or_refused(tmp_path_factory, data):
    files, links = gpu_host()
    names = sorted(files)
    odd = st.sampled_from(["", "-1", "9" * 40, "x", "4: ACTIVE", "[", "0 Gb/sec (0X )", "\x00", "1e9", "²"])
    for _ in range(data.draw(st.integers(1, 6))):
        name = data.draw(st.sampled_from(names))
        files[name] = data.draw(st.binary(max_size=600)) if name.endswith("/config") else data.draw(odd)
    root = tmp_path_factory.mktemp("odd").resolve()
    try:
        unpack(listing(files, links), root, "x")
    except DataError:
        return
    health = read_host("h", root, log="")
    assert all(one.text for one in host_problems(replace(health, host="h")))


def test_changed_counters_alone_do_not_change_what_should_be_alike(tmp_path):
    names = [net(0, "statistics/rx_crc_errors"), port(0, "counters/symbol_error")]
    before = read_host("h", make((tmp_path / "a").resolve()))
    after = read_host("h", make((tmp_path / "b").resolve(), dict.fromkeys(names, "7")))
    assert before.alike == after.alike
    assert before.nics != after.nics
