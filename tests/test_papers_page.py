"""docs/explanation/papers.md: every row has its verdict, its files exist, its commands are understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from ccctl.main import command_line

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "papers.md"
VERDICTS = ("Faithful", "Exceeded", "Deviates", "Missing")


def rows() -> list[list[str]]:
    """The cells of each row; a ``|`` within a cell is escaped."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for row in cells if row[0] != "paper"]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def commands() -> list[str]:
    return sorted({command for row in rows() for command in quoted(row[2])})


def test_each_row_says_where_how_and_by_which_command() -> None:
    assert len(rows()) > 90
    for row in rows():
        assert len(row) == 4, row
        assert quoted(row[1]), row
        assert quoted(row[2]), row
        assert row[3].startswith(VERDICTS), row


def test_every_file_exists() -> None:
    named = {path for row in rows() for path in quoted(row[1])}
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


@pytest.mark.parametrize("line", [line for line in commands() if line.startswith("ccctl ")])
def test_ccctl_understands_it(line: str) -> None:
    words = shlex.split(line)
    command, words = command_line(), words[1:]
    context = typer.Context(command, info_name="ccctl")
    while hasattr(command, "commands"):
        command = command.commands[words[0]]
        context, words = typer.Context(command, parent=context, info_name=words[0]), words[1:]
    command.parse_args(context, words)


@pytest.mark.parametrize("line", [line for line in commands() if not line.startswith("ccctl ")])
def test_the_benchmark_has_what_is_asked_of_it(line: str) -> None:
    words = [word for word in shlex.split(line) if word != "-P"]
    assert words[0] == "python"
    text = (ROOT / words[1]).read_text()
    assert words[1].startswith("benchmarks/")
    for word in words[2:]:
        assert word.strip() in text or re.fullmatch(r"[\d.]+[KMG]?", word), word
