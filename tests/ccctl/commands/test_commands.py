"""The list of commands: what it says of each, and what it takes to print it."""

import subprocess
import sys
from dataclasses import MISSING, fields, is_dataclass
from inspect import signature
from typing import get_type_hints

import pytest

from ccctl.commands import CLAIMS, COMMANDS
from ccctl.help_sections import claim
from ccctl.main import command_line, verbs


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


def with_options():
    """(command as typer has it, the object of its options) of every command that has one."""
    for function in COMMANDS:
        command = command_line().commands[function.__name__]
        found = [(command, function)] if not verbs(function) else []
        found += [(command.commands[verb.__name__.strip("_")], verb) for verb in verbs(function)]
        for one, called in found:
            if kind := next(filter(is_dataclass, get_type_hints(called).values()), None):
                yield pytest.param(one, kind, id=kind.__name__)


@pytest.mark.parametrize(("command", "kind"), [*with_options()])
def test_python_and_the_command_line_have_the_same_options_and_defaults(command, kind):
    given = {one.name: one for one in command.params}
    assert [*signature(kind).parameters] == [*given]
    for one in fields(kind):
        assert given[one.name].required == (one.default is MISSING)
        if one.default is not MISSING:
            assert given[one.name].default == one.default
