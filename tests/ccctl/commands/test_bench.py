import importlib.util
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from limits import HANG_S

from ccctl.arguments.bench_options import sizes_between
from ccctl.artifacts import codec
from ccctl.commands.bench import _judge
from ccctl.errors import CannotWriteError, FoundProblem, UsageError
from ccctl.runs.rows_so_far import BenchRows
from exec.benchmark.regression import compare
from exec.benchmark.runner import BenchRequest, Contender
from synth import synthesize
from synth.kernels.stored_loops import cache_folder
from synth.network import Link, build
from synth.schedules import Range

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def written(schedule, samples, tmp_path_factory):
    """A schedule on four ranks, a program on two, a profile of two."""
    place = tmp_path_factory.mktemp("bench")
    codec.write(str(place / "schedule.json"), "schedule", schedule)
    codec.write(str(place / "program.json"), "program", samples["program"])
    codec.write(str(place / "profile.json"), "profile", samples["profile"])
    return place


@pytest.fixture
def folder(written, tmp_path):
    """The folder in which ccctl runs, with these files."""
    return shutil.copytree(written, tmp_path, dirs_exist_ok=True)


def explained(run, folder, *options):
    """Return the object that `ccctl bench --explain` prints for three sizes; its report is in the folder."""
    line = ("bench", "schedule.json", "--sizes", "16,2K,1M", "--iters", "3", "--explain", "--json")
    done = run([*line, "-o", "report.json", *options], "", folder, HANG_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def over_mpi(written, tmp_path_factory, _warm_commands):
    """The folder of a run over MPI, with the library as a peer, and what the command said."""
    folder = shutil.copytree(written, tmp_path_factory.mktemp("mpi"), dirs_exist_ok=True)
    return folder, explained(_warm_commands.run, folder, "--wires", "mpi", "--vs", "mpi")


@pytest.mark.mpi
def test_rows_have_the_keys_of_the_design_and_nothing_is_wrong(over_mpi):
    rows = over_mpi[1]["rows"]
    assert [row["size_bytes"] for row in rows] == [16, 2048, 1 << 20]
    for row in rows:
        assert row.keys() >= {"collective", "time_us", "p50_us", "p99_us", "algbw_gbs", "busbw_gbs", "peers"}
        assert row["wrong"] == row["in_place"]["wrong"] == 0
        assert row["predicted_us"] > 0
        assert row["peers"]["mpi"] > 0
        assert row["busbw_gbs"] == pytest.approx(row["algbw_gbs"] * 3 / 4)


def test_a_world_of_one_is_refused_when_more_was_asked(run_ccctl, folder):
    # Open MPI leaves the memory of a rank behind that no launcher started: let that be in the test's folder.
    started = {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}
    started["OMPI_MCA_btl_sm_backing_directory"] = str(folder)
    done = run_ccctl("bench", "schedule.json", **started)
    assert (done.returncode, done.stdout) == (2, "")
    assert "4 ranks" in done.stderr
    assert "world of 1" in done.stderr


def test_a_program_that_is_wrong_is_not_run(run_ccctl, samples, folder):
    wrong = replace(samples["program"], dst_slot=samples["program"].dst_slot + 7)
    codec.write(str(folder / "wrong.json"), "program", wrong)
    done = run_ccctl("bench", "wrong.json")
    assert done.returncode == 1
    assert "rank 1 threadblock 0 step 0 (r) writes o[7:8]" in done.stderr


def test_a_wrong_element_is_a_problem_that_names_size_and_placement(samples):
    (row,) = samples["report"].rows
    _judge(samples["report"], None, None)
    wrong = replace(row, in_place=replace(row.out_of_place, wrong=3))
    with pytest.raises(FoundProblem, match="all_reduce of 1024 bytes, float sum, in place: 3 wrong"):
        _judge(replace(samples["report"], rows=(wrong,)), None, None)


def test_wrong_elements_of_a_peer_are_its_own_and_only_said(samples, capsys):
    (row,) = samples["report"].rows
    wrong = replace(row, peers={"mpi:sparbit": replace(row.out_of_place, wrong=3)})
    _judge(replace(samples["report"], rows=(wrong,)), None, None)
    assert "mpi:sparbit itself gave 3 wrong elements" in capsys.readouterr().err


@pytest.mark.mpi
def test_several_programs_types_operators_and_algorithms_at_once(run_ccctl, folder):
    shutil.copy(EXAMPLES / "ring_allreduce.py", folder / "ring.py")
    shutil.copy(EXAMPLES / "ring_allreduce.py", folder / "again.py")
    given = ["ring.py", "again.py", "-p", "ranks=2", "-b", "1K", "-e", "1K", "--iters", 3, "-m", 2, "-N", 2]
    done = run_ccctl(
        "bench", *given, "-d", "float,int64", "--op", "max,min", "--vs", "mpi:ring,mpi", "-I", "--json"
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    rows = summary["rows"]
    # Two programs, two types, two operators, gone through twice.
    assert len(rows) == 16
    assert {row["program"] for row in rows} == {"ring.py", "again.py"}
    assert {(row["dtype"], row["redop"]) for row in rows} == set(
        itertools.product(("float32", "int64"), ("max", "min"))
    )
    for row in rows:
        assert row["wrong"] == 0
        assert row["peers"].keys() == row["peers_over_ours"].keys() == {"mpi:ring", "mpi"}
        assert row["peers_wrong"] == {"mpi:ring": 0, "mpi": 0}
        assert len(row["times_us"]) == 3
        assert len(row["rank_us"]) == 2
    assert summary["machine"].keys() >= {"python", "kernel", "cpu", "mpi4py", "mpi"}
    assert not any("PATH" in name for name in summary["machine"])


@pytest.mark.mpi
def test_a_program_is_predicted_on_a_profile_and_not_checked_if_so_asked(run_ccctl, folder):
    given = ("program.json", "--profile", "profile.json", "-b", "1K", "-e", "4K", "--iters", 2, "-c", 0)
    done = run_ccctl("bench", *given, "--window", "--json")
    assert done.returncode == 0, done.stderr
    for row in json.loads(done.stdout)["rows"]:
        assert row["predicted_us"] > 0
        if row["why_no_ratio"]:  # on a busy machine
            assert row["achieved"] is None
        else:
            assert row["achieved"] == pytest.approx(row["predicted_us"] / row["time_us"])
        assert row["wrong"] is None


@pytest.mark.mpi
def test_an_algorithm_that_the_library_lacks_is_named_with_those_it_has(run_ccctl, folder):
    done = run_ccctl("bench", "program.json", "-e", "1K", "--vs", "mpi:quantum")
    assert (done.returncode, done.stdout) == (2, "")
    assert "mpi:quantum" in done.stderr
    assert "ring" in done.stderr


@pytest.mark.mpi
@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_gloo_without_torch_says_what_is_missing(run_ccctl, folder):
    done = run_ccctl("bench", "schedule.json", "-e", "1K", "--vs", "gloo")
    assert (done.returncode, done.stdout) == (69, "")
    assert "--vs gloo needs torch, which is not installed" in done.stderr
    assert "pip install torch" in done.stderr


def test_a_row_slower_than_in_the_baseline_is_a_problem_that_names_it(samples):
    report = samples["report"]
    (row,) = report.rows
    once = replace(row.out_of_place, time_s=2 * row.out_of_place.time_s)
    slower = replace(report, rows=(replace(row, out_of_place=once),))
    _judge(report, compare(report, report), "old.json")
    _judge(report, compare(slower, report), "old.json")
    with pytest.raises(FoundProblem, match=r"1024 bytes, float sum, out of place: 2000.0 us, was 1000.0 us"):
        _judge(slower, compare(report, slower), "old.json")
    other = replace(report, rows=(replace(row, size_bytes=4),))
    with pytest.raises(UsageError, match=r"old.json: it has no row of the same collective, size"):
        _judge(other, compare(report, other), "old.json")


@pytest.mark.mpi
def test_a_baseline_is_compared_row_by_row(run_ccctl, folder):
    given = ["bench", "program.json", "-b", "1K", "-e", "1K", "-d", "double", "--iters", 5]
    done = run_ccctl(*given, "-o", "now.json")
    assert done.returncode == 0, done.stderr
    assert "#wrong" in done.stdout
    report = codec.read(str(folder / "now.json")).body
    (row,) = report.rows
    found = (row.dtype, row.count, row.size_bytes, row.predicted_s, row.peers)
    assert found == ("float64", 128, 1024, None, {})
    assert row.out_of_place.wrong == row.in_place.wrong == 0
    slow = replace(row, out_of_place=replace(row.out_of_place, p50_s=1e6), in_place=None)
    codec.write(str(folder / "slow.json"), "report", replace(report, rows=(slow,)))
    done = run_ccctl(*given, "--baseline", "slow.json", "--json")
    assert done.returncode == 0, done.stderr
    (change,) = json.loads(done.stdout)["baseline"]
    assert change["row"] == "broadcast of 1024 bytes, float64, out of place"
    assert (change["old_us"], change["slower"]) == (1e12, False)


def test_sizes_step_as_in_nccl_tests():
    assert sizes_between("8", "128", 2, None) == (8, 16, 32, 64, 128)
    assert sizes_between("1K", "3K", 2, "1K") == (1024, 2048, 3072)
    with pytest.raises(UsageError, match="-i"):
        sizes_between("1K", "3K", 2, "0")


@pytest.mark.mpi
def test_a_selection_runs_what_it_chooses_for_each_size(run_ccctl, folder, samples):
    selection = samples["selection"]
    (ring,) = selection.algorithms
    ranges = (Range(1, 4095, 0), Range(4096, 1 << 20, 1))
    points = tuple(replace(point, algorithm=1) for point in selection.points)
    algorithms = (ring, replace(ring, method="other"))
    both = replace(selection, algorithms=algorithms, ranges=ranges, points=points)
    codec.write(str(folder / "table.json"), "selection", both)
    given = ["table.json", "schedule.json", "-b", "1K", "-e", "16K", "-f", "16", "--iters", 2, "--json"]
    done = run_ccctl("bench", *given)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    chosen = [row["program"] for row in rows if row["program"].startswith("table.json")]
    assert chosen == ["table.json: ring", "table.json: other"]
    assert len(rows) == 4
    assert all(row["wrong"] == 0 and row["predicted_us"] > 0 for row in rows)


ENDS = {
    "Ctrl-C": (lambda command, _: command.send_signal(signal.SIGINT), 130, "Ctrl-C"),
    "SIGTERM": (lambda command, _: command.send_signal(signal.SIGTERM), 143, "SIGTERM"),
    "a killed rank": (lambda _, rank: rank.kill(), 1, "rank 1 (host {}, pid {})"),
}


@pytest.mark.mpi
# Ctrl-C takes the same path as SIGTERM except for its status, and another test ends a profile with it.
@pytest.mark.parametrize("name", [pytest.param("Ctrl-C", marks=pytest.mark.long), "SIGTERM", "a killed rank"])
def test_rows_come_as_they_finish_and_any_end_leaves_those_there_are(folder, name):
    end, status, why = ENDS[name]
    given = ["program.json", "-b", "1K", "-e", "64M", "-f", "2", "--iters", "100", "-o", "report.json"]
    command = [sys.executable, "-P", "-m", "ccctl", "bench", *given]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
    ) as started:
        lines = iter(started.stdout.readline, "")
        first = next(line for line in lines if line.split()[0] == "1024")
        # The file on disk says that it is partial, even if nobody could write again.
        written = codec.read(str(folder / "report.json"), "report").body
        workers = {child.environ().get("OMPI_COMM_WORLD_RANK"): child for child in _ranks(started.pid)}
        end(started, workers["1"])
        why = why.format(os.uname().nodename, workers["1"].pid)
        # communicate would lose what readline has read ahead.
        rest, said = started.stdout.read(), started.stderr.read()
    assert first.split()[3] == "none"
    assert written.interrupted.startswith("the run had not ended when this was written; ")
    assert started.returncode == status, said
    report = codec.read(str(folder / "report.json"), "report").body
    assert why in report.interrupted
    assert report.interrupted.endswith(f"; {17 - len(report.rows)} of 17 rows not measured")
    assert f"{len(report.rows)} of 17 rows were measured until then, and are in report.json" in said
    assert rest.splitlines()[-1] == f"# interrupted          : {report.interrupted}"
    printed = [line for line in [first, *rest.splitlines()] if not line.startswith("#")]
    assert [int(line.split()[0]) for line in printed] == [row.size_bytes for row in report.rows]


def _ranks(pid):
    return [
        one for one in psutil.Process(pid).children(recursive=True) if "exec.launcher.worker" in one.cmdline()
    ]


def pieces_of(report, count):
    """Return what a rank publishes of a report of ``count`` sizes."""
    (row,) = report.rows
    rows = [replace(row, size_bytes=4 << at, count=1 << at, dtype="float32") for at in range(count)]
    return [replace(report, rows=()), *(replace(report, rows=(row,)) for row in rows)]


def asked_for(samples, count):
    counts = tuple(1 << at for at in range(count))
    ours = (Contender("ring", samples["program"]),)
    return [BenchRequest(ours, counts, "float32", "sum", 1, 1, (False,), ("mpi",))]


def test_rows_that_are_printed_one_by_one_stand_below_each_other(samples, capsys):
    rows = BenchRows(asked_for(samples, 12), None, {}, json=False)
    for piece in pieces_of(samples["report"], 12):
        rows.keep(piece)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 + 2 + 12
    assert len({len(line) for line in lines[4:]}) == 1


def test_a_time_limit_leaves_one_object_of_what_there_is(samples, capsys):
    rows = BenchRows(asked_for(samples, 3), None, {}, json=True)
    for piece in pieces_of(samples["report"], 2):
        rows.keep(piece)
    rows.rescue("not done within 8 s")
    summary = json.loads(capsys.readouterr().out)
    assert summary["interrupted"] == "not done within 8 s; 1 of 3 rows not measured"
    assert [row["size_bytes"] for row in summary["rows"]] == [4, 8]


def test_a_full_disk_is_told_once_while_rows_go_on_and_a_reader_that_leaves_costs_no_file(
    samples, tmp_path, capsys, monkeypatch
):
    def full(*_):
        raise CannotWriteError("report.json: No space left on device")

    path = str(tmp_path / "report.json")
    first, *others = pieces_of(samples["report"], 3)
    rows = BenchRows(asked_for(samples, 3), path, {}, json=False)
    with monkeypatch.context() as patched:
        patched.setattr(codec, "write", full)
        for piece in (first, *others[:2]):
            rows.keep(piece)
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 7
    assert told.err == "warning: report.json: No space left on device\n"

    def gone(_):
        raise BrokenPipeError

    monkeypatch.setattr("ccctl.console.data", gone)
    rows.keep(others[2])
    rows.rescue("enough")
    assert len(codec.read(path).body.rows) == 3


def test_before_the_first_row_nothing_is_written_over(samples, tmp_path):
    path = tmp_path / "report.json"
    path.write_text("yesterday's")
    rows = BenchRows(asked_for(samples, 3), str(path), {}, json=True)
    rows.keep(pieces_of(samples["report"], 0)[0])
    assert rows.rescue("Ctrl-C") == ""
    assert path.read_text() == "yesterday's"


@pytest.mark.mpi
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_is_full_in_the_end_costs_the_file_and_not_the_rows(run_ccctl, folder):
    (folder / "report.json").symlink_to("/dev/full")
    done = run_ccctl("bench", "program.json", "-b", "1K", "-e", "2K", "-f", 2, "-o", "report.json")
    assert done.returncode == 73, done.stderr
    assert "No space left on device" in done.stderr
    assert len([line for line in done.stdout.splitlines() if not line.startswith("#")]) == 4


def test_a_baseline_and_pictures_say_that_a_run_was_interrupted(run_ccctl, samples, folder):
    partial = replace(samples["report"], interrupted="SIGTERM; 3 of 4 rows not measured")
    codec.write(str(folder / "partial.json"), "report", partial)
    for given in (["show", "partial.json"], ["show", "partial.json", "partial.json"]):
        assert "SIGTERM; 3 of 4 rows not measured" in run_ccctl(*given).stdout
    done = run_ccctl("bench", "schedule.json", "-n", 7, "--baseline", "partial.json")
    assert "partial.json is of a run that was interrupted: SIGTERM" in done.stderr


@pytest.mark.mpi
@pytest.mark.parametrize("size", ["4T", "512T"])
def test_what_no_host_has_memory_for_is_refused_before_it_is_taken(run_ccctl, folder, size):
    done = run_ccctl("bench", "program.json", "-b", size, "-e", size)
    assert (done.returncode, done.stdout) == (69, ""), done.stderr
    assert f"{os.uname().nodename}: broadcast of " in done.stderr
    assert "GiB are free" in done.stderr


@pytest.mark.mpi
def test_without_an_artifact_it_measures_synthesizes_runs_and_keeps_what_it_made(_warm_commands, tmp_path):
    # Compiled loops stay those of the user, and so commands may be forked from one that has loaded them.
    (tmp_path / "cache" / "ccctl").mkdir(parents=True)
    (tmp_path / "cache" / "ccctl" / "numba").symlink_to(cache_folder())
    variables = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(*more):
        given = ("bench", "-n", "2", "--collective", "AllGather", "--sizes", "1K,16K", "--iters", "2")
        return _warm_commands.run([*given, "--json", *more], "", tmp_path, HANG_S, variables=variables)

    done = run()
    assert done.returncode == 0, done.stderr
    assert "profile: measuring the links between 2 ranks on this host" in done.stderr
    assert "race: running" in done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["size_bytes"] for row in rows] == [1024, 16384]
    assert all(row["wrong"] == 0 and row["peers"]["mpi"] > 0 for row in rows)
    # The library's own collective, where that won the race, has no prediction.
    for row in rows:
        assert row["predicted_us"] is None if row["program"] == "ccctl: mpi" else row["predicted_us"] > 0
    again = run("--vs", "none")
    assert again.returncode == 0, again.stderr
    assert "race:" not in again.stderr
    for kind in ("profile", "selection"):
        assert f"{kind}: the one kept by an earlier run" in again.stderr
    assert all(row["peers"] == {} for row in json.loads(again.stdout)["rows"])


