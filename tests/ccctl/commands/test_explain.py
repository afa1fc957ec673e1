"""`ccctl explain` as a user runs it: what it says of a log, when it fails, and what it refuses."""

import gzip
import json
import pickle
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from limits import HANG_S

from ccctl.artifacts import codec
from probes.base import parse_size

GPUS = "NVIDIA A100-SXM4-40GB"


def log(rows, hosts=("a",), each=8, gpu=GPUS):
    """Return the output of all_reduce_perf with these rows of (bytes, microseconds)."""
    lines = ["# nThread 1 nGpus 1 minBytes 8 maxBytes 16 warmup iters: 5 iters: 20", "# Using devices"]
    for rank in range(len(hosts) * each):
        host = hosts[rank // each]
        lines.append(f"#  Rank {rank:2} Group  0 Pid {rank} on {host} device {rank % each} [0x0f] {gpu}")
    lines.append("#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong")
    ranks = len(hosts) * each
    for size, time_us in rows:
        algbw = size / time_us / 1e3
        told = f"{time_us:.1f}  {algbw:.2f}  {algbw * 2 * (ranks - 1) / ranks:.2f}  0"
        lines.append(f"  {size}  {size // 4}  float  sum  -1  {told}  {told}")
    return "\n".join([*lines, "# Avg bus bandwidth : 1.0", ""])


@pytest.fixture
def well(tmp_path):
    path = tmp_path / "nccl.log"
    path.write_text(log([(8192, 30.0), (1 << 30, 8100.0)]))
    return path


def test_one_host_is_known_by_its_gpus(well, run_ccctl):
    done = run_ccctl("explain", well)
    assert done.returncode == 0
    assert "taken for dgx-a100" in done.stderr
    assert "232" in done.stdout and "normal" in done.stdout and "300.0" in done.stdout


def test_the_summary_holds_bound_and_verdict(well, run_ccctl):
    done = run_ccctl("explain", well, "--network", "dgx-a100", "--json")
    told = json.loads(done.stdout)
    small, large = told["rows"]
    assert (small["verdict"], small["counts"], large["verdict"], large["counts"]) == (
        "start-up",
        False,
        "normal",
        True,
    )
    assert large["bound_busbw_gbs"] == pytest.approx(300, rel=0.01)
    assert large["algorithms"]["ring"]["busbw_gbs"] == pytest.approx(300)
    assert told["ok"] and told["network"] == "dgx-a100"


@pytest.mark.parametrize(("asked", "status"), [("70%", 0), ("90", 1)])
def test_ci_fails_below_what_was_asked_for(well, run_ccctl, tmp_path, asked, status):
    xml, text = tmp_path / "out.xml", tmp_path / "out.md"
    given = ("--network", "dgx-a100", "--at-least", asked, "--junit", xml, "--markdown", text)
    done = run_ccctl("explain", well, *given)
    assert done.returncode == status, done.stderr
    suite = ElementTree.fromstring(xml.read_bytes()).find("testsuite")
    assert (suite.get("tests"), suite.get("skipped"), suite.get("failures")) == ("2", "1", str(status))
    assert text.read_text().count("| all_reduce |") == 2
    assert ("failed" in text.read_text()) == bool(status)


def test_wrong_results_come_first_and_fail(well, run_ccctl, tmp_path):
    first = well.read_text()
    wrong = first.replace("0  8100.0", "96  8100.0", 1)
    assert wrong != first
    well.write_text(wrong)
    done = run_ccctl("explain", well, "--network", "dgx-a100", "--junit", tmp_path / "out.xml")
    assert done.returncode == 1
    told = done.stdout.splitlines()
    assert told[2].startswith("Wrong results, so their speed means nothing: all_reduce of 1G: 96 wrong")
    assert "Verdict: normal" not in done.stdout
    suite = ElementTree.fromstring((tmp_path / "out.xml").read_bytes()).find("testsuite")
    assert suite.get("failures") == "1"
    well.write_text(first + "# Out of bounds values : 4 FAILED\n")
    done = run_ccctl("explain", well, "--network", "dgx-a100", "--json")
    assert (done.returncode, json.loads(done.stdout)["findings"]) == (1, ["4 values out of bounds"])


def test_validation_of_osu_that_failed_fails(run_ccctl, tmp_path):
    (tmp_path / "osu.txt").write_text(
        "# OSU MPI Allreduce Latency Test v7.4\n# Size  Avg Latency(us)  Validation\n"
        "1024 12.00 Pass\n1048576 350.50 Fail\n"
    )
    done = run_ccctl("explain", "osu.txt", "--network", "switch:4", "--bandwidth", "10GB/s")
    assert done.returncode == 1
    assert "validation failed: line 4, size 1048576" in done.stdout


def test_wrong_results_are_told_though_no_network_is_named(run_ccctl, tmp_path):
    two = log([(1 << 30, 21000.0)], hosts=("a", "b")).replace("0  21000.0", "96  21000.0")
    (tmp_path / "two.log").write_text(two)
    done = run_ccctl("explain", "two.log")
    assert done.returncode == 1
    wrong, why = [line for line in done.stderr.splitlines() if line.startswith("ccctl: ")]
    assert "96 wrong elements out of place" in wrong and "expected --network" in why
    (tmp_path / "osu.txt").write_text(
        "# OSU MPI Allreduce Latency Test v7.4\n# Size  Avg Latency(us)  Validation\n8  1.0  Fail\n"
    )
    done = run_ccctl("explain", "osu.txt")
    assert done.returncode == 1
    assert done.stderr.index("validation failed: line 3") < done.stderr.index("how many ranks ran")


def test_ranks_that_a_log_leaves_out_are_told_by_its_bandwidths(run_ccctl, tmp_path):
    rows = log([(1 << 30, 21000.0)]).splitlines()
    (tmp_path / "n.log").write_text("\n".join([*rows[:4], "...", *rows[4:]]) + "\n")
    done = run_ccctl("explain", "n.log")
    assert done.returncode == 65
    assert "busbw / algbw of 1.75 means 8 ranks for all_reduce" in done.stderr
    assert "Name the network on which they ran" in done.stderr


def test_the_verdict_is_about_all_rows(run_ccctl, tmp_path):
    (tmp_path / "n.log").write_text(log([(1 << 26, 4000.0), (1 << 27, 8000.0), (1 << 30, 8100.0)]))
    done = run_ccctl("explain", "n.log", "--network", "dgx-a100")
    assert "Not normal: very low: 2 of 3 rows (64M to 128M)." in done.stdout


def test_the_report_says_what_explain_says(run_ccctl, tmp_path):
    (tmp_path / "n.log").write_text(log([(1 << 30, 16200.0)]))
    done = run_ccctl("report", "n.log")
    slow = "slow: n.log: all_reduce of 1G is low: 116.0 GB/s busbw of at most 300.0 on dgx-a100"
    assert slow in done.stdout
    (tmp_path / "n.log").write_text(log([(1 << 26, 4000.0), (1 << 27, 8000.0), (1 << 30, 8100.0)]))
    done = run_ccctl("report", "n.log")
    slow = "slow: n.log: all_reduce of 128M is very low: 29.4 GB/s busbw of at most 299.7 on dgx-a100"
    assert f"{slow}, as 1 more row\n" in done.stdout


def test_the_report_says_what_it_does_not_judge(run_ccctl, tmp_path):
    (tmp_path / "n.log").write_text(log([(1 << 30, 90000.0)], hosts=[f"h{at}" for at in range(9)]))
    assert "not judged: 72 ranks; ccctl explain judges them" in run_ccctl("report", "n.log").stdout
    (tmp_path / "n.log").write_text(log([(1 << 30, 90000.0)], hosts=("a", "b")))
    done = run_ccctl("report", "n.log")
    assert "not judged: no file here has a network of as many ranks" in done.stdout


def test_the_report_judges_a_bench_whose_profile_lies_beside_it(run_ccctl, tmp_path, samples):
    profile = samples["profile"]
    (tmp_path / "both").mkdir()
    codec.write(str(tmp_path / "both" / "profile.json"), "profile", profile)
    bench = samples["report"]
    rows = tuple(
        replace(row, out_of_place=replace(row.out_of_place, time_s=1e4), size_bytes=1 << 30)
        for row in bench.rows
        if row.out_of_place
    )
    codec.write(
        str(tmp_path / "both" / "bench.json"), "report", replace(bench, rows=rows, ranks=len(profile.ranks))
    )
    explained = run_ccctl("explain", "both/bench.json", "--network", "both/profile.json")
    assert "Not normal: very low" in explained.stdout
    assert "is very low" in run_ccctl("report", "both").stdout


def test_every_row_from_a_size_on_counts(well, run_ccctl):
    done = run_ccctl("explain", well, "--network", "dgx-a100", "--at-least", "50%", "--from", "8K")
    assert done.returncode == 1
    assert "all_reduce of 8K" in done.stderr


def test_a_machine_is_taken_once_for_each_host(tmp_path, run_ccctl):
    path = tmp_path / "nccl.log"
    path.write_text(log([(1 << 30, 21000.0)], hosts=("a", "b", "c")))
    done = run_ccctl("explain", path, "--network", "dgx-a100/4x200", "--json")
    told = json.loads(done.stdout)
    assert told["network"] == "dgx-a100/4x200:3"
    (row,) = told["rows"]
    assert row["algorithms"]["ring"]["busbw_gbs"] == pytest.approx(100)
    assert "nic" in row["algorithms"]["ring"]["binding"]
    refused = run_ccctl("explain", path)
    assert refused.returncode == 2
    assert "--network dgx-a100:3" in refused.stderr


def test_what_nccl_wrote_of_one_host_stands_for_each(tmp_path, run_ccctl):
    gpus = "".join(
        f'<pci busid="0000:0{gpu}:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">'
        f'<gpu dev="{gpu}" sm="80" rank="{gpu}" gdr="1"/></pci>'
        for gpu in range(2)
    )
    nic = (
        '<pci busid="0000:09:00.0" class="0x020000" link_speed="16.0 GT/s PCIe" link_width="16"><nic>'
        '<net name="mlx5_0" dev="0" speed="100000" port="1" guid="0x1" maxconn="1" gdr="0"/></nic></pci>'
    )
    cpu = '<cpu numaid="0" affinity="3" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">'
    (tmp_path / "system.xml").write_text(f'<system version="1">{cpu}{gpus}{nic}</cpu></system>')
    (tmp_path / "nccl.log").write_text(log([(1 << 30, 140000.0)], hosts=("a", "b"), each=2))
    done = run_ccctl("explain", tmp_path / "nccl.log", "--network", tmp_path / "system.xml", "--json")
    (row,) = json.loads(done.stdout)["rows"]
    assert row["algorithms"]["ring"]["busbw_gbs"] == pytest.approx(12.5)
    assert "mlx5_0" in row["algorithms"]["ring"]["binding"]


def test_another_network_than_the_measured_one_fails(tmp_path, run_ccctl):
    path = tmp_path / "nccl.log"
    path.write_text(log([(1 << 30, 1000.0)]))
    done = run_ccctl("explain", path, "--network", "dgx-a100", "--at-least", "50%")
    assert done.returncode == 1
    assert "the run was on another one" in done.stderr


def test_a_slower_run_than_the_baseline_fails(well, tmp_path, run_ccctl):
    slow = tmp_path / "slow.log"
    slow.write_text(log([(8192, 30.0), (1 << 30, 9500.0)]))
    done = run_ccctl("explain", slow, "--baseline", well, "--markdown", "changes.md")
    # Markdown would escape marks of its own in a cell.
    assert "| SLOWER |" in (tmp_path / "changes.md").read_text()
    assert done.returncode == 1
    assert "1.17 times as long" in done.stderr
    assert run_ccctl("explain", slow, "--baseline", well, "--tolerance", "20").returncode == 0


def test_a_report_of_ours_on_a_measured_network(samples, tmp_path, run_ccctl):
    report, profile = tmp_path / "report.json", tmp_path / "profile.json"
    codec.write(str(report), "report", samples["report"])
    codec.write(str(profile), "profile", samples["profile"])
    done = run_ccctl("explain", report, "--network", profile, "--synth", "--json")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)["rows"][-1]
    assert row["synthesized_us"] * (1 + 1e-9) >= row["bound_us"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--at-least", "much"], "expected a percentage"),
        (["--from", "1T"], "the largest row"),
        (["--network", "dgx-a100:2"], "16 ranks on 2 hosts"),
        (["--network", "nowhere"], "neither a file nor"),
        (["--json", "--markdown", "-"], "stdout"),
        (["--network", "dgx-a100/9x9"], "NICs of"),
    ],
)
def test_refuses_what_cannot_be_meant(well, run_ccctl, arguments, says):
    done = run_ccctl("explain", well, *arguments)
    assert done.returncode == 2
    assert says in done.stderr


