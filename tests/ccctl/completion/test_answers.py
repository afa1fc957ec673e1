"""Completions of ccctl for a shell, and their use by bash, zsh and fish."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from limits import HANG_S
from typer._click.shell_completion import get_completion_class

from ccctl.commands import COMMANDS
from ccctl.completion.scripts import SHELLS
from ccctl.main import command_line

ROOT = Path(__file__).parents[3]
# Completion knows the names of synth's kinds of schedule, and loads nothing that they name.
HEAVY = ["numpy", "numba", "scipy", "pulp", "mpi4py", "rich", "msgspec", "psutil", "synth.network"]
ZSH = r"""
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PROMPT=; fpath=(COMPLETIONS $fpath); autoload -Uz compinit; compinit -u -D; echo RE""ADY'
zpty -r shell out $'*READY\r*'
zpty -w -n shell $'LINE\t'
zpty -r -m shell out '*EXPECTED*' && print -r -- "$out"
"""


def answers(line, monkeypatch):
    monkeypatch.setenv("_CCCTL_WORDS", line)
    command = command_line()
    told = get_completion_class("bash")(command, {}, "ccctl", "_CCCTL_COMPLETE").complete()
    return [answer.partition("\t")[0] for answer in told.splitlines()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        *((f"ccctl {command.__name__[:4]}", command.__name__) for command in COMMANDS),
        ("ccctl schema sche", "schedule"),
        ("ccctl show --li", "--lines"),
        ("ccctl lab sh", "shape"),
        ("ccctl lab run --tr", "--traffic"),
        ("ccctl synth --network to", "torus:"),
        ("ccctl synth --network=to", "--network=torus:"),
        ("ccctl synth --network dgx-a", "dgx-a100:"),
        ("ccctl synth --network torus:4x4 --collective all_r", "all_reduce"),
        ("ccctl synth --method tw", "two_step"),
        ("ccctl explain nccl.log --network dgx-h", "dgx-h100:"),
        ("ccctl synth ", "--network"),
        ("ccctl watch --baseline p.json ", "--schedule"),
        ("ccctl bench x.json --vs mpi,", "mpi,gloo"),
        ("ccctl training fusion res", "resnet-50"),
        ("ccctl training compare --mode ddp,de", "ddp,dear"),
        ("ccctl help lab st", "status"),
        ("ccctl help art", "artifacts"),
        ("ccctl completion z", "zsh"),
        ("ccctl examples ring", "ring_allreduce.py"),
        ("ccctl synth --network torus:", "torus:4x4"),
        ("ccctl bench --collective allr", "allreduce"),
        ("ccctl bench --average ", "3"),
        ("ccctl verify x.json ", "--json"),
    ],
)
def test_ccctl_answers_what_may_follow(monkeypatch, line, expected):
    assert expected in answers(line, monkeypatch)


@pytest.mark.parametrize(
    "line", ["ccctl bench ", "ccctl synth -o ", "ccctl watch --baseline ", "ccctl verify "]
)
def test_where_a_file_may_follow_the_shell_names_files(monkeypatch, line):
    assert answers(line, monkeypatch) == []


@pytest.mark.parametrize(
    "line",
    ["ccctl bench -n ", "ccctl bench --timeout=", "ccctl ver?", "ccctl bench --non", "ccctl help xyz"],
)
def test_where_no_file_may_follow_the_shell_names_none(monkeypatch, line):
    assert answers(line, monkeypatch) == [""]


def test_files_that_begin_like_a_network_are_not_hidden_by_it(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("ring of eight.json", "rings.py", "racks.txt", ".ring.json"):
        (tmp_path / name).touch()
    (tmp_path / "runs").mkdir()
    told = answers("ccctl synth --network r", monkeypatch)
    assert told == ["ring:", "ring_fc_switch:", "rail:", "rfs:", "racks.txt", "ring of eight.json", "runs/"]


def test_a_command_is_told_by_its_whole_first_sentence(monkeypatch):
    monkeypatch.setenv("_CCCTL_WORDS", "ccctl det")
    told = get_completion_class("zsh")(command_line(), {}, "ccctl", "_CCCTL_COMPLETE").complete()
    assert told.endswith("\tFind the GPUs, NICs, NVLinks and PCI tree of machines.")


def test_what_will_be_refused_is_no_reason_not_to_complete(monkeypatch):
    assert "mpi" in answers("ccctl bench -o none/report.json --timeout nan --vs ", monkeypatch)


def test_a_quote_that_is_not_closed_yet_completes(monkeypatch):
    assert answers("ccctl 'sche", monkeypatch) == ["schema"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_waits_for_nothing_heavy(shell):
    script = (
        "import sys; sys.argv = ['ccctl']\n"
        "from ccctl.__main__ import main\n"
        "try: main()\n"
        f"finally: print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    asked = {"_CCCTL_COMPLETE": f"complete_{shell}", "_CCCTL_WORDS": "ccctl synth --network mes"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, env={**os.environ, **asked}
    )
    assert (done.stdout.split(), done.stderr.strip()) == (["mesh:"], "[]")


@pytest.fixture
def environment(tmp_path, _warm_commands):
    """The environment of a shell that finds ccctl."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ccctl").write_text(_warm_commands.for_shells())
    (tmp_path / "bin" / "ccctl").chmod(0o755)
    (tmp_path / "profile.json").write_text("{}")
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "TERM": "dumb"}


def in_shell(shell, script, environment):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        [shell, "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        cwd=environment["HOME"],
        timeout=HANG_S,
    )
    return done.stdout


# A word of bash ends at : and =; only what follows them is replaced.
@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("ccctl sch", ["schema"]),
        ("ccctl synth --network tor", ["torus:"]),
        ("ccctl synth --network=tor", ["torus:"]),
        ("ccctl bench --vs mpi:", ["all"]),
        ("ccctl synth --network pro", []),
        ("ccctl synth --network torus:9", ["9"]),
        ("ccctl synth --network ri", ["ring:", "ring_fc_switch:", r"ring\ of.json"]),
    ],
)
def test_bash_completes(environment, line, replies):
    (Path(environment["HOME"]) / "ring of.json").touch()
    script = (
        f"source {ROOT / 'completions' / 'ccctl.bash'}; COMP_LINE='{line}'; COMP_POINT={len(line)}; "
        "_ccctl_completion ccctl; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    assert in_shell("bash", script, environment).strip().splitlines() == replies


@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("ccctl sch", ["schema"]),
        ("ccctl synth --network tor", ["torus:"]),
        ("ccctl synth --network=tor", ["--network=torus:"]),
        ("ccctl synth --network pro", ["profile.json"]),
    ],
)
def test_fish_completes(environment, line, replies):
    script = f"source {ROOT / 'completions' / 'ccctl.fish'}; complete -C '{line}'"
    told = in_shell("fish", script, environment).splitlines()
    assert [answer.partition("\t")[0] for answer in told] == replies


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ccctl sch", "ccctl schema"),
        ("ccctl synth --network tor", "--network torus:"),
        ("ccctl synth --network pro", "--network profile.json"),
    ],
)
def test_zsh_completes(environment, line, expected):
    folder = str(ROOT / "completions")
    script = ZSH.replace("COMPLETIONS", folder).replace("LINE", line).replace("EXPECTED", expected)
    assert expected in in_shell("zsh", script, environment)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_can_parse_its_script(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n"], input=SHELLS[shell], text=True, check=True)
