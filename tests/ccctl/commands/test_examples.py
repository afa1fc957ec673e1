"""`ccctl examples`: lists what is in the folder, and copies it."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
FILES = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*") if path.suffix != ".pyc"} - {
    path.name for path in EXAMPLES.iterdir() if path.is_dir()
}


def test_every_example_is_listed_with_what_it_is(run_ccctl):
    done = run_ccctl("examples")
    rows = [line.split(maxsplit=1) for line in done.stdout.splitlines()[1:]]
    assert {row[0] for row in rows} == FILES
    assert all(len(row) == 2 for row in rows)


@pytest.mark.parametrize("name", ["ring_allreduce.py", "ring_allreduce"])
def test_one_is_copied_and_nothing_replaced(run_ccctl, tmp_path, name):
    done = run_ccctl("examples", name)
    assert (done.returncode, done.stderr) == (0, "ring_allreduce.py\n")
    assert (tmp_path / "ring_allreduce.py").read_text() == (EXAMPLES / "ring_allreduce.py").read_text()
    (tmp_path / "ring_allreduce.py").write_text("mine")
    done = run_ccctl("examples", name)
    assert (done.returncode, (tmp_path / "ring_allreduce.py").read_text()) == (73, "mine")
    assert "it is there already" in done.stderr


def test_a_folder_is_copied_and_programs_stay_programs(run_ccctl, tmp_path):
    assert run_ccctl("examples", "slurm", "-o", "kit").returncode == 0
    assert os.access(tmp_path / "kit" / "ccctl-watch-drain", os.X_OK)


def test_one_is_printed(run_ccctl, tmp_path):
    done = run_ccctl("examples", "lab4.toml", "-o", "-")
    assert done.stdout == (EXAMPLES / "lab4.toml").read_text()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["rign_allreduce.py"], 2, "hint: did you mean 'ring_allreduce.py'?"),
        (["systmd"], 2, "hint: did you mean 'systemd'?"),
        (["ring"], 2, "hint: did you mean 'ring_allreduce.py'?"),
        (["."], 2, "there is no example '.'"),
        (["lab4.toml", "-o", "none/deep"], 73, "none/deep/lab4.toml: No such file or directory"),
    ],
)
def test_what_cannot_be_is_refused(run_ccctl, words, status, said):
    done = run_ccctl("examples", *words)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    "name", ["systemd/ccctl-watch.service", "cron/ccctl-watch", "slurm/ccctl-watch-drain"]
)
def test_what_a_timer_runs_names_this_ccctl_by_its_whole_path(tmp_path, name):
    """As a virtual environment has it, or a link of uv: the PATH of a timer has neither."""
    folder = tmp_path / "with space" / "bin"
    folder.mkdir(parents=True)
    (folder / "ccctl").write_text(
        f"#!{sys.executable} -P\nimport sys\nfrom ccctl.__main__ import main\nsys.exit(main())\n"
    )
    (folder / "ccctl").chmod(0o755)
    done = subprocess.run(
        [folder / "ccctl", "examples", name, "-o", "kit"],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    given = (EXAMPLES / name).read_text().splitlines()
    copied = (tmp_path / "kit" / Path(name).name).read_text().splitlines()
    [(old, new)] = [both for both in zip(given, copied, strict=True) if both[0] != both[1]]
    assert f"'{folder}/ccctl' watch " in new and "/usr/bin/env" not in new
    assert "ccctl watch " in old
    command = new[new.index("'") : new.index(" watch ")]
    ran = subprocess.run(["/bin/sh", "-c", f"{command} --version"], env={}, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout.split()[0]) == (0, "ccctl"), ran.stderr


def test_started_as_a_module_it_names_the_command_beside_python_or_itself(run_ccctl):
    line = run_ccctl("examples", "cron/ccctl-watch", "-o", "-").stdout.splitlines()[-1]
    words = shlex.split(line.partition(" ccctl ")[2])
    command = words[: words.index("watch")]
    assert Path(command[0]).is_absolute()
    done = subprocess.run([*command, "--version"], env={}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_file_in_place_of_the_folder_is_named(run_ccctl, tmp_path):
    (tmp_path / "taken").write_text("mine")
    done = run_ccctl("examples", "lab4.toml", "-o", "taken")
    assert (done.returncode, done.stdout) == (73, "")
    assert "taken: it is there already" in done.stderr
