"""Answers of `ccctl detect` beside the drawing: --why, --diff, --export, --active, as a user runs it."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_boxes import box
from machine_changes import MACHINES, cluster, edited, recorded, without_gpu
from measured_boxes import profile_of

from ccctl.artifacts import codec
from probes.topology import Topology

FILES = Path(__file__).parents[3] / "../shared/data/topologies"
real = pytest.mark.skipif(not FILES.is_dir(), reason="the shared topology files are not beside this checkout")
NDV4 = (FILES / "nccl/azure-ndv4-topo.xml").resolve()
DGX = MACHINES / "linux-nvidia-dgxa100"


@pytest.fixture(scope="module")
def dgx(tmp_path_factory):
    """An artifact of what is recorded in DGX, which is sooner read."""
    path = tmp_path_factory.mktemp("recorded") / "dgx.json"
    codec.write(str(path), "topology", recorded())
    return path


@pytest.fixture
def edited_ndv4(tmp_path):
    """A copy of Azure's file: a GPU removed, one link halved."""
    text = NDV4.read_text()
    gone = '<pci busid="000d:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>'
    wide = '<pci busid="0002:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>'
    assert gone in text
    assert wide in text
    path = tmp_path / "edited.xml"
    path.write_text(text.replace(gone, "").replace(wide, wide.replace('"16"/', '"8"/')))
    return path


@real
def test_differences_are_lines_gravest_first_and_the_status_is_1(run_ccctl, edited_ndv4):
    done = run_ccctl("detect", "--from", edited_ndv4, "--diff", NDV4)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["critical", "edited/000d:00:00.0"],
        ["warning", "edited/0002:00:00.0"],
    ]
    assert "is missing" in lines[0]
    assert "expected x16, found x8" in lines[1]
    assert f"2 differences from {NDV4}" in done.stderr


@real
def test_differences_are_in_the_summary(run_ccctl, edited_ndv4):
    done = run_ccctl("detect", "--from", edited_ndv4, "--diff", NDV4, "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["gpus"] == 7
    assert [one["what"] for one in found["differences"]] == ["missing-gpu", "pcie-width"]
    assert found["differences"][1] == {
        "what": "pcie-width", "severity": "warning", "where": "edited/0002:00:00.0",
        "text": "GPU3: PCIe width: expected x16, found x8", "expected": "x16", "found": "x8",
    }  # fmt: skip


@real
def test_nothing_differs_from_itself_and_the_status_is_0(run_ccctl):
    done = run_ccctl("detect", "--from", NDV4, "--diff", NDV4)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"same as {NDV4}: 8 GPUs, 8 NICs, 0 NVLinks\n"
    assert (
        json.loads(run_ccctl("detect", "--from", NDV4, "--diff", NDV4, "--json").stdout)["differences"] == []
    )


def test_this_machine_does_not_differ_from_what_it_just_was(run_ccctl):
    assert run_ccctl("detect", "-o", "before.json").returncode == 0
    done = run_ccctl("detect", "--diff", "before.json")
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("same as before.json: ")


def test_links_cut_on_one_host_of_several_are_found(run_ccctl, tmp_path):
    whole = recorded()
    link = next(one for one in whole.hosts[0].fabric if one.state != "down")
    fewer = {"gpu3": lambda host: edited_link(host, link)}
    codec.write(str(tmp_path / "old.json"), "topology", cluster(whole, ["gpu1", "gpu2", "gpu3"]))
    codec.write(str(tmp_path / "new.json"), "topology", cluster(whole, ["gpu1", "gpu2", "gpu3"], fewer))
    done = run_ccctl("detect", "--from", "new.json", "--diff", "old.json")
    assert done.returncode == 1
    assert "critical  gpu3/0000:13:00.0  GPU0: expected 12 NVLinks, found 11" in done.stdout
    drawn = run_ccctl("detect", "--from", "new.json").stdout
    assert drawn.startswith("gpu[1-2]: 2 alike: 8 GPUs")
    assert "gpu3: as gpu1, but for\n  critical: GPU0: expected 12 NVLinks, found 11" in drawn


def edited_link(host, link):
    from dataclasses import replace

    links = tuple(replace(one, count=one.count - 1) if one == link else one for one in host.fabric)
    return replace(host, fabric=links)


def test_equal_differences_of_several_hosts_share_a_line(run_ccctl, tmp_path):
    names = [f"gpu{number:02}" for number in range(1, 5)]
    lost = without_gpu("0000:33:00.0")
    codec.write(str(tmp_path / "old.json"), "topology", cluster(recorded(), names))
    codec.write(
        str(tmp_path / "new.json"), "topology", cluster(recorded(), names, {"gpu02": lost, "gpu03": lost})
    )
    done = run_ccctl("detect", "--from", "new.json", "--diff", "old.json")
    assert done.stdout.splitlines()[0].startswith("critical  gpu[02-03]/0000:33:00.0  GPU2")


def test_a_kind_of_its_own_is_drawn_whole(run_ccctl, tmp_path):
    def other(host):
        for gpu in host.gpus:
            host = edited("pci", gpu.bus_id, width=4)(edited("gpus", gpu.bus_id, mig=True)(host))
        return host

    codec.write(str(tmp_path / "t.json"), "topology", cluster(recorded(), ["a", "b", "c"], {"b": other}))
    drawn = run_ccctl("detect", "--from", "t.json").stdout
    assert [line.split(":")[0] for line in drawn.splitlines() if "8 GPUs" in line] == ["a,c", "b"]


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        (("GPU0", "GPU7"), "NVL, NVLink or xGMI"),
        (("GPU0", "mlx5_7"), "- they share no PCIe switch"),
        (("GPU3", "GPU4"), "- 1 of GPU3's 12 NVLinks is down"),
        (("13:00.0", "NIC2"), "expected: 24 GB/s in one direction, limited by PCIe link of"),
    ],
)
def test_a_way_is_explained(run_ccctl, dgx, pair, says):
    done = run_ccctl("detect", "--from", dgx, "--why", *pair)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


