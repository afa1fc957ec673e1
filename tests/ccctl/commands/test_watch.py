"""`ccctl watch` as cron runs it, on this host."""

import dataclasses
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from given_profile import profile_of_links

from ccctl.artifacts import codec
from ccctl.commands.watch import FILES
from ccctl.main import main
from probes.link_costs import ProfiledRank
from synth import synthesize
from synth.networks.measured import from_profile

ROOT = Path(__file__).parents[3]
CCCTL = [sys.executable, "-P", "-m", "ccctl"]
WORDS = ("--baseline", "slow.json", "--schedule", "schedule.json", "--state", "state")
# No schedule gains so much, so none is searched.
FAST = ("--baseline", "fast.json", *WORDS[2:], "--gain", "99%")
QUICK = ("--budget", "0.2s")
# However busy this machine is, its links are faster than the one, and slower than the other.
SLOW_BYTES_PER_S, FAST_BYTES_PER_S = 1e3, 1e15


def baseline(bytes_per_s):
    """Two ranks of this host, with links of such a bandwidth, and a latency that nothing exceeds."""
    return profile_of_links([socket.gethostname()] * 2, [(0, 1), (1, 0)], 1.0, 1 / bytes_per_s)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with two baselines, and a schedule for both."""
    folder = tmp_path_factory.mktemp("watch")
    codec.write(str(folder / "slow.json"), "profile", baseline(SLOW_BYTES_PER_S))
    codec.write(str(folder / "fast.json"), "profile", baseline(FAST_BYTES_PER_S))
    found = synthesize(from_profile(baseline(SLOW_BYTES_PER_S)), size_bytes=1 << 16, method="ring")
    codec.write(str(folder / "schedule.json"), "schedule", found.schedule)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    for path in made.glob("*.json"):
        shutil.copy(path, tmp_path)
    return tmp_path


def files(folder):
    return {path.name: path.read_bytes() for path in (folder / "state").iterdir()}


@pytest.mark.mpi
def test_two_quiet_runs_differ_by_a_row_of_the_history_alone(run_ccctl, folder):
    first = run_ccctl("watch", *WORDS, *QUICK)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith(
        "no drift: 2 links as fast as in slow.json, within their noise, or 8.0 % where that is more"
    )
    before = files(folder)
    assert before["current.json"] == (folder / "schedule.json").read_bytes()
    second = run_ccctl("watch", *WORDS, *QUICK, "-q")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    after = files(folder)
    assert {name for name in before if before[name] != after[name]} == {"history.json"}
    assert before.keys() == after.keys()
    one, two = (json.loads(each["history.json"])["body"] for each in (before, after))
    assert (len(one["at_s"]), len(two["at_s"])) == (1, 2)
    assert two["beta_s_per_byte"][:2] == one["beta_s_per_byte"]
    changed = {name for name in one if one[name] != two[name]}
    assert changed == {"at_s", "beta_s_per_byte", "alpha_s", "measured_s"}


@pytest.mark.mpi
def test_what_became_worse_is_told_even_when_quiet_and_again_until_it_recovers(run_ccctl, folder):
    first = run_ccctl("watch", *FAST, *QUICK, "-q", "--prometheus", "w.prom")
    assert first.returncode == 1
    told = [line for line in first.stdout.splitlines() if line.startswith("drift: ")]
    assert len(told) == 1 and "new in this run" in told[0], first.stdout
    part = r"drift: inside host \S+ \(2 of 2 links\): bandwidth "
    assert re.match(part + r".* GB/s, \d+% of the baseline; ", told[0])
    assert "all_reduce takes " in told[0]
    assert first.stderr.splitlines() == ["ccctl: worse than fast.json"]
    lines = (folder / "w.prom").read_text().splitlines()
    assert "ccctl_watch_drifts 1" in lines
    assert 'ccctl_exit_code{command="watch"} 1' in lines
    second = run_ccctl("watch", *FAST, *QUICK, "--json")
    assert second.returncode == 1
    summary = json.loads(second.stdout)
    assert [(event["kind"], event["new"]) for event in summary["events"]] == [("drift", False)]
    assert summary["runs"] == 2
    assert len(summary["findings"]) == 1
    assert summary.keys() >= {"resynthesized", "predicted_gain", "percent_of_optimal", "seconds"}
    # Held to a slower baseline, all is well again.
    third = run_ccctl("watch", *WORDS, *QUICK)
    assert third.returncode == 0, third.stdout
    assert third.stdout.count("recovered: ") >= 1
    assert "worse since" in third.stdout
    kinds = [event["kind"] for event in json.loads(files(folder)["history.json"])["body"]["events"]]
    kinds = [kind for kind in kinds if kind != "schedule"]
    assert kinds[0] == "drift" and {*kinds[1:]} == {"recovered"}


@pytest.mark.mpi
def test_a_host_that_is_gone_is_a_finding_and_nothing_is_planned(run_ccctl, folder):
    slow = baseline(SLOW_BYTES_PER_S)
    moved = dataclasses.replace(slow, ranks=(slow.ranks[0], ProfiledRank(1, "elsewhere")))
    codec.write(str(folder / "moved.json"), "profile", moved)
    done = run_ccctl("watch", "--baseline", "moved.json", *WORDS[2:], "-n", "2", *QUICK, "--json")
    assert done.returncode == 1, done.stderr
    summary = json.loads(done.stdout)
    assert summary["events"][0] == {"kind": "gone", "what": "host elsewhere"}
    assert summary["findings"][0] == "host elsewhere of the baseline is not there"
    assert summary["resynthesized"] is False


@pytest.mark.mpi
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_whatever_ends_a_run_the_next_one_goes_on(run_ccctl, folder, number, status):
    line = [*CCCTL, "watch", *WORDS, "--budget", "30s"]
    with subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        deadline_s = time.monotonic() + 60
        while not (folder / "state" / "current.json").exists() and time.monotonic() < deadline_s:
            time.sleep(0.02)
        time.sleep(0.3)
        running.send_signal(number)
        assert running.wait(60) == status
    done = run_ccctl("watch", *WORDS, *QUICK)
    assert done.returncode == 0, done.stderr
    assert set(files(folder)) <= {"current.json", "history.json"} | {
        name for name in files(folder) if name.startswith("schedule-")
    }


@pytest.mark.mpi
def test_its_time_limit_ends_it_and_keeps_the_state(run_ccctl, folder):
    done = run_ccctl("watch", *WORDS, "--timeout", "0.3", "--prometheus", "w.prom")
    assert done.returncode == 124, done.stderr
    assert 'ccctl_exit_code{command="watch"} 124' in (folder / "w.prom").read_text()
    assert "history.json" not in files(folder)


def test_a_second_watch_of_the_same_folder_ends_with_75(run_ccctl, folder):
    code = (
        "import time; from ccctl.watch.state import opened\n"
        "with opened('state'): print('on', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-P", "-c", code], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "on\n"
        done = run_ccctl("watch", *WORDS)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert (done.returncode, done.stdout) == (75, "")
    assert f"state: another watch has this folder (pid {holder.pid}, since" in done.stderr


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--threshold", "10"), 2, "--threshold: expected auto, or a share from above 0% to 99%, found '10'"),
        (("--threshold", "0%"), 2, "--threshold: expected auto, or a share"),
        (("--gain", "auto"), 2, "--gain: expected a share from above 0% to 99%"),
        (("--budget", "ten"), 2, "--budget: expected a duration > 0"),
        (("--budget", "0.01s"), 2, "--budget: expected 0.1s to 1e+09s"),
        (("--prometheus", "w.txt"), 2, "--prometheus: expected a file ending in .prom"),
        (("-n", "3"), 2, "the baseline slow.json has 2 ranks, the options name 3"),
        (("--baseline", "none.json"), 66, "none.json: there is no such file"),
        (("--baseline", "schedule.json"), 65, "expected a profile, found a schedule"),
        (("--schedule", "slow.json"), 65, "expected a schedule, found a profile"),
        (
            ("--schedule", "four.json"),
            2,
            "--schedule four.json: it is for 4 ranks, --baseline slow.json has 2",
        ),
        (("--schedule", "wrong.json"), 65, "wrong.json: "),
        (("--timeout", "0"), 2, "--timeout: expected seconds > 0"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_measured_or_made(
    folder, schedule, words, status, said, monkeypatch, capsys
):
    codec.write(str(folder / "four.json"), "schedule", schedule)
    wrong = codec.read(str(folder / "schedule.json"), "schedule").body
    codec.write(
        str(folder / "wrong.json"), "schedule", dataclasses.replace(wrong, chunk=wrong.chunk[::-1].copy())
    )
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["ccctl", "watch", *WORDS, *words])
    with pytest.raises(SystemExit) as left:
        main()
    told = capsys.readouterr()
    assert (left.value.code, told.out) == (status, ""), told.err
    assert said in told.err
    assert not (folder / "state").exists()


def test_a_bad_or_foreign_file_in_the_state_is_refused_with_its_path(run_ccctl, folder):
    (folder / "state").mkdir()
    (folder / "state" / "history.json").write_text('{"schema": "ccctl/history/1", "body": {"at_s": 1}}')
    done = run_ccctl("watch", *WORDS)
    assert (done.returncode, done.stdout) == (65, "")
    assert "state/history.json: body.at_s: " in done.stderr
    (folder / "state" / "mine.txt").write_text("")
    done = run_ccctl("watch", *WORDS)
    assert (done.returncode, done.stdout) == (69, "")
    assert "state: holds 'mine.txt', which ccctl did not write" in done.stderr


def test_inside_mpirun_it_is_refused(run_ccctl, folder):
    done = run_ccctl("watch", *WORDS, PMI_RANK="0", PMI_SIZE="2")
    assert (done.returncode, done.stdout) == (2, "")
    assert "outside mpirun" in done.stderr


def unit(name):
    return (ROOT / "examples/systemd" / name).read_text()


def test_the_files_that_are_shipped_name_options_that_there_are(run_ccctl):
    page = (ROOT / "man/ccctl-watch.1").read_text()
    options = set(re.findall(r"--[a-z]+", run_ccctl("watch", "--help").stdout))
    for name in FILES:
        content = (ROOT / name).read_text()
        assert set(re.findall(r"(?<= )--[a-z]+", "\n".join(command_lines(content)))) <= options
        assert f"share/ccctl/{name}".replace("-", r"\-") in page
    assert "ccctl-watch.timer" in unit("ccctl-watch.service")


def command_lines(content):
    """Return the commands that a unit or a crontab runs."""
    joined = content.replace("\\\n", " ")
    return [line for line in joined.splitlines() if "ccctl watch " in line and not line.startswith("#")]


@pytest.mark.parametrize(("known", "drained"), [("gpu3.lab", "gpu3.lab"), ("gpu3", "gpu3")])
def test_the_nodes_that_a_watch_names_are_drained_and_its_status_is_kept(tmp_path, known, drained):
    told = """drift: host gpu3.lab sends 6 MB/s, 12 before (3 of 3 links); new in this run
