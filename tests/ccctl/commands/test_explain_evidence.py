"""`ccctl explain` on checks of hosts, copy rates and logs of NCCL, as a user runs it."""

import gzip
import json

import pytest
from nccl_debug_logs import hosts, nccl_debug_log

FAILED = {
    "gpu_id": "3",
    "status": "Fail",
    "warnings": ["Detected 2 volatile double-bit ECC error(s) in GPU 3."],
}


def dcgm(*results):
    tests = [{"name": "Memory", "results": [{"gpu_id": "0", "status": "Pass"}, *results]}]
    return json.dumps(
        {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]}}
    )


def test_a_log_of_nccl_is_told(tmp_path, run_ccctl):
    (tmp_path / "nccl.log").write_text(nccl_debug_log(hosts("gpu1", "gpu2")))
    done = run_ccctl("explain", "nccl.log")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "NCCL version 2.21.5+cuda12.4: 8 ranks on 2 hosts: gpu1, gpu2"
    assert "NET/IB with GPU Direct RDMA: 2 directed pairs of ranks" in lines
    assert (
        "gpu1, gpu2: NICs mlx5_0:1/IB, mlx5_1:1/IB, set-up over eth0, network IB, NVLink SHARP on 4 of 4 GPUs"
        in lines
    )
    assert "ring on channel 0, 1: 0 1 2 3 4 5 6 7" in lines
    assert "AllReduce of 1K to 64K bytes: TREE LL, 2 channels" in lines
    assert lines[-1] == "nothing is wrong or unusual in it"


def test_a_fault_in_a_log_exits_with_1_and_names_the_host(tmp_path, run_ccctl):
    (tmp_path / "nccl.log").write_text(nccl_debug_log(hosts("gpu1", "gpu2", gpu2={"gdr": "no module"})))
    done = run_ccctl("explain", "nccl.log")
    assert done.returncode == 1
    assert "fault: gpu2 NICs: GPU Direct RDMA is off for 2 of 2 connections to other hosts" in done.stdout
    assert "nccl.log: 1 fault: gpu2" in done.stderr
    told = json.loads(run_ccctl("explain", "nccl.log", "--json").stdout)
    assert told["ok"] is False
    assert [(one["host"], one["kind"]) for one in told["evidence"]] == [("gpu2", "gdr_off")]
    job = told["nccl"]
    assert (job["size"], job["transports"], job["rings"]["0"]) == (
        8,
        {"P2P/CUMEM": 6, "NET/IB": 2},
        list(range(8)),
    )
    assert job["hosts"][1]["gdr"] == {"mlx5_0": "no module", "mlx5_1": "no module"}
    assert {one["gdr"] for one in job["paths"] if one["source"] == 7} == {False}


def test_remarks_exit_with_0(tmp_path, run_ccctl):
    members = hosts("a", "b", a={"gdr": ""}, b={"gdr": ""})
    (tmp_path / "nccl.log").write_text(nccl_debug_log(members))
    done = run_ccctl("explain", "nccl.log")
    assert done.returncode == 0 and "remark: a NICs: GPU Direct RDMA is off" in done.stdout


@pytest.mark.parametrize("way", ["stdin", "gzip", "folder", "files"])
def test_however_files_are_given(way, tmp_path, run_ccctl):
    text = nccl_debug_log(hosts("gpu1", "gpu2", gpu2={"nics": ("mlx5_0:1/IB",)}))
    parts = {
        name: "".join(line + "\n" for line in text.splitlines() if line.startswith(name))
        for name in ("gpu1", "gpu2")
    }
    (tmp_path / "logs").mkdir()
    for name, part in parts.items():
        (tmp_path / "logs" / f"nccl.{name}").write_text(part)
    (tmp_path / "nccl.log.gz").write_bytes(gzip.compress(text.encode()))
    arguments = {
        "stdin": ["-"],
        "gzip": ["nccl.log.gz"],
        "folder": ["logs"],
        "files": ["logs/nccl.gpu1", "logs/nccl.gpu2"],
    }[way]
    done = run_ccctl("explain", *arguments, stdin=text if way == "stdin" else "")
    assert done.returncode == 1
    assert "gpu2 NICs: NCCL uses 1 NIC, 2 on 1 host, without mlx5_1:1" in done.stdout


