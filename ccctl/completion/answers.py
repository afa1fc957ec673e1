"""The answers to a shell that asks for completions: a line for each word, with a tab and its help.

No line means that a file may follow. A line with only a tab means that neither a known word nor a file may.
"""

from __future__ import annotations

import os
import re
from typing import Any

from typer._click.core import Command, Parameter

# typer.completion re-exports none of these. The answers of typer are not used, because they cannot complete
# words with a colon, which Bash cuts in two (`ccctl.completion.scripts`).
from typer._click.shell_completion import (
    CompletionItem,
    ShellComplete,
    _resolve_context,
    _resolve_incomplete,
    add_completion_class,
    split_arg_string,
)

from ccctl.completion.scripts import SHELLS, WORDS_VARIABLE
from ccctl.errors import CcctlError

__all__ = ["answer_shells"]

_FILES = re.compile("FILE|DIR|FOLDER|ARTIFACT|SCHEDULE|PROFILE|PROGRAM|TRACE|LOG")


class _Lines(ShellComplete):
    """The answer, the same for every shell; the scripts convert it to what their shell expects."""

    name = "lines"
    source_template = ""

    def source_vars(self) -> dict[str, Any]:
        return {}

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get(WORDS_VARIABLE, "")
        given = split_arg_string(line)[1:]
        if given and not line[-1].isspace():
            return given[:-1], given[-1]
        return given, ""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        try:
            found: list[CompletionItem] = super().get_completions(args, incomplete)
            if not found:
                asked = self._completed_parameter(args, incomplete)
                if not incomplete and isinstance(asked, Command):
                    found = super().get_completions(args, "--")
                if not found and not _is_file(asked):
                    return [CompletionItem("")]
        except CcctlError:
            # An earlier word is wrong; the command itself will report it.
            return []
        name, equals, _ = incomplete.partition("=")
        if equals and name.startswith("-"):
            return [CompletionItem(f"{name}={item.value}", help=item.help) for item in found]
        return found

    def _completed_parameter(self, args: list[str], incomplete: str) -> Command | Parameter:
        """Return the parameter whose value is being typed; the command if only an option may follow."""
        # A copy, because typer splits an incomplete --option=value and appends the option's name to this
        # list.
        words = list(args)
        context = _resolve_context(self.cli, self.ctx_args, self.prog_name, words)
        return _resolve_incomplete(context, words, incomplete)[0]

    def format_completion(self, item: CompletionItem) -> str:
        if not item.value:
            return "\t"
        help_text = " ".join((item.help or "").split())
        return f"{item.value}\t{help_text}" if help_text else str(item.value)


def _is_file(asked: Command | Parameter) -> bool:
    """Return whether the value may be a file or a command line."""
    names = getattr(asked, "metavar", None) or ""
    answers = getattr(asked, "_custom_shell_complete", None)
    return bool(_FILES.search(names)) or ("COMMAND" in names and answers is None)


def answer_shells() -> None:
    """Register the answers for all shells, so that a shell's request is answered from now on."""
    for shell in SHELLS:
        add_completion_class(_Lines, shell)
