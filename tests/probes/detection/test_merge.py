import dataclasses
import functools
from pathlib import Path
from types import SimpleNamespace

import psutil
import pynvml
import pytest
from hypothesis import given, strategies as st

from ccctl.artifacts import codec
from probes.detection import merge
from probes.live import recorded
from probes.paths.bandwidth import load
from probes.paths.expected import expected_gbs
from probes.paths.path_type import Paths
from probes.topology import Gpu, Host, Nic, NumaNode, PciDevice, Topology

MACHINES_AT = Path(__file__).parents[2] / "machines"
MACHINES = sorted(folder.name for folder in MACHINES_AT.iterdir() if folder.is_dir())


class NoNvml:
    """NVML where there is no driver."""

    NVMLError = pynvml.NVMLError

    def __init__(self, code):
        self._code = code

    def nvmlInit(self):  # noqa: N802 - NVML's own name
        raise pynvml.NVMLError(self._code)


class NoPsutil:
    Error = psutil.Error

    def __getattr__(self, name):
        raise PermissionError(f"{name} is not allowed")


@pytest.fixture(scope="module")
def replayed(machine):
    """A function that gives a recorded machine, and what detection finds on it, by the machine's name."""

    @functools.cache
    def detected(name):
        one = machine(name)
        return one, merge.live("box", root=one.root, driver=one.nvml, processes=NoPsutil())

    return detected


@pytest.mark.parametrize("name", MACHINES)
def test_a_recorded_machine_has_the_expected_counts_findings_and_paths(replayed, name):
    recorded, found = replayed(name)
    [host] = found.hosts
    expected = recorded.expected
    assert {
        "gpus": len(host.gpus),
        "usable_gpus": len(host.usable_gpus),
        "nics": len(host.physical_nics),
        "software_nics": len(host.nics) - len(host.physical_nics),
        "nvlinks": host.fabric_links(),
        "numa_nodes": len(host.numa),
    } == {
        key: expected[key]
        for key in ("gpus", "usable_gpus", "nics", "software_nics", "nvlinks", "numa_nodes")
    }
    assert [[finding.what, finding.where.split("/")[1]] for finding in found.findings] == expected["findings"]
    devices = {f"GPU{gpu.index}": gpu for gpu in host.gpus} | {nic.name: nic for nic in host.nics}
    paths = Paths(host)
    for pair, path in expected["paths"].items():
        a, b = (devices[word] for word in pair.split())
        assert (pair, paths.between(a, b)) == (pair, path)
        assert (pair, paths.between(b, a)) == (pair, path)
    assert found.problems() == []


@pytest.mark.parametrize("name", MACHINES)
def test_a_recorded_machine_has_the_expected_facts(replayed, name):
    recorded, found = replayed(name)
    [host] = found.hosts
    for path, expected in recorded.expected["facts"].items():
        table, rest = path.split(".", 1)
        records = getattr(host, table)
        named = [
            str(getattr(record, _KEYS[table])) if table in _KEYS else str(n)
            for n, record in enumerate(records)
        ]
        keys = dict(zip(named, records, strict=True))
        key = next(key for key in sorted(keys, key=len, reverse=True) if rest.startswith(key + "."))
        value = keys[key]
        for word in rest[len(key) + 1 :].split("."):
            if isinstance(value, tuple):
                value = value[int(word)]
            else:
                value = value[word] if isinstance(value, dict) else getattr(value, word)
        assert (path, list(value) if isinstance(value, tuple) else value) == (path, expected)


_KEYS = {"gpus": "index", "nics": "name", "pci": "bus_id", "numa": "index", "matrices": "what"}


@pytest.mark.parametrize("name", MACHINES)
def test_a_recorded_machine_has_the_expected_bandwidth(replayed, name):
    recorded, found = replayed(name)
    [host] = found.hosts
    carried = expected_gbs(host, load())
    for pair, gbs in recorded.expected["expected_gbs"].items():
        a, b = pair.split()
        assert (pair, carried[a][b]) == (pair, gbs)


