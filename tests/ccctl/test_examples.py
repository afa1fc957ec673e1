"""Every example of every command runs, in the order of the data path, each on what those before it made."""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from given_profile import profile_of_links
from gpu_boxes import box
from gpu_queries import GPU, query_xml
from limits import HANG_S
from measured_clusters import accept_six_hosts
from missing_tools import no_png, no_simgrid, no_torch
from nccl_debug_logs import LoggedHost, nccl_debug_log
from sample_plans import pair_plan

from ccctl.artifacts import codec
from ccctl.commands import COMMANDS
from ccctl.main import examples
from probes.nccl.exporter import export
from synth.kernels.stored_loops import cache_folder

EXAMPLES = Path(__file__).parents[2] / "examples"
STARTS_RANKS = {"profile", "run", "bench", "accept", "watch", "doctor"}
# Lines that `make test-long` runs. A line that starts ranks takes 2 to 87 s of processor time, most of it for
# waiting and measuring, and tests of its command start the same; the others need 5 to 20 s. Tests of pages
# parse every line.
SLOW = (
    "--race",
    "--reproducible",
    "-f 32 -o table.json",
    "mesh:32x32",
    "--for msccl",
    "rfs:2x4x4",
    "tune -n 2",
    "--without rank:3",
    "mesh:6x6",
    "-- ccctl profile",
)
# Whatever a busy machine makes of its own links: a verdict, or none. The profile has no GPUs to compare.
VERDICTS = {"accept": {0, 1, 75}, "detect --declared": {65}}
NEEDS_NAMESPACES = {"lab"}
# Words of a line, and what says why this machine cannot run it.
NEEDS = {"--with simgrid": no_simgrid, ".png": no_png, "training compare": no_torch}
LAB = f"examples-{os.getpid()}"
ROOT = Path(__file__).parents[2]
XML = """<system version="1">
  <cpu numaid="0" affinity="00000000,00000003" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:01:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="80" rank="0" gdr="0"/>
    </pci>
    <pci busid="0000:02:00.0" class="0x020000" link_speed="16.0 GT/s PCIe" link_width="16">
      <nic>
        <net name="mlx5_0" dev="0" speed="100000" port="1" guid="0x1" maxconn="131072" gdr="0"/>
      </nic>
    </pci>
  </cpu>
</system>
"""
NCCL = """# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid  17 on  gpu01 device  0 [0000:07:00] NVIDIA H100
#  size  count   type  redop  root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
   1024    256  float    sum    -1    20.00    0.05    0.05       0    21.00    0.05    0.05       0
"""
DCGM = {
    "DCGM GPU Diagnostic": {
        "test_categories": [
            {
                "category": "Hardware",
                "tests": [{"name": "Memory", "results": [{"gpu_id": "0", "status": "Pass"}]}],
            }
        ]
    }
}
OSU = "# OSU MPI Allreduce Latency Test v7.4\n# Size  Avg Latency(us)\n1048576  350.50\n"


def nccl_log(hosts, gpu):
    """Return the output of nccl-tests for a large all_reduce on hosts of eight GPUs."""
    ranks = "".join(
        f"#  Rank {rank} Group 0 Pid 1 on gpu{rank // 8} device {rank % 8} [0x07] NVIDIA {gpu}\n"
        for rank in range(8 * hosts)
    )
    time_us = 5000 if hosts == 1 else 22000
    algbw = 1073741824 / time_us / 1e3
    busbw = algbw * 2 * (8 * hosts - 1) / (8 * hosts)
    row = f"  1073741824 268435456 float sum -1 {time_us} {algbw:.2f} {busbw:.2f} 0\n"
    return f"{ranks}{NCCL.splitlines()[2]}\n{row}"


def slow_report(report):
    """A report of the size with which the example of a baseline ends, so slow that nothing is slower."""
    (row,) = report.rows
    measured = replace(row.shown, time_s=1.0, mean_s=1.0)
    slow = replace(
        row,
        collective="all_reduce",
        size_bytes=1 << 16,
        count=1 << 14,
        dtype="float32",
        out_of_place=measured,
        in_place=measured,
    )
    return replace(report, ranks=4, hosts=report.hosts * 2, rows=(slow,))


def inspector_record(rank):
    """A line of NCCL's Inspector on one rank of eight."""
    return (
        f'{{"header":{{"id":"0x1","rank":{rank},"n_ranks":8,"nnodes":1}},"metadata":{{"hostname":"gpu01"}},'
        '"coll_perf":{"coll":"AllReduce","coll_sn":1,"coll_msg_size_bytes":1073741824,"coll_exec_time_us":6100}}\n'
    )


def complete_profile(ranks):
    """A profile in which all links are alike."""
    return profile_of_links(["host"] * ranks, permutations(range(ranks), 2), 1e-9, 1e-9)