drift: host gpu5 of the baseline is not there
drift: gpu1.lab → gpu2.lab: 6 MB/s, 12 before
recovered: host gpu4 receives (worse since yesterday)"""
    (tmp_path / "ccctl").write_text(f"#!/bin/sh\necho '{told}'\n[ \"$*\" = 'watch --state s' ] && exit 1\n")
    asked = f"printf '%s\\n' \"$@\" >> {tmp_path}/asked"
    (tmp_path / "scontrol").write_text(
        f'#!/bin/sh\n[ "$1" != show ] || {{ [ "$3" = {known} ]; exit; }}\n{asked}\n'
    )
    for name in ("ccctl", "scontrol"):
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    line = [ROOT / "examples/slurm/ccctl-watch-drain", "--state", "s"]
    done = subprocess.run(line, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, told + "\n", "")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[:3] == ["update", f"NodeName={drained}", "State=DRAIN"]
    assert asked[3:] == ["Reason=ccctl watch: sends 6 MB/s, 12 before (3 of 3 links); new in this run"]


def test_systemd_accepts_the_units(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for name in ("ccctl-watch.service", "ccctl-watch.timer"):
        (tmp_path / name).write_text(unit(name))
    paths = [tmp_path / "ccctl-watch.service", tmp_path / "ccctl-watch.timer"]
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True)
    # It may also tell of other units of this machine.
    assert [line for line in done.stderr.splitlines() if "ccctl-watch" in line] == []