def test_refuses_what_is_no_log(tmp_path, run_ccctl):
    path = tmp_path / "x.log"
    path.write_text("nothing of the kind\n")
    done = run_ccctl("explain", path)
    assert done.returncode == 65
    assert f"{path}: expected a report of ccctl, or what nccl-tests" in done.stderr


OSU = "# OSU MPI Allreduce Latency Test v7.4\n# Size  Avg Latency(us)\n1048576  350.50\n"


def test_a_table_of_the_osu_benchmarks_takes_its_ranks_from_the_network(run_ccctl, tmp_path):
    (tmp_path / "osu.txt").write_text(OSU)
    done = run_ccctl("explain", "osu.txt", "--network", "switch:4", "--bandwidth", "10GB/s", "--json")
    told = json.loads(done.stdout)
    assert (told["ranks"], told["hosts"], told["library"]) == (4, [], "OSU MPI 7.4")
    assert told["rows"][0]["percent_of_bound"] == pytest.approx(44.9, abs=0.1)
    refused = run_ccctl("explain", "osu.txt")
    assert refused.returncode == 65
    assert "osu.txt: the OSU benchmarks do not say how many ranks ran" in refused.stderr
    shown = run_ccctl("show", "osu.txt")
    assert shown.returncode == 65
    assert "do not say how many ranks ran" in shown.stderr