def lines():
    for command in COMMANDS:
        marks = [pytest.mark.mpi] if command.__name__ in STARTS_RANKS else []
        marks += [pytest.mark.netns] if command.__name__ in NEEDS_NAMESPACES else []
        every = [line for line, _ in examples(command)]
        for line in every:
            missing = [reason for words, why in NEEDS.items() if words in line and (reason := why())]
            skipped = [pytest.mark.skip(reason=reason) for reason in missing]
            races = [pytest.mark.mpi] if "--race" in line else []
            starts = command.__name__ in STARTS_RANKS and "--from" not in line
            later = starts or any(words in line for words in SLOW)
            seldom = [pytest.mark.long] if later else []
            yield pytest.param(line, marks=marks + races + seldom + skipped, id=line)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, samples, _warm_commands):
    """A folder with an artifact of each kind, which the examples replace by real ones as they run."""
    place = tmp_path_factory.mktemp("examples")
    for kind, body in samples.items():
        codec.write(str(place / f"{kind}.json"), kind, body)
    codec.write(str(place / "slow.json"), "report", slow_report(samples["report"]))
    (place / "nccl-topo.xml").write_text(XML)
    (place / "system.xml").write_bytes(export(box(4, [(0, 2), (1, 3)], nics=2)).content)
    (place / "gpus.xml").write_text(query_xml([("00000000:07:00.0", GPU), ("00000000:0F:00.0", GPU)]))
    (place / "nccl-debug.log").write_text(nccl_debug_log([LoggedHost("gpu1"), LoggedHost("gpu2")]))
    (place / "dcgm-gpu1.json").write_text(json.dumps(DCGM))
    accept_six_hosts(place / "accepted")
    (place / "topo.txt").write_text("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n")
    shutil.copy(EXAMPLES / "ring_allreduce.py", place / "ring.py")
    codec.write(str(place / "ring.xml"), "program", samples["program"])
    (place / "nccl.txt").write_text(NCCL)
    for name, hosts, gpu in (("nccl", 1, "H100"), ("old", 1, "H100"), ("hosts", 2, "A100-SXM4-80GB")):
        (place / f"{name}.log").write_text(nccl_log(hosts, gpu))
    (place / "osu.txt").write_text(OSU)
    for name, time_us in (("knomial", "350.50"), ("ring", "170.25"), ("default", "360.00")):
        (place / f"{name}.log").write_text(OSU.replace("350.50", time_us))
    links = [f"{src},{dst},1us,10GB/s" for src in range(4) for dst in range(4) if src != dst]
    (place / "links.csv").write_text("\n".join(["src,dst,alpha,bandwidth", *links]) + "\n")
    # The examples may run in several processes, each with some of them.
    codec.write(str(place / "profile.json"), "profile", complete_profile(4))
    shutil.copy(place / "selection.json", place / "table.json")
    (place / "plan.json").write_text(json.dumps(pair_plan()))
    (place / "nccl-inspector").mkdir()
    for rank in range(8):
        (place / "nccl-inspector" / f"gpu01-pid{rank}.log").write_text(inspector_record(rank))
    (place / "flight").mkdir()
    for rank in range(2):
        dump = {"pg_config": {}, "entries": [], "rank": rank}
        entry = {
            "process_group": ["0", ""],
            "collective_seq_id": 1,
            "profiling_name": "nccl:all_reduce",
            "state": "completed",
        }
        dump["entries"].append(entry)
        (place / "flight" / f"nccl_trace_rank_{rank}").write_text(json.dumps(dump))
    (place / "trace.csv").write_text("0,0.001,0.05\n0.002,0,0.004\n")
    rows = np.arange(4096, dtype=np.float32).reshape(4, 1024)
    np.save(place / "x.npy", rows)
    # Examples that start ranks may run apart from these.
    codec.write(str(place / "bench.json"), "report", samples["report"])
    (place / "out").mkdir()
    for kind in ("profile", "schedule", "report"):
        shutil.copy(place / f"{kind}.json", place / "out")
    for rank, row in enumerate(rows):
        np.save(place / f"x{rank}.npy", row)
    (place / "bin").mkdir()
    script = place / "bin" / "ccctl"
    script.write_text(_warm_commands.for_shells())
    script.chmod(0o755)
    # Compiled loops stay those of the user.
    (place / "cache" / "ccctl").mkdir(parents=True)
    (place / "cache" / "ccctl" / "numba").symlink_to(cache_folder())
    described = (ROOT / "examples" / "lab4.toml").read_text().replace('"lab4"', f'"{LAB}"')
    (place / "lab4.toml").write_text(described)
    yield place
    if os.geteuid() == 0:
        subprocess.run([script, "lab", "down", "-q", "--lab", LAB])


@pytest.mark.parametrize("line", list(lines()))
def test_the_example_runs(line, folder):
    # Another example's measurement is no baseline: the machine was not as busy then as it is now.
    shutil.copy(folder / "slow.json", folder / "report.json")
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "CCCTL_LAB": LAB,
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    expected = next((codes for words, codes in VERDICTS.items() if f"ccctl {words} " in line), {0})
    assert done.returncode in expected, done.stderr
    assert "Traceback" not in done.stderr
