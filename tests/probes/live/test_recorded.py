import contextlib
import ctypes
import json
import re
from pathlib import Path

import pynvml
import pytest
from drawn_examples import drawn
from hypothesis import HealthCheck, given, settings, strategies as st

from probes.base.errors import DataError, MissingInputError
from probes.detection import merge
from probes.live import recorded
from probes.nvml.record import RecordedNvml, RecordingNvml
from probes.sysfs import kfd as sysfs_kfd, machine as sysfs
from probes.sysfs.record import packed, unpack

MACHINES = Path(__file__).parents[2] / "machines"
LISTING = """# a comment
[sys/devices/pci0000:00/0000:00:01.0]
class = 0x030200
vendor = 0x10de
[sys/bus/pci/devices]
0000:00:01.0 -> ../../../devices/pci0000:00/0000:00:01.0
[proc]
cpuinfo = vendor_id\t: AuthenticAMD\\nmodel\t: 17
"""


def test_what_is_unpacked_packs_the_same(tmp_path):
    unpack(LISTING, tmp_path / "a", "x")
    once = packed(tmp_path / "a")
    unpack(once, tmp_path / "b", "x")
    assert packed(tmp_path / "b") == once
    assert sysfs.read("h", tmp_path / "b").hosts == sysfs.read("h", tmp_path / "a").hosts
    assert len(sysfs.read("h", tmp_path / "a").hosts[0].gpus) == 1


@pytest.mark.parametrize(
    "line",
    [
        "[../outside]",
        "[/etc]",
        "../../../outside = x",
        "name -> /etc/passwd",
        "name -> ../../../../../outside",
        "name -> sub/../../../../../outside",
        "../../../../name -> x",
        "[sys]\nclass = 1\nno meaning",
        "[sys]\nclass -> x\nclass -> y",
        "[sys/a/b]\n[sys]\na -> b",
    ],
)
def test_a_listing_that_leads_out_or_means_nothing_is_refused(tmp_path, line):
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(DataError, match=r"sysfs\.txt: line \d"):
        unpack(f"[sys/x]\n{line}\n", root, "sysfs.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


def test_a_link_bent_by_another_link_still_stays_inside(tmp_path):
    root = tmp_path / "deep" / "root"
    root.mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    text = "[s]\n[a/b/c]\nx = 1\n[a/b]\nup -> ../../s\n[s]\nout -> ../../../secret\n"
    with pytest.raises(DataError):
        unpack(text, root, "x")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["[{}]", "{} = 1", "{} -> {}"]),
            st.sampled_from(["a", "a/b", "..", "../a", "a/../b", ".", "/a", ""]),
        ),
        max_size=6,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_listing_stays_inside_or_is_refused(tmp_path_factory, lines):
    top = tmp_path_factory.mktemp("top")
    root = top / "root"
    root.mkdir()
    with contextlib.suppress(DataError):
        unpack("\n".join(form.format(name, name) for form, name in lines), root, "x")
    assert [path.name for path in top.iterdir()] == ["root"]


LISTINGS = [path.read_text() for path in sorted(MACHINES.glob("*/sysfs.txt"))]


@given(st.sampled_from(LISTINGS), st.data())
@settings(max_examples=drawn(25))
def test_a_changed_recording_is_read_whole_or_refused(tmp_path_factory, listing, data):
    lines = listing.splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(1, len(lines) - 1))
        words = re.split(r"( = | -> )", lines[at])
        words[-1] = data.draw(
            st.sampled_from(["", "x", "-1", "0x", "1e9", "9" * 40, "..", "a/b", "0000:16:00.0", "4: ACTIVE"])
        )
        lines[at] = "".join(words) if data.draw(st.booleans()) else ""
    folder = tmp_path_factory.mktemp("changed")
    (folder / "sysfs.txt").write_text("\n".join(lines))
    try:
        found = merge.combined([merge.read_recording(folder)])
    except DataError as error:
        assert error.problems
    else:
        assert found.problems() == []


def test_a_folder_without_a_recording_is_a_missing_input(tmp_path):
    with pytest.raises(MissingInputError, match=r"sysfs\.txt"):
        recorded.read(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"nvmlInit": 3}'])
def test_damaged_answers_are_refused(tmp_path, text):
    (tmp_path / "sysfs.txt").write_text(LISTING)
    (tmp_path / "nvml.json").write_text(text)
    with pytest.raises(DataError, match=r"nvml\.json"):
        merge.read_recording(tmp_path)


def test_a_recording_without_nvml_is_a_machine_too(tmp_path):
    (tmp_path / "sysfs.txt").write_text(LISTING)
    assert len(merge.read_recording(tmp_path).hosts[0].gpus) == 1


def test_the_driver_of_a_recording_is_there_if_it_answered(tmp_path):
    assert recorded.driver_of(tmp_path) is None
    (tmp_path / "nvml.json").write_text('{"nvmlDeviceGetCount": {"*": 3}}')
    assert recorded.driver_of(tmp_path).nvmlDeviceGetCount() == 3
    (tmp_path / "nvml.json").write_text("3")
    with pytest.raises(DataError, match=r"nvml\.json"):
        recorded.driver_of(tmp_path)