def inspector_file(rank, late_us):
    record = {
        "header": {"id": "0xab", "rank": rank, "n_ranks": 8, "nnodes": 1},
        "metadata": {"hostname": "gpu01"},
        "coll_perf": {"coll": "AllReduce", "coll_sn": 1, "coll_msg_size_bytes": 1 << 30},
    }
    record["coll_perf"]["coll_exec_time_us"] = 6000 + (0 if rank == 5 else late_us)
    return (json.dumps(record) + "\n").encode()


def test_a_late_rank_is_told_apart_from_a_slow_network(run_ccctl, tmp_path):
    folder = tmp_path / "inspector"
    folder.mkdir()
    for rank in range(8):
        content = inspector_file(rank, 4000)
        name = f"gpu01-pid{rank}.log"
        if rank % 2:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    done = run_ccctl("explain", "inspector", "--network", "dgx-h100")
    assert done.returncode == 0, done.stderr
    assert "Verdict: normal." in done.stdout
    assert "for rank 5 on gpu01: look at its compute, not at the network" in done.stdout
    [row] = json.loads(run_ccctl("explain", "inspector", "--network", "dgx-h100", "--json").stdout)["rows"]
    assert row["time_us"] == pytest.approx(6000)
    assert row["waiting"]["percent"] == pytest.approx(40)
    assert row["waiting"]["last"] == [{"rank": 5, "host": "gpu01", "percent_of_calls": 100}]