def test_a_way_is_explained_from_an_artifact_and_as_an_object(run_ccctl):
    how = ("--why", "GPU0", "GPU2")
    assert run_ccctl("detect", "--from", DGX, "-q", "-o", "t.json").returncode == 0
    drawn = [run_ccctl("detect", "--from", name, *how).stdout for name in (DGX, "t.json")]
    assert drawn[0] == drawn[1] != ""
    why = json.loads(run_ccctl("detect", "--from", "t.json", "--why", "GPU0", "GPU2", "--json").stdout)["why"]
    assert (why["path"], why["gbs"]) == ("NVL", 240.0)
    assert [step["what"] for step in why["steps"]][::4] == ["GPU0", "GPU2"]
    assert why["reasons"] == []


def test_a_device_that_is_not_there_is_a_usage_error_with_those_that_are(run_ccctl, dgx):
    done = run_ccctl("detect", "--from", dgx, "--why", "GPU0", "GPU8")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no device 'GPU8'" in done.stderr
    assert "GPU7" in done.stderr


def test_the_file_of_nccl_is_written_and_read_back_alike(run_ccctl, dgx, tmp_path):
    done = run_ccctl("detect", "--from", dgx, "--export", "nccl-xml", "mine.xml", "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    counted = [json.loads(run_ccctl("detect", "--from", name, "--json").stdout) for name in (dgx, "mine.xml")]
    assert [one["gpus"] for one in counted] == [8, 8]
    assert counted[0]["nics"] == counted[1]["nics"]
    done = run_ccctl("detect", "--from", dgx, "--export", "nccl-xml", "-")
    assert done.stdout == (tmp_path / "mine.xml").read_text()
    assert ET.fromstring(done.stdout).tag == "system"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("--export", "dot", "x"), 2, "expected one of nccl-xml, found 'dot'"),
        (("--export", "nccl-xml", "none/x.xml"), 73, "none/x.xml"),
        (("--diff", "absent.json"), 66, "absent.json: there is no such file"),
        (("--active",), 2, "--active probes machines"),
        (("-n", "2"), 2, "--from reads files"),
        (("--hosts", "a,b"), 2, "--from reads files"),
    ],
)
def test_what_cannot_be_is_refused(run_ccctl, dgx, arguments, status, says):
    done = run_ccctl("detect", "--from", dgx, *arguments)
    assert done.returncode == status
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@real
def test_a_topology_without_bus_ids_is_not_exported(run_ccctl):
    file = (FILES / "smi/v100x8-1nic-dlperf.txt").resolve()
    done = run_ccctl("detect", "--from", file, "--export", "nccl-xml", "-")
    assert done.returncode == 65
    assert "names no bus id" in done.stderr