@pytest.mark.parametrize("name", MACHINES)
def test_a_folder_of_raw_inputs_is_read_as_the_machine_was(replayed, name):
    _, live = replayed(name)
    read = merge.combined([merge.read_recording(MACHINES_AT / name)]).hosts[0]
    assert dataclasses.replace(read, name="box") == live.hosts[0]


def test_this_machine_recorded_and_read_again_is_the_same(tmp_path):
    for name, content in recorded.record().items():
        (tmp_path / name).write_text(content)
    host, read = merge.look("x").hosts[0], merge.read_recording(tmp_path).hosts[0]
    assert (read.pci, read.numa, read.gpus, read.fabric) == (host.pci, host.numa, host.gpus, host.fabric)
    told = {"mac", "guid", "addresses", "method_of", "mtu", "speed_mbit"}
    names = [field.name for field in dataclasses.fields(Nic) if field.name not in told]
    seen = [[[getattr(nic, name) for name in names] for nic in one.nics] for one in (read, host)]
    assert seen[0] == seen[1]
    addresses = {nic.mac for nic in host.nics if nic.mac} | {a for nic in host.nics for a in nic.addresses}
    text = "".join(path.read_text() for path in tmp_path.iterdir())
    assert not [address for address in addresses if address in text]


@pytest.mark.parametrize("name", MACHINES)
def test_a_recorded_machine_survives_being_written_and_read(replayed, name):
    _, found = replayed(name)
    assert codec.decode(codec.encode("topology", found), "memory", "topology").body == found


def test_what_nvml_refuses_is_noted_and_the_rest_is_there(replayed):
    _, found = replayed("linux-hyperv-h100")
    notes = "\n".join(found.notes)
    assert "nvmlDeviceGetUUID is not answered: Insufficient Permissions (2 times)" in notes
    assert [finding.what for finding in found.findings] == ["lost-gpu", "link-down"]
    assert "1 NVIDIA GPUs on the PCI bus are not given" in notes
    assert "MigMode" not in notes


@pytest.mark.parametrize("code", [9, 12, 18, 999])
def test_without_a_driver_the_gpus_of_the_pci_bus_are_there_with_a_note(machine, code):
    recorded = machine("linux-nvidia-dgxa100")
    found = merge.live("box", root=recorded.root, driver=NoNvml(code), processes=NoPsutil())
    assert len(found.hosts[0].gpus) == 8
    assert [gpu.index for gpu in found.hosts[0].gpus] == list(range(8))
    assert {gpu.name for gpu in found.hosts[0].gpus} == {"A100 SXM4 80GB"}
    assert any("no NVIDIA driver answers" in note for note in found.notes)


def test_a_machine_that_shows_nothing_is_one_host_and_notes(tmp_path):
    found = merge.live("box", root=tmp_path, driver=NoNvml(12), processes=NoPsutil())
    assert found.hosts[0].gpus == found.hosts[0].nics == found.hosts[0].pci == ()
    assert found.problems() == []
    assert {"sysfs", "nvml", "psutil"} == {note.split(": ")[1] for note in found.notes}


def test_this_machine_is_found_whole():
    found = merge.live()
    (host,) = found.hosts
    assert found.problems() == []
    assert host.cores
    assert host.memory_bytes == psutil.virtual_memory().total
    assert {nic.name for nic in host.nics} >= set(psutil.net_if_addrs()) - {"lo"}


def gpu(bus, method, **fields):
    return Gpu(f"0000:{bus:02x}:00.0", method, **fields)


def one(name, method, **fields):
    return Topology((Host(name, method, **fields),))


def test_merge_takes_from_later_parts_only_what_earlier_ones_do_not_say():
    first = one("a", "sysfs", gpus=(gpu(1, "sysfs", name="old", numa=0),))
    second = one(
        "a", "nvml", gpus=(gpu(1, "nvml", name="new", memory_bytes=5), gpu(2, "nvml")), memory_bytes=7
    )
    merged = merge.merge([first, second]).hosts[0]
    assert merged.memory_bytes == 7
    assert merged.method_of == {"memory_bytes": "nvml"}
    assert merged.gpus[0] == gpu(
        1, "sysfs", name="old", numa=0, memory_bytes=5, method_of={"memory_bytes": "nvml"}
    )
    assert merged.gpus[1] == gpu(2, "nvml")