def test_one_file_of_many_says_that_times_hold_waiting(run_ccctl, tmp_path):
    (tmp_path / "rank0.jsonl").write_bytes(inspector_file(0, 4000))
    done = run_ccctl("explain", "rank0.jsonl", "--network", "dgx-h100")
    assert "1 of 8 ranks recorded, so the times include their waiting for others" in done.stdout


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(OSU.encode(), marks=pytest.mark.long, id="osu"),
        pytest.param(inspector_file(0, 4000), id="inspector"),
    ],
)
def test_what_comes_through_a_pipe_is_read_once(_warm_commands, tmp_path, content):
    (tmp_path / "log").write_bytes(content)
    ccctl = _warm_commands.program("-m", "ccctl", "explain", "/dev/stdin", "--network", "dgx-h100", "--json")
    piped = ["sh", "-c", 'cat log | "$@"', "sh", *ccctl]
    done = subprocess.run(piped, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranks"] == 8


def test_files_of_others_in_the_folder_of_the_inspector_are_left_out_and_named(run_ccctl, tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(8):
        (folder / f"gpu01-pid{rank}.log").write_bytes(inspector_file(rank, 4000))
    given = ("explain", "job", "--network", "dgx-h100")
    alone = run_ccctl(*given)
    (folder / "nccl.log").write_text(log([(1 << 30, 8100.0)]))
    (folder / "slurm-17.out").write_text("srun: job 17 started\n")
    (folder / "core").write_bytes(b"\x7fELF\x00")
    done = run_ccctl(*given)
    assert done.returncode == 0, done.stderr
    assert done.stdout == alone.stdout
    assert "job: core, nccl.log, slurm-17.out are left out, not written by NCCL's Inspector" in done.stderr
    assert "left out" not in alone.stderr
    (folder / "gpu01-pid3.log").write_bytes(inspector_file(3, 4000) + b"{torn\n")
    torn = run_ccctl(*given)
    assert torn.returncode == 65
    assert "gpu01-pid3.log: line 2: expected a record of NCCL's Inspector" in torn.stderr


def test_a_folder_of_benchmarks_alone_is_refused_with_what_to_do(run_ccctl, well):
    done = run_ccctl("explain", well.parent, "--network", "dgx-a100")
    assert (done.returncode, done.stdout) == (65, "")
    assert "found none of these: nccl.log" in done.stderr
    assert "ccctl explain FOLDER/FILE" in done.stderr


def test_a_topology_is_refused_with_the_command_that_reads_it(run_ccctl, tmp_path):
    (tmp_path / "topo.xml").write_text('<system version="1"/>')
    done = run_ccctl("explain", "topo.xml")
    assert (done.returncode, done.stdout) == (65, "")
    assert "ccctl detect --from" in done.stderr


def test_a_folder_without_files_of_the_inspector_is_refused(run_ccctl, tmp_path):
    (tmp_path / "empty").mkdir()
    done = run_ccctl("explain", "empty", "--network", "dgx-h100")
    assert (done.returncode, done.stdout) == (65, "")
    assert "expected files of NCCL's Inspector" in done.stderr


THREADS = Path(__file__).parents[3] / "docs" / "explanation" / "results" / "normal-bandwidth.md"
# Hosts, GPUs per host and --network of each row of that page.
MACHINES = [
    (3, 8, "dgx-a100/4x200"),
    (1, 8, "dgx-a100"),
    *[(1, 8, "dgx-h100")] * 3,
    *[(2, 8, "dgx-a100/8x100")] * 2,
    (2, 8, "dgx-a100"),
    *[(2, 8, "dgx-a100/2x200")] * 2,
    (2, 4, "dgx-2/8x100:2"),
    (2, 8, "dgx-1/4x100"),
    *[(8, 8, "dgx-1/4x100")] * 2,
    (2, 8, "dgx-a100/4x200"),
    (4, 8, "dgx-h100"),
    (18, 4, "gb200-nvl72"),
]
ROWS = [
    line
    for line in THREADS.read_text().splitlines()
    if line.startswith(("| [nccl", "| nccl", "| [coreweave"))
]


# Rows about the same machine as an earlier row run with `make test-long`.
@pytest.mark.parametrize(
    ("row", "machine"),
    [
        pytest.param(row, machine, id=f"row {at + 1}", marks=[pytest.mark.long] * (machine in MACHINES[:at]))
        for at, (row, machine) in enumerate(zip(ROWS, MACHINES, strict=True))
    ],
)
def test_the_page_of_threads_says_what_is_said(row, machine, tmp_path, run_ccctl):
    hosts, each, network = machine
    _, _, _, measured, bound, peers, verdict, _, _ = (cell.strip() for cell in row.split("|"))
    at_most, reached = bound.removesuffix(" %)").split(" (")
    at = re.search(r"at (\d+[MG])", row.split("|")[2])
    ranks, size = hosts * each, parse_size(at[1] if at else "1G")
    time_us = size * 2 * (ranks - 1) / ranks / float(measured) / 1e3
    (tmp_path / "nccl.log").write_text(log([(size, time_us)], [f"h{host}" for host in range(hosts)], each))
    done = run_ccctl("explain", "nccl.log", "--network", network, "--json")
    (told,) = json.loads(done.stdout)["rows"]
    assert told["bound_busbw_gbs"] == pytest.approx(float(at_most), rel=2e-3)
    assert told["percent_of_bound"] == pytest.approx(float(reached), abs=0.2)
    carried = [told["algorithms"][name]["busbw_gbs"] for name in ("ring", "tree")]
    assert carried == pytest.approx([float(one) for one in peers.split(", ")], abs=0.51)
    assert told["verdict"] == verdict


@pytest.fixture
def flight(tmp_path):
    """Dumps of four ranks: the last has not begun the second all_reduce; rank 1 came last to the first."""
    (tmp_path / "flight").mkdir()
    for rank in range(4):
        entries = [
            {
                "process_group": ["0", "default_pg"],
                "collective_seq_id": number,
                "profiling_name": "nccl:all_reduce",
                "input_sizes": [[1 << 18]],
                "input_dtypes": ["Float"],
                "state": state,
                "duration_ms": duration,
            }
            for number, state, duration in ((1, "completed", 1.0 if rank == 1 else 5.0), (2, "started", None))
            if rank != 3 or number == 1
        ]
        sent = {
            "process_group": ["0", "default_pg"],
            "p2p_seq_id": 1,
            "is_p2p": True,
            "profiling_name": f"nccl:send {rank}->{(rank + 1) % 4}",
            "input_sizes": [[1 << 18]],
            "input_dtypes": ["Float"],
            "state": "completed",
            "duration_ms": 0.25,
        }
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
        content = pickle.dumps(
            {"version": "2.5", "pg_config": config, "entries": [*entries, sent]}, protocol=2
        )
        (tmp_path / "flight" / f"nccl_trace_rank_{rank}").write_bytes(content)


def test_a_flight_recorder_tells_who_is_waited_for(flight, run_ccctl):
    done = run_ccctl("explain", "flight")
    assert done.returncode == 1 and "flight: 1 rank holds others up: 3" in done.stderr
    assert "PyTorch's flight recorder: 4 ranks, 1 communicator" in done.stdout
    assert (
        "late: rank 3 of communicator 0 has not begun nccl:all_reduce 2, in which 3 ranks wait" in done.stdout
    )
    assert (
        "1 ms of transfer after 4 ms of waiting for the last rank, rank 1 in 100.0 % of 1 call" in done.stdout
    )
    told = json.loads(run_ccctl("explain", "flight", "--json").stdout)
    assert [(one["what"], one["rank"]) for one in told["late"]] == [("late", 3)]


def test_dumps_may_be_named_one_by_one(flight, run_ccctl):
    names = [f"flight/nccl_trace_rank_{rank}" for rank in range(4)]
    done, folder = run_ccctl("explain", *names), run_ccctl("explain", "flight")
    assert (done.returncode, done.stdout) == (1, folder.stdout)
    assert "flight/nccl_trace_rank_0 and 3 more: 1 rank holds others up: 3" in done.stderr


def test_a_flight_recorder_beside_its_network(flight, run_ccctl):
    done = run_ccctl("explain", "flight", "--network", "switch:4", "--bandwidth", "10GB/s")
    assert done.returncode == 1 and "all_reduce" in done.stdout and "holds others up" in done.stderr


def test_recorded_sends_are_written_as_a_profile(flight, run_ccctl, tmp_path):
    run_ccctl("explain", "flight", "--profile", "passive.json")
    found = codec.read(str(tmp_path / "passive.json"), "profile").body
    assert found.links.src.tolist() == [0, 1, 2, 3] and found.links.dst.tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize(("path", "profile"), [("-", "passive.json"), ("flight", "-")])
def test_a_profile_takes_neither_stdin_nor_stdout(flight, run_ccctl, path, profile):
    done = run_ccctl("explain", path, "--profile", profile)
    assert done.returncode == 2 and "--profile" in done.stderr and done.stdout == ""


def test_without_sends_there_is_no_profile(well, run_ccctl):
    done = run_ccctl("explain", well, "--profile", "passive.json")
    assert done.returncode == 2 and "no timed message between two ranks" in done.stderr


def test_a_pickle_that_is_a_program_is_refused(tmp_path, run_ccctl):
    (tmp_path / "nccl_trace_rank_0").write_bytes(
        b"\x80\x02cos\nsystem\nX\x0d\x00\x00\x00touch pwned  \x85R.profiling_name"
    )
    done = run_ccctl("explain", "nccl_trace_rank_0")
    assert done.returncode == 65 and "plain data alone" in done.stderr and not (tmp_path / "pwned").exists()
