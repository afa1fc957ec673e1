"""Files of other tools, recordings and several descriptions of one machine, at the command line."""

import json
from pathlib import Path

import pytest
from gpu_boxes import BOX_XML

from ccctl.artifacts import codec

SMI = "\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV4\tPIX\nGPU1\tNV4\t X \tSYS\nNIC0\tPIX\tSYS\t X \n"
MACHINES = Path(__file__).parents[2] / "machines"


@pytest.fixture
def box(tmp_path):
    path = tmp_path / "box.xml"
    path.write_text(BOX_XML)
    return path


def test_a_matrix_comes_from_stdin_and_tells_the_expected_bandwidth(run_ccctl):
    done = run_ccctl("detect", "--from", "-", "--json", stdin=SMI)
    counted = json.loads(done.stdout)
    assert (counted["gpus"], counted["nics"], counted["nvlinks"]) == (2, 1, 4)
    assert counted["expected_gbs"] == {
        "stdin": {"GPU0": {"GPU1": 80.0, "NIC0": None}, "GPU1": {"GPU0": 80.0, "NIC0": None}}
    }
    drawn = run_ccctl("detect", "--from", "-", stdin=SMI).stdout
    assert ["GPU0", "LOC", "NVL", "PIX"] in [line.split() for line in drawn.splitlines()]
    assert "expected in one direction" in drawn


def test_two_files_of_one_machine_are_one_host_and_their_disagreement_a_warning(run_ccctl, box, tmp_path):
    (tmp_path / "smi.txt").write_text(SMI.replace("NIC0", "mlx5_0").replace("NV4", "NV3"))
    done = run_ccctl("detect", "--from", box, "--from", "smi.txt", "-o", "t.json")
    assert done.returncode == 0, done.stderr
    (host,) = codec.read(str(tmp_path / "t.json"), "topology").body.hosts
    assert (host.name, len(host.gpus), host.fabric_links()) == ("box", 2, 4)
    assert (
        "warning: disagree: box/0000:11:00.0, box/0000:21:00.0: nccl_xml says 4 nvlink links, smi says 3"
        in done.stderr
    )
    assert "one machine" in done.stderr


def test_live_stands_beside_files_of_other_machines(run_ccctl, box):
    counted = json.loads(run_ccctl("detect", "--live", "--from", box, "--json").stdout)
    assert counted["hosts"] == 2


def test_this_machine_is_recorded_and_read_again(run_ccctl, tmp_path):
    done = run_ccctl("detect", "--record", "sent", "--json")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "sent").iterdir()) == ["nvml.json", "sysfs.txt"]
    live, again = json.loads(done.stdout), json.loads(run_ccctl("detect", "--from", "sent", "--json").stdout)
    for key in ("hosts", "gpus", "nics", "nvlinks", "numa_nodes", "pci_devices", "software_nics"):
        assert (key, live[key]) == (key, again[key])


def test_a_recording_cannot_be_written_where_a_file_is(run_ccctl, tmp_path):
    (tmp_path / "taken").write_text("")
    done = run_ccctl("detect", "--record", "taken")
    assert (done.returncode, "taken" in done.stderr) == (73, True)


def test_a_folder_without_a_recording_ends_with_66(run_ccctl, tmp_path):
    (tmp_path / "empty").mkdir()
    done = run_ccctl("detect", "--from", "empty")
    assert done.returncode == 66
    assert "sysfs.txt" in done.stderr


def test_a_recorded_machine_is_drawn_with_its_troubles(run_ccctl):
    done = run_ccctl("detect", "--from", MACHINES / "linux-hpe-ibdown")
    assert "symbol_error 1294" in done.stdout
    assert "InfiniBand port is down (Polling)" in done.stderr
    done = run_ccctl("detect", "--from", MACHINES / "linux-dell-h100pcie")
    assert "NVLink 4.0: 12 links to 1 GPU, 20.6 GB/s each way a link, 247.2 GB/s together" in done.stdout
    # A bridge takes 12 of the 18 links, so none of the others is broken.
    assert "6 of 18 links not connected: GPU0, GPU1" in done.stdout
    assert "links down" not in done.stdout


def test_a_plus_marks_where_nvlink_to_a_nearer_gpu_carries_more(run_ccctl, tmp_path):
    # GPU1 is on the other NUMA node, whose link of 10 GB/s is narrower than GPU0's way to the port.
    (tmp_path / "far.xml").write_text(
        BOX_XML.replace('vendor="GenuineIntel"', 'vendor="GenuineIntel" arch="x86_64" modelid="85"')
    )
    done = run_ccctl("detect", "--from", "far.xml")
    assert ["GPU1", "80", "10+"] in [line.split() for line in done.stdout.splitlines()]
    assert "+: faster by PXN" in done.stdout
