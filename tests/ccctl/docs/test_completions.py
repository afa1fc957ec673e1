"""The completions: checked in as made, understood by their shells, and answered by ccctl."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ccctl.commands import COMMANDS
from ccctl.docs import completions

ROOT = Path(__file__).parents[3]


def test_the_scripts_checked_in_are_those_of_this_command_line():
    checked_in = {path.name: path.read_text() for path in (ROOT / "completions").iterdir()}
    assert checked_in == completions.scripts(), "run `make docs`"


@pytest.mark.parametrize(
    ("shell", "name"), [("bash", "ccctl.bash"), ("zsh", "_ccctl"), ("fish", "ccctl.fish")]
)
def test_the_shell_can_parse_its_script(shell, name):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", ROOT / "completions" / name], check=True)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        *((f"ccctl {command.__name__[:2]}", command.__name__) for command in COMMANDS),
        ("ccctl schema sche", "schedule"),
        ("ccctl show --li", "--lines"),
        ("ccctl lab sh", "shape"),
        ("ccctl lab run --tr", "--traffic"),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_ccctl_answers_what_may_follow(run_ccctl, shell, line, expected):
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))} if shell == "bash" else {}
    typer = {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = run_ccctl(_CCCTL_COMPLETE=f"complete_{shell}", **typer, **words)
    assert expected in done.stdout, done.stderr


def test_bash_completes_a_command(tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    script = (
        f"source {ROOT / 'completions' / 'ccctl.bash'}; "
        "COMP_WORDS=(ccctl sch); COMP_CWORD=1; _ccctl_completion ccctl; echo ${COMPREPLY[@]}"
    )
    (tmp_path / "ccctl").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m ccctl "$@"\n')
    (tmp_path / "ccctl").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    assert done.stdout.split() == ["schema"], done.stderr