@pytest.mark.mpi
@pytest.mark.parametrize("wires", ["mpi", "sockets"])
def test_explain_tells_where_the_time_of_each_row_went(wires, request, run_ccctl, _warm_commands):
    if wires == "mpi":
        folder, summary = request.getfixturevalue("over_mpi")
    else:
        folder = request.getfixturevalue("folder")
        summary = explained(_warm_commands.run, folder, "--wires", "sockets")
    assert summary["executor"] == wires
    assert len(summary["rows"]) == 3
    # The clock may be too coarse for the copies of 4 bytes.
    for row in summary["rows"][1:]:
        assert row["wrong"] == 0
        breakdown = row["breakdown"]
        assert breakdown["placement"] == "out of place"
        assert breakdown["forecast"]["predicted_us"] == pytest.approx(row["predicted_us"])
        assert 0 < breakdown["forecast"]["bound_us"] <= breakdown["forecast"]["schedule_us"] * (1 + 1e-9)
        assert sum(part["time_us"] for part in breakdown["parts"]) == pytest.approx(breakdown["time_us"])
        assert row["out_of_place"]["min_us"] <= breakdown["time_us"] * (1 + 1e-3)
        assert breakdown["time_us"] <= row["out_of_place"]["max_us"] * (1 + 1e-3)
        assert [own["rank"] for own in breakdown["ranks"]] == [0, 1, 2, 3]
        assert all(own["copying_us"] > 0 and own["adding_us"] == 0 for own in breakdown["ranks"])
    report = codec.read(str(folder / "report.json"), "report").body
    assert report.executor == wires
    assert all(sum(part.time_s for part in row.breakdown.parts) > 0 for row in report.rows)
    shown = run_ccctl("show", folder / "report.json")
    assert shown.stdout.count("# explained") == 3 and "critical path" in shown.stdout


