import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_boxes import BOX_XML
from gpu_queries import GPU, query_xml
from limits import HANG_S

from ccctl import console
from ccctl.artifacts import codec
from ccctl.render.text import topology as picture
from probes.topology import Finding, Gpu, Host, PciDevice, Topology

FILES = Path(__file__).parents[3] / "../shared/data/topologies/nccl"
real = pytest.mark.skipif(not FILES.is_dir(), reason="the shared topology files are not beside this checkout")
KEYS = {"hosts", "gpus", "nics", "nvlinks", "findings", "notes", "ranks_are"}


@pytest.fixture
def box(tmp_path):
    path = tmp_path / "box.xml"
    path.write_text(BOX_XML)
    return path


def test_this_machine_is_drawn_counted_and_written(run_ccctl, tmp_path):
    done = run_ccctl("detect", "-o", "topology.json")
    assert done.returncode == 0, done.stderr
    found = codec.read(str(tmp_path / "topology.json"), "topology").body
    assert len(found.hosts) == 1
    assert done.stdout.startswith(f"{found.hosts[0].name}: ")
    counted = json.loads(run_ccctl("detect", "--json").stdout)
    assert counted.keys() >= KEYS
    assert counted["nics"] == len(found.hosts[0].physical_nics)
    assert counted["ranks_are"] == ("gpus" if counted["gpus"] else "processes")
    assert ("so its ranks are processes" in done.stdout) == (counted["gpus"] == 0)


def test_a_file_is_drawn_with_tree_matrix_and_legend(run_ccctl, box):
    done = run_ccctl("detect", "--from", box)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["GPU0", "LOC", "NVL", "PIX"] in lines
    assert ["GPU1", "NVL", "LOC", "SYS"] in lines
    text = done.stdout
    assert text.startswith("box: 2 GPUs, 1 NIC, 2 NUMA nodes")
    assert "A100 SXM4 40GB" in text
    assert "4 links to 1 GPU, 20 GB/s each way a link, 80 GB/s together: GPU0, GPU1" in text
    assert "mlx5_0  200 Gbit/s" in text
    assert "PIX at most one PCIe switch" in text
    assert "\x1b" not in text


def test_the_artifact_alone_goes_to_stdout_and_pipes_into_show(run_ccctl, box):
    written = run_ccctl("detect", "--from", box, "-o", "-")
    found = codec.decode(written.stdout.encode(), "stdout", "topology").body
    assert len(found.hosts[0].gpus) == 2
    shown = run_ccctl("show", "-", stdin=written.stdout)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == run_ccctl("detect", "--from", box).stdout


def test_a_file_comes_from_stdin_too(run_ccctl):
    done = run_ccctl("detect", "--from", "-", "--json", stdin=BOX_XML)
    assert json.loads(done.stdout)["gpus"] == 2


def test_several_files_are_several_hosts(run_ccctl, box):
    done = run_ccctl("detect", "--from", box, "--from", box, "--json")
    counted = json.loads(done.stdout)
    assert (counted["hosts"], counted["gpus"], counted["nics"], counted["nvlinks"]) == (2, 4, 2, 8)


