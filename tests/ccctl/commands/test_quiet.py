"""Every command with -q: nothing but errors, so that cron mails only them."""

from dataclasses import replace

import numpy as np
import pytest

from ccctl.artifacts import codec

COMMANDS = {
    "synth": ["--network", "ring:4", "--alpha", "1us", "--bandwidth", "1GB/s", "--collective", "all_gather"],
    "synth to a file": ["-o", "made.json"],
    "verify": ["schedule.json"],
    "simulate": ["schedule.json"],
    "compile": ["schedule.json"],
    "detect": [],
    "profile": ["--from", "profile.json"],
    "profile against a baseline": ["--from", "profile.json", "--baseline", "profile.json"],
}
COMMANDS["synth to a file"] = COMMANDS["synth"] + COMMANDS["synth to a file"]


@pytest.fixture
def folder(schedule, samples, tmp_path):
    codec.write(str(tmp_path / "schedule.json"), "schedule", schedule)
    codec.write(str(tmp_path / "profile.json"), "profile", samples["profile"])
    codec.write(str(tmp_path / "program.json"), "program", samples["program"])
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_success_is_silent(run_ccctl, folder, name):
    done = run_ccctl(name.split()[0], *COMMANDS[name], "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.mpi
@pytest.mark.parametrize("name", ["bench", "run"])
def test_success_on_ranks_is_silent(run_ccctl, folder, name):
    np.save(folder / "x.npy", np.ones((2, 64), np.float32))
    given = {"bench": ["-b", "1K", "-e", "1K"], "run": ["--input", "x.npy"]}[name]
    done = run_ccctl(name, "program.json", *given, "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_is_wrong_is_said(run_ccctl, folder, schedule):
    codec.write(str(folder / "wrong.json"), "schedule", replace(schedule, chunk=schedule.chunk[::-1].copy()))
    done = run_ccctl("verify", "wrong.json", "-q")
    assert done.returncode == 1
    assert done.stdout
    assert "this schedule is wrong" in done.stderr
