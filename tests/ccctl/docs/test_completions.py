"""The completion scripts that packages install are those that the command prints."""

from pathlib import Path

from ccctl.docs import completions

ROOT = Path(__file__).parents[3]


def test_the_scripts_checked_in_are_those_of_this_command_line():
    checked_in = {path.name: path.read_text() for path in (ROOT / "completions").iterdir()}
    assert checked_in == completions.scripts(), "run `make docs`"
