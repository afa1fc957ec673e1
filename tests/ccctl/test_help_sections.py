"""Options in sections, as help and manual show them."""

import pytest
import typer

from ccctl.help_sections import sections
from ccctl.main import command_line

COMMANDS = sorted(name for name, one in command_line().commands.items() if not hasattr(one, "commands"))


def of(name):
    root = command_line()
    top = typer.Context(root, info_name="ccctl", **root.context_settings)
    command = root.commands[name]
    return command, sections(command, typer.Context(command, info_name=name, parent=top))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_parameter_stands_in_one_section_and_help_in_the_last(name):
    command, found = of(name)
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    names = [record[0] for rows in found.values() for record in rows]
    assert len(names) == len(set(names)) == len(shown) + 1
    assert list(found.values())[-1][-1][0] == "-h, --help"
    assert all(found.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_ranges_are_left_to_the_message_of_an_error(name):
    for rows in of(name)[1].values():
        for _, meaning in rows:
            assert "<=x" not in meaning and "x>=" not in meaning and "x<=" not in meaning, meaning
            assert meaning.count("[") == meaning.count("]"), meaning


def test_what_is_said_beside_a_range_stays():
    rows = dict(row for rows in of("synth")[1].values() for row in rows)
    assert rows["--jobs N"].endswith("[one per core]")
    assert rows["--seed N"].endswith("[default: 0]")
    assert rows["--network NETWORK|FILE"].endswith("[required]")


def test_long_helps_have_sections_and_short_ones_a_single_list():
    assert list(of("synth")[1]) == ["Network", "Collective", "Search", "Ranks", "General"]
    assert list(of("show")[1]) == ["Arguments", "Options"]