def test_hosts_of_two_kinds_are_not_one_file(run_ccctl, tmp_path):
    lost = {"b": without_gpu("0000:33:00.0")}
    codec.write(str(tmp_path / "t.json"), "topology", cluster(recorded(), ["a", "b"], lost))
    done = run_ccctl("detect", "--from", "t.json", "--export", "nccl-xml", "-")
    assert done.returncode == 2
    assert "of 2 kinds" in done.stderr


def test_active_probes_refuse_on_this_machine_with_reasons_or_answer(run_ccctl):
    done = run_ccctl("detect", "--active", "--seed", "3", "--json")
    assert done.returncode == 0, done.stderr
    (answers,) = json.loads(done.stdout)["probed"].values()
    assert {one["what"] for one in answers} >= {"gpu_switch"}
    for one in answers:
        assert bool(one["answer"]) != bool(one["reason"])
        assert (one["method"], one["seed"]) == ("active", 3)


@pytest.fixture
def wrongly_declared(tmp_path):
    """declared.json says NVLinks between all of 4 GPUs; in profile.json one pair has none."""
    declared = box(4, [(a, b) for a in range(4) for b in range(a)], name="n1")
    dead = {declared.gpus[1].bus_id, declared.gpus[2].bus_id}
    links = tuple(link for link in declared.fabric if {link.source, link.target} != dead)
    codec.write(str(tmp_path / "declared.json"), "topology", Topology((declared,)))
    codec.write(
        str(tmp_path / "profile.json"), "profile", profile_of(Topology((replace(declared, fabric=links),)))
    )


def test_a_declared_topology_is_compared_with_what_was_measured(run_ccctl, wrongly_declared, tmp_path):
    words = ["detect", "--declared", "declared.json", "profile.json"]
    done = run_ccctl(*words, "-o", "fixed.json", "--export", "nccl-xml", "fixed.xml")
    assert done.returncode == 1
    assert "n1/GPU1 and GPU2: declared 4 NVLinks" in done.stdout and "no NVLink" in done.stdout
    assert "NCCL's rings planned for the declared topology carry" in done.stdout
    assert "1 contradiction between declared.json and profile.json" in done.stderr
    for fixed in ("fixed.json", "fixed.xml"):
        again = run_ccctl("detect", "--declared", fixed, "profile.json")
        assert again.returncode == 0
        assert again.stdout == f"{fixed} agrees with all 12 measured pairs\n"
    findings = codec.read(str(tmp_path / "fixed.json"), "topology").body.findings
    assert [(one.what, one.where) for one in findings] == [("declared-nvlink", "n1/GPU1 and GPU2")]


def test_contradictions_are_an_object_with_their_cost(run_ccctl, wrongly_declared):
    done = run_ccctl("detect", "--declared", "declared.json", "profile.json", "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    (edit,) = told["edits"]
    assert (edit["what"], edit["where"]) == ("nvlink", "GPU1 and GPU2")
    assert edit["gbs_as_measured"] <= edit["gbs_as_declared"]
    (order,) = told["orders"]
    assert order["order_as_measured_gbs"] > order["order_as_declared_gbs"]


def test_a_profile_without_links_of_the_devices_does_not_agree(
    run_ccctl, wrongly_declared, tmp_path, samples
):
    codec.write(str(tmp_path / "cpus.json"), "profile", samples["profile"])
    done = run_ccctl("detect", "--declared", "declared.json", "cpus.json")
    assert (done.returncode, done.stdout) == (65, "")
    assert "cpus.json: nothing to compare" in done.stderr


def test_a_file_is_compared_with_a_profile_alone(run_ccctl, wrongly_declared):
    done = run_ccctl("detect", "--declared", "declared.json", "profile.json", "--from", "declared.json")
    assert done.returncode == 2 and "--declared compares two files" in done.stderr