@pytest.mark.mpi
def test_explain_says_what_it_cannot_tell(run_ccctl, folder):
    done = run_ccctl("bench", "program.json", "--sizes", "1K", "--iters", 2, "--explain")
    assert done.returncode == 0, done.stderr
    assert "without a network" in done.stdout and "together" in done.stdout
    done = run_ccctl("bench", "program.json", "--explain", "-m", 2)
    assert done.returncode == 2 and "leave out -m 2" in done.stderr


@pytest.mark.netns
@pytest.mark.mpi
def test_explain_names_links_and_ports_between_hosts(run_ccctl, folder):
    nics = [Link(rank, (rank + 1) % 3, 1e-4, 8e-8, (f"nic{rank}",)) for rank in range(3)]
    network = build("ring:3", list("abc"), nics)
    apart = synthesize(network, "all_gather", 1 << 20, method="ring").schedule
    codec.write(str(folder / "apart.json"), "schedule", apart)
    lab = f"parts-{os.getpid()}"
    (folder / "lab.toml").write_text(f'name = "{lab}"\nhosts = "h[1-3]"\nrate = "100Mbit/s"\n')
    try:
        made = run_ccctl("lab", "up", "lab.toml")
        assert made.returncode == 0, made.stderr
        bench = ("bench", "apart.json", "--sizes", "3M", "-w", 1, "--iters", 3, "--placement", "out")
        line = [sys.executable, "-P", "-m", "ccctl", *bench, "--explain", "--json", "--wires", "sockets"]
        done = run_ccctl("lab", "run", "--", *line, CCCTL_LAB=lab)
        assert done.returncode == 0, done.stderr
    finally:
        gone = run_ccctl("lab", "down", CCCTL_LAB=lab)
    assert gone.returncode == 0, gone.stderr
    (row,) = json.loads(done.stdout)["rows"]
    breakdown = row["breakdown"]
    assert sum(part["time_us"] for part in breakdown["parts"]) == pytest.approx(breakdown["time_us"])
    # The wires take nearly all of it, and every NIC carries the same.
    on_wires = sum(part["time_us"] for part in breakdown["parts"] if part["kind"] in ("link", "port"))
    assert on_wires > breakdown["time_us"] / 2
    rings = {f"{rank} -> {(rank + 1) % 3}" for rank in range(3)}
    assert {part["where"] for part in breakdown["parts"] if part["kind"] == "link"} <= rings
    assert {one["where"] for one in breakdown["busy"]} == rings | {f"nic{rank}" for rank in range(3)}
    assert {one["carried_bytes"] for one in breakdown["busy"]} == {2 << 20}


