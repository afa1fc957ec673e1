"""Calls of ccctl in text for shells, and whether its command line understands them, without running one."""

from __future__ import annotations

import re
import shlex
from typing import Any

import typer

from ccctl.main import command_line

__all__ = ["calls", "parse"]

# Words after which a shell expects a command; the last is that of `ccctl lab run -- COMMAND`.
_BEFORE_COMMANDS = {"do", "if", "then", "until", "while", "!", "--"}


def calls(text: str) -> list[list[str]]:
    """Return the arguments of each call of ccctl in commands for a shell."""
    lexer = shlex.shlex(text.replace("\\\n", " ").replace("\n", " ; "), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words = [";", *lexer, ";"]
    ends = [number for number, word in enumerate(words) if re.fullmatch("[();<>|&]+", word)]
    return [
        words[number + 1 : next(end for end in ends if end > number)]
        for number, word in enumerate(words)
        if word == "ccctl" and (number - 1 in ends or words[number - 1] in _BEFORE_COMMANDS)
    ]


def parse(arguments: list[str]) -> None:
    """Read arguments as ccctl does before it runs a command; refusals are raised."""
    command: Any = command_line()
    rest, context = arguments, typer.Context(command, info_name="ccctl")
    while hasattr(command, "commands"):
        command = command.commands[rest[0]]
        context, rest = typer.Context(command, parent=context, info_name=rest[0]), rest[1:]
    command.parse_args(context, [*rest])
