"""The list of commands: what it says of each, and what it takes to print it."""

import subprocess
import sys

import pytest

from ccctl.commands import CLAIMS, COMMANDS
from ccctl.help_sections import claim
from ccctl.main import command_line


def test_the_list_names_each_command_once():
    assert [one.__name__ for one in COMMANDS] == [*CLAIMS]


@pytest.mark.parametrize("name", CLAIMS)
def test_the_list_says_of_each_command_what_its_help_says(name):
    assert CLAIMS[name] == claim(command_line().commands[name])


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["-h"], []])
def test_the_list_is_printed_without_importing_a_command(words):
    code = (
        "import sys\nfrom ccctl.main import command_line\n"
        "command_line().main(args=sys.argv[1:], prog_name='ccctl', standalone_mode=False)\n"
    )
    told = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*[n for n in sys.modules if n.startswith('ccctl.commands.')]))\n"
    )
    ran = subprocess.run([sys.executable, "-P", "-c", told + code, *words], capture_output=True, text=True)
    assert ran.stdout.splitlines()[-1].strip() == ""


def test_a_command_is_imported_alone():
    code = (
        "import sys\nfrom ccctl.main import command_line\ncommand_line().commands['schema']\n"
        "print(*[n for n in sys.modules if n.startswith('ccctl.commands.')])\n"
    )
    ran = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["ccctl.commands.schema"]
