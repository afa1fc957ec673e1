"""The manual is what the command line says, and every command has all that a command needs."""

import shutil
import subprocess
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from ccctl.artifacts import codec
from ccctl.commands import COMMANDS
from ccctl.docs import manpages
from ccctl.main import examples

ROOT = Path(__file__).parents[3]
NAMES = [command.__name__ for command in COMMANDS]
ORDER = (
    "detect profile synth compile verify simulate run bench accept explain order tune training "
    "watch show report lab doctor help examples schema completion"
)


def test_the_pages_checked_in_are_those_of_this_command_line():
    made = manpages.pages()
    checked_in = {path.name: path.read_text() for path in (ROOT / "man").iterdir()}
    for name in sorted(made.keys() | checked_in.keys()):
        assert made.get(name) == checked_in.get(name), f"{name}: run `make docs`"


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "man").iterdir()))
def test_pages_are_sound_roff(page):
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not installed")
    done = subprocess.run(
        ["mandoc", "-Tlint", "-W", "warning", ROOT / "man" / page], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_every_page_and_completion_is_installed():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    installed = settings["shared-data"]
    files = [
        f"{folder}/{path.name}" for folder in ("man", "completions") for path in (ROOT / folder).iterdir()
    ]
    assert sorted(installed) == sorted([*files, "examples"])
    for source, target in installed.items():
        if source.startswith("man/"):
            assert target == f"share/man/man{source[-1]}/{Path(source).name}"


def test_commands_stand_in_the_order_of_the_data():
    order = ORDER.split()
    assert sorted(NAMES, key=order.index) == NAMES


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_every_command_has_help_a_page_and_examples(command):
    page = (ROOT / "man" / f"ccctl-{command.__name__}.1").read_text()
    assert command.__doc__ and command.__doc__.splitlines()[0].endswith(".")
    assert examples(command)
    for line, what in examples(command):
        assert line.split()[0] == "ccctl" and f"ccctl {command.__name__}" in line
        assert what and f"# {what}".replace("-", r"\-") in page


def test_the_formats_page_names_every_field():
    page = (ROOT / "man" / "ccctl-artifacts.5").read_text()
    for kind in codec.KINDS:
        assert f".SH {kind.upper()} (VERSION 1)" in page
        for field in fields(codec.body_type(kind)):
            assert rf"\fB{field.name}\fR" in page