def test_merge_keeps_hosts_apart_and_zero_is_something_said():
    first = one("a", "x", nics=(Nic("eth0", "x", numa=0),))
    second = Topology((Host("b", "y"), Host("a", "y", nics=(Nic("eth0", "y", numa=3, mtu=9),))), notes=("n",))
    merged = merge.merge([first, second])
    assert [host.name for host in merged.hosts] == ["a", "b"]
    assert (merged.hosts[0].nics[0].numa, merged.hosts[0].nics[0].mtu) == (0, 9)
    assert merged.notes == ("n",)


names = st.sampled_from(["a", "b"])
hosts = st.builds(
    Host,
    name=names,
    method=st.sampled_from(["x", "y"]),
    memory_bytes=st.none() | st.integers(0, 3),
    gpus=st.lists(st.integers(0, 3), unique=True).map(lambda buses: tuple(gpu(bus, "m") for bus in buses)),
    numa=st.lists(st.integers(0, 3), unique=True).map(lambda rows: tuple(NumaNode(row, "m") for row in rows)),
)
parts = st.lists(hosts.map(lambda host: Topology((host,))), min_size=1, max_size=4)


@given(parts, parts)
def test_merge_is_associative_and_idempotent(left, right):
    whole = merge.merge([*left, *right])
    assert merge.merge([merge.merge(left), merge.merge(right)]) == whole
    assert merge.merge([whole, whole]) == whole


@given(parts)
def test_merge_loses_no_device(several):
    whole = merge.merge(several)
    have = {(host.name, g.bus_id) for host in whole.hosts for g in host.gpus}
    assert have == {(host.name, g.bus_id) for part in several for host in part.hosts for g in host.gpus}


def test_hosts_side_by_side_get_names_of_their_own():
    found = merge.side_by_side([one("a", "x"), one("a", "x"), one("a-2", "x"), one("b", "x")])
    assert [host.name for host in found.hosts] == ["a", "a-2", "a-2-2", "b"]
    assert found.problems() == []


def test_gpus_without_a_number_get_free_ones():
    function = PciDevice("0000:01:00.0", "m", vendor="0x10de", device="0x20b0")
    from probes.detection.derive import complete

    host = Host("a", "m", pci=(function,), gpus=(gpu(1, "m"), gpu(2, "m", index=0), gpu(3, "m", index=0)))
    done = complete(Topology((host,)), load()).hosts[0]
    assert sorted((g.index, g.bus_id) for g in done.gpus) == [
        (0, "0000:02:00.0"),
        (1, "0000:03:00.0"),
        (2, "0000:01:00.0"),
    ]
    assert next(g for g in done.gpus if g.bus_id == "0000:01:00.0").method_of == {
        "name": "table",
        "arch": "table",
    }


def test_psutil_gives_addresses_and_the_cpus_that_may_be_used():
    from probes.live import system

    family = SimpleNamespace(name="AF_INET")
    process = SimpleNamespace(cpu_affinity=lambda: [0, 1, 2, 8])
    fake = SimpleNamespace(
        Error=psutil.Error,
        Process=lambda: process,
        virtual_memory=lambda: SimpleNamespace(total=99),
        cpu_count=lambda logical=True: 8 if logical else None,
        net_if_addrs=lambda: {"lo": [], "eth0": [SimpleNamespace(family=family, address="192.0.2.1")]},
        net_if_stats=lambda: {"eth0": SimpleNamespace(isup=True, mtu=1500, speed=0)},
    )
    host = system.read("box", fake).hosts[0]
    assert (host.cores, host.cpus, host.memory_bytes) == (8, "0-2,8", 99)
    assert host.nics == (Nic("eth0", "psutil", state="up", mtu=1500, addresses=("192.0.2.1",)),)


def test_every_record_says_which_method_gave_it(replayed):
    [host] = replayed("linux-nvidia-dgxa100")[1].hosts
    for table in ("numa", "pci", "gpus", "nics", "fabric"):
        for record in getattr(host, table):
            assert record.method in ("sysfs", "nvml")
            assert set(record.method_of) <= {field.name for field in dataclasses.fields(record)}