def test_the_topology_is_compared_with_the_log(tmp_path, run_ccctl):
    xml = (
        '<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">'
        '<pci busid="0000:17:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16"><nic>'
        '<net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x1" maxconn="100" gdr="1"/>'
        "</nic></pci>"
        '<pci busid="0000:18:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16"><nic>'
        '<net name="mlx5_9" dev="1" speed="400000" port="1" guid="0x2" maxconn="100" gdr="1"/>'
        "</nic></pci></cpu></system>"
    )
    (tmp_path / "system.xml").write_text(xml)
    one = {"nics": ("mlx5_0:1/IB",), "environment": (("NCCL_IB_HCA", "mlx5_0"),)}
    (tmp_path / "nccl.log").write_text(nccl_debug_log(hosts("a", "b", a=one, b=one)))
    done = run_ccctl("explain", "nccl.log", "--network", "system.xml")
    assert done.returncode == 0, done.stderr
    assert (
        "remark: a: the topology has mlx5_9 (400 Gbit/s), which NCCL does not use; NCCL_IB_HCA=mlx5_0 is set"
        in done.stdout
    )
    done = run_ccctl("explain", "nccl.log", "--network", "dgx-h100")
    assert "not a topology, so GPUs and NICs are not compared" in done.stderr


def test_the_log_of_a_benchmark_is_noted_beside_its_rows(tmp_path, run_ccctl):
    table = (
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 16 warmup iters: 5 iters: 20\n"
        + "".join(
            f"#  Rank {at} Group 0 Pid 1 on a device {at} [0x0f] NVIDIA H100 80GB HBM3\n" for at in range(8)
        )
        + nccl_debug_log(hosts("a", a={"inside": "SHM/direct/direct"}), each=8)
        + "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
        "  1073741824  268435456  float  sum  -1  4000.0  268.44  469.76  0  4000.0  268.44  469.76  0\n"
    )
    (tmp_path / "nccl.log").write_text(table)
    done = run_ccctl("explain", "nccl.log", "--network", "dgx-h100")
    assert "NCCL's log: fault: a: 8 pairs of ranks exchange data through host memory (SHM)" in done.stderr
    assert "all_reduce" in done.stdout
    told = json.loads(run_ccctl("explain", "nccl.log", "--network", "dgx-h100", "--json").stdout)
    assert [one["kind"] for one in told["evidence"]] == ["host_memory"] and len(told["rows"]) == 1


def test_diagnostics_of_several_hosts(tmp_path, run_ccctl):
    (tmp_path / "dcgm-gpu1.json").write_text(dcgm())
    (tmp_path / "dcgm-gpu2.json").write_text(dcgm(FAILED))
    assert run_ccctl("explain", "dcgm-gpu1.json").stdout == "nothing is wrong or unusual in it\n"
    done = run_ccctl("explain", "dcgm-gpu1.json", "dcgm-gpu2.json")
    assert done.returncode == 1
    told = 'the test "Memory" failed: Detected 2 volatile double-bit ECC error(s) in GPU 3.'
    assert done.stdout == f"fault: dcgm-gpu2.json: {told}\n"
    assert "dcgm-gpu1.json and 1 more: 1 fault: dcgm-gpu2.json" in done.stderr


def test_other_files_of_the_folder_are_left_out_and_named(tmp_path, run_ccctl):
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "dcgm.json").write_text(dcgm(FAILED))
    (tmp_path / "checks" / "notes.txt").write_text("hello\n")
    done = run_ccctl("explain", "checks")
    assert done.returncode == 1 and "checks: notes.txt is left out" in done.stderr


@pytest.mark.parametrize(
    "option", ["--at-least=50%", "--junit=out.xml", "--baseline=old.log", "--profile=p.json"]
)
def test_options_for_tables_are_refused(option, tmp_path, run_ccctl):
    (tmp_path / "dcgm.json").write_text(dcgm(FAILED))
    done = run_ccctl("explain", "dcgm.json", option)
    assert done.returncode == 2
    assert f"{option.partition('=')[0]}: for tables of a benchmark; dcgm.json is a check" in done.stderr


def test_a_damaged_file_is_refused_with_its_name(tmp_path, run_ccctl):
    (tmp_path / "dcgm.json").write_text(dcgm(FAILED).replace('"Memory"', "3"))
    done = run_ccctl("explain", "dcgm.json")
    assert (done.returncode, done.stdout) == (65, "")
    assert "dcgm.json: expected the JSON of dcgmi diag -j" in done.stderr


def test_several_files_of_other_kinds_are_refused_with_what_to_do(tmp_path, run_ccctl):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("nothing of the kind\n")
    done = run_ccctl("explain", "a.txt", "b.txt")
    assert done.returncode == 65 and "found none of these: a.txt, b.txt" in done.stderr


def test_a_fault_says_what_to_do(tmp_path, run_ccctl):
    (tmp_path / "nccl.log").write_text(nccl_debug_log(hosts("gpu1", "gpu2", gpu2={"gdr": "no module"})))
    done = run_ccctl("explain", "nccl.log", "--network", "dgx-h100")
    assert "\n  to do: load nvidia_peermem" in done.stdout
    assert "give topology.json of ccctl detect" in done.stderr