def test_a_query_and_a_matrix_of_nvidia_smi_are_one_machine(run_ccctl, tmp_path):
    buses = ["00000000:1B:00.0", "00000000:43:00.0"]
    (tmp_path / "gpus.xml").write_text(query_xml([(bus, GPU) for bus in buses]))
    (tmp_path / "topo.txt").write_text(
        "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\t X \tNV18\tPIX\t0-55\t0\t\tN/A\nGPU1\tNV18\t X \tSYS\t56-111\t1\t\tN/A\n"
        "NIC0\tPIX\tSYS\t X \t\t\t\t\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
    )
    done = run_ccctl("detect", "--from", "gpus.xml", "--from", "topo.txt", "-o", "t.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("gpus: 2 GPUs, 1 NIC, 2 NUMA nodes")
    (host,) = codec.read(str(tmp_path / "t.json"), "topology").body.hosts
    assert [(gpu.bus_id, gpu.numa, gpu.cpus) for gpu in host.gpus] == [
        ("0000:1b:00.0", 0, "0-55"),
        ("0000:43:00.0", 1, "56-111"),
    ]
    counted = json.loads(run_ccctl("detect", "--from", "t.json", "--json").stdout)
    assert (counted["gpus"], counted["nvlinks"], counted["findings"]) == (2, 18, [])


def test_json_of_amd_smi_is_a_topology_and_no_artifact(run_ccctl):
    kinds = [["SELF", "XGMI"], ["XGMI", "SELF"]]
    text = [
        {
            "gpu": here,
            "bdf": f"0000:{here}c:00.0",
            "links": [{"gpu": there, "link_type": kind, "weight": 15} for there, kind in enumerate(row)],
        }
        for here, row in enumerate(kinds)
    ]
    done = run_ccctl("detect", "--from", "-", "--json", stdin=json.dumps(text))
    counted = json.loads(done.stdout)
    assert (counted["gpus"], counted["nvlinks"]) == (2, 1)


def test_quiet_says_nothing_but_writes(run_ccctl, box, tmp_path):
    done = run_ccctl("detect", "--from", box, "-q", "-o", "t.json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "t.json").exists()


@pytest.mark.parametrize(
    ("name", "content", "status", "says"),
    [
        ("absent.xml", None, 66, "absent.xml: there is no such file"),
        ("graph.xml", "<graphs version='1'/>", 65, "graph.xml: expected NCCL's topology"),
        ("empty.xml", "", 65, "empty.xml: the file is empty"),
        ("gpus.xml", "<nvidia_smi_log/>", 65, "gpus.xml: expected 1 to 256 <gpu> in <nvidia_smi_log>"),
        ("cut.xml", BOX_XML[:300], 65, "cut.xml: not whole XML"),
        ("bare.xml", "<system><cpu><pci busid='0:0:1.0'/></cpu></system>", 65, "neither a GPU nor a NIC"),
    ],
)
def test_a_wrong_file_ends_with_its_status_and_reason_and_writes_nothing(
    run_ccctl, tmp_path, name, content, status, says
):
    if content is not None:
        (tmp_path / name).write_text(content)
    done = run_ccctl("detect", "--from", name, "-o", "t.json")
    assert done.returncode == status
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "t.json").exists()


@real
@pytest.mark.parametrize("name", ["azure-ncv4-graph.xml", "aws-g5.48xl-topo.xml"])
def test_a_real_file_that_holds_no_device_ends_with_65(run_ccctl, name):
    done = run_ccctl("detect", "--from", (FILES / name).resolve())
    assert done.returncode == 65
    assert name in done.stderr


@pytest.mark.parametrize(
    ("arguments", "following"),
    [
        ((), "ccctl profile -n "),
        (("--from", "box.xml"), "ccctl detect --from box.xml -o topology.json"),
        (("--from", "box.xml", "-o", "t.json"), "ccctl synth --network t.json --collective all_reduce"),
    ],
)
def test_on_a_terminal_the_last_line_is_the_next_command(box, arguments, following):
    master, slave = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-P", "-m", "ccctl", "detect", *arguments],
        stdout=slave,
        stderr=subprocess.PIPE,
        text=True,
        cwd=box.parent,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(slave)
    # A terminal that nobody reads would hold the command up.
    with contextlib.suppress(OSError):
        while os.read(master, 4096):
            pass
    _, messages = running.communicate(timeout=HANG_S)
    os.close(master)
    assert messages.splitlines()[-1].startswith(f"next: {following}")


def test_equal_findings_share_a_line_and_what_is_kept_away_is_said(capsys):
    gpus = tuple(Gpu(f"0000:0{n}:00.0", "m", index=n, usable=n == 0, name="H100") for n in range(2))
    pci = tuple(PciDevice(gpu.bus_id, "m", root="pci0") for gpu in gpus)
    findings = tuple(Finding("odd", f"h/{n}", "is odd") for n in range(9))
    console.configure(quiet=False)
    picture.draw(Topology((Host("h", "m", pci=pci, gpus=gpus),), findings, ("nothing more",)))
    out, err = capsys.readouterr()
    assert out.startswith("h: 1 GPU (and 1 not given to this process), no NICs")
    assert "GPU1  H100  not given to this process" in out
    assert err.splitlines() == [
        "warning: odd: h/0, h/1, h/2, h/3, h/4, h/5 and 3 more: is odd",
        "note: nothing more",
    ]
