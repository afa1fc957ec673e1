import json
from dataclasses import replace

import pytest

from ccctl import artifacts
from probes.columns import ints
from synth.compiler.replay import judge


@pytest.fixture
def schedule_file(schedule, tmp_path):
    """The sample schedule, in the folder where ccctl runs."""
    artifacts.write(str(tmp_path / "schedule.json"), "schedule", schedule)
    return tmp_path / "schedule.json"


def test_a_schedule_becomes_a_proven_program(run_ccctl, schedule_file, tmp_path):
    done = run_ccctl("compile", "schedule.json", "-o", "program.json", "--name", "mine")
    assert done.returncode == 0, done.stderr
    found = artifacts.read(str(tmp_path / "program.json"), "program")
    assert found.body.name == "mine"
    assert judge(found.body) == []
    document = json.loads((tmp_path / "program.json").read_bytes())
    assert document["inputs"] == {"schedule": artifacts.read(str(schedule_file)).sha256}


def test_the_summary_has_the_keys_of_the_design(run_ccctl, schedule_file, tmp_path):
    done = run_ccctl("compile", "schedule.json", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary.keys() >= {"ranks", "instructions", "threadblocks_max", "channels", "compile_s"}
    # Four ranks send their chunk, pass on two, receive a last one and copy their own.
    assert (summary["ranks"], summary["instructions"], summary["channels"]) == (4, 20, 1)
    assert list(tmp_path.iterdir()) == [schedule_file]


def test_it_pipes(run_ccctl, schedule_file):
    compiled = run_ccctl("compile", "-", "-o", "-", stdin=schedule_file.read_text())
    assert compiled.returncode == 0, compiled.stderr
    assert artifacts.decode(compiled.stdout.encode(), "stdout", "program").kind == "program"


def test_a_schedule_that_is_not_proven_is_refused(run_ccctl, schedule, tmp_path):
    wrong = replace(schedule, chunk=ints(schedule.chunk[::-1]))
    artifacts.write(str(tmp_path / "wrong.json"), "schedule", wrong)
    done = run_ccctl("compile", "wrong.json", "-o", "program.json")
    assert done.returncode == 65
    assert "ccctl: wrong.json: send " in done.stderr
    assert not (tmp_path / "program.json").exists()


def test_what_is_no_schedule_is_refused(run_ccctl, samples, tmp_path):
    artifacts.write(str(tmp_path / "profile.json"), "profile", samples["profile"])
    assert run_ccctl("compile", "profile.json").returncode == 65
    assert run_ccctl("compile", "nothing.json").returncode == 66