STEP = """
[[group]]
name = "data"
kind = "all_reduce"
size = "64K"

[[group]]
name = "weights"
kind = "broadcast"
size = "16K"
release = "1ms"
"""


@pytest.mark.mpi
def test_groups_of_a_step_run_alone_at_once_and_planned_together(run_ccctl, folder):
    (folder / "step.toml").write_text(STEP)
    step = ("bench", "--groups", "step.toml", "--profile", "profile.json", "--iters", 2)
    done = run_ccctl(*step, "-o", "report.json", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["program"] for row in rows[::3]] == [
        "data: alone",
        "weights: alone",
        "whole step: planned singly",
    ]
    assert all(row["wrong"] == 0 and row["predicted_us"] > 0 and row["time_us"] > 0 for row in rows)
    assert len(codec.read(str(folder / "report.json"), "report").body.rows) == len(rows) == 8


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("schedule.json",), "ARTIFACT: leave it out"),
        (("--sizes", "1M"), "--sizes: leave it out"),
        (("--vs", "mpi"), "--vs: leave it out"),
        (("-d", "float32,float64"), "-d float32,float64: groups have one at a time"),
    ],
)
def test_what_has_no_meaning_beside_groups_is_refused(run_ccctl, folder, given, said):
    (folder / "step.toml").write_text(STEP)
    done = run_ccctl("bench", *given, "--groups", "step.toml", "-n", 2)
    assert done.returncode == 2
    assert said in done.stderr
    # The links between the ranks are measured only for what can run.
    assert "profile:" not in done.stderr