def test_answers_are_kept_by_their_arguments_and_replayed(machine):
    first = machine("linux-dell-h100pcie").nvml
    recording = RecordingNvml(first)
    from probes.nvml import gpus

    live = gpus.read("h", recording)
    text = json.dumps(recording.answers)
    again = gpus.read("h", RecordedNvml(json.loads(text), pynvml))
    assert again == live
    assert live.hosts[0].fabric[0].count == 12
    assert live.hosts[0].fabric[0].gbs == 26.562


class Struct(ctypes.Structure):
    _fields_ = [("busId", ctypes.c_char * 16), ("numbers", ctypes.c_ubyte * 3), ("state", ctypes.c_uint)]


class FakeNvml:
    """A driver that fills structures and hands out handles, as the real one does."""

    NVMLError = pynvml.NVMLError

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802 - NVML's own name
        return ctypes.pointer(ctypes.c_int(index))

    def nvmlDeviceGetPciInfo(self, handle):  # noqa: N802 - NVML's own name
        return Struct(b"00000000:16:00.0", (1, 2, 3), handle.contents.value)

    def nvmlFill(self, handle, reference):  # noqa: N802 - NVML's own name
        reference._obj.state = 7
        reference._obj.numbers[:] = [9, 8, 7]
        return 0


def test_structures_that_are_returned_or_filled_are_kept():
    recording = RecordingNvml(FakeNvml())
    handle = recording.nvmlDeviceGetHandleByIndex(3)
    recording.nvmlDeviceGetPciInfo(handle)
    recording.nvmlFill(handle, ctypes.byref(Struct()))
    answers = json.loads(json.dumps(recording.answers))
    assert answers["nvmlDeviceGetPciInfo"] == {
        "3": {"busId": "00000000:16:00.0", "numbers": [1, 2, 3], "state": 3}
    }
    replay, empty = RecordedNvml(answers, pynvml), Struct()
    assert replay.nvmlFill(replay.nvmlDeviceGetHandleByIndex(3), ctypes.byref(empty)) == 0
    assert (empty.state, list(empty.numbers)) == (7, [9, 8, 7])
    with pytest.raises(pynvml.NVMLError):
        replay.nvmlNeverAsked()


def kfd(root, number, links=(), **properties):
    folder = root / f"sys/class/kfd/kfd/topology/nodes/{number}"
    folder.mkdir(parents=True)
    (folder / "properties").write_text("".join(f"{k} {v}\n" for k, v in properties.items()))
    for place, link in enumerate(links):
        (folder / "io_links" / str(place)).mkdir(parents=True)
        text = "".join(f"{k} {v}\n" for k, v in link.items())
        (folder / "io_links" / str(place) / "properties").write_text(text)


def test_xgmi_of_several_links_to_gpus_and_cpus(tmp_path):
    gpu = {"simd_count": 440, "gfx_target_version": 90010}
    kfd(tmp_path, 0, simd_count=0)
    kfd(tmp_path, 1, simd_count=0)
    xgmi = {"type": 11, "min_bandwidth": 50000}
    to_gpu = {**xgmi, "node_to": 3, "max_bandwidth": 200000}
    kfd(tmp_path, 2, [{**xgmi, "node_to": 1, "max_bandwidth": 50000}, to_gpu], location_id=0xC100, **gpu)
    kfd(
        tmp_path, 3, [{"type": 2, "node_to": 0}, {**xgmi, "node_to": 99}], location_id=0xC608, domain=1, **gpu
    )
    host = sysfs_kfd.read("h", tmp_path).hosts[0]
    assert [(g.bus_id, g.arch, g.index) for g in host.gpus] == [
        ("0000:c1:00.0", "gfx90a", 0),
        ("0001:c6:01.0", "gfx90a", 1),
    ]
    assert [(link.target, link.target_kind, link.count) for link in host.fabric] == [
        ("numa1", "cpu", 1),
        ("0001:c6:01.0", "gpu", 4),
    ]


def test_a_link_to_a_gpu_of_others_is_no_link_to_a_cpu(tmp_path):
    kfd(tmp_path, 0, simd_count=0)
    to_other = {"type": 11, "node_to": 2, "min_bandwidth": 50000, "max_bandwidth": 50000}
    kfd(tmp_path, 1, [to_other], simd_count=440, gfx_target_version=90402, location_id=0xC100)
    (tmp_path / "sys/class/kfd/kfd/topology/nodes/2").mkdir()
    assert sysfs_kfd.read("h", tmp_path).hosts[0].fabric == ()


def test_nodes_that_may_not_be_read_are_noted(tmp_path):
    kfd(tmp_path, 0, simd_count=0)
    (tmp_path / "sys/class/kfd/kfd/topology/nodes/1").mkdir()
    found = sysfs_kfd.read("h", tmp_path)
    assert found.notes == ("h: kfd: nodes 1 may not be read by this process",)
    assert sysfs_kfd.read("h", tmp_path / "nowhere").notes == ()
