"""What ccctl answers a shell that completes: a line for each word that may follow, a tab, and its help."""

from __future__ import annotations

import os
from typing import Any

# typer.completion re-exports none of these, and its own answers know nothing of words with a colon.
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


class _Lines(ShellComplete):
    """The answer to every shell alike; `ccctl.completion.scripts` makes of it what each shell wants."""

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
            if not found and not incomplete and self._takes_options_alone(args):
                found = super().get_completions(args, "--")
        except CcctlError:
            # What was typed before is refused, and the command will say so.
            return []
        name, equals, _ = incomplete.partition("=")
        if equals and name.startswith("-"):
            return [CompletionItem(f"{name}={item.value}", help=item.help) for item in found]
        return found

    def _takes_options_alone(self, args: list[str]) -> bool:
        """Whether nothing but an option may follow: neither a value of the last one nor an argument."""
        context = _resolve_context(self.cli, self.ctx_args, self.prog_name, args)
        asked, _ = _resolve_incomplete(context, args, "")
        arguments = [one for one in context.command.params if one.param_type_name == "argument"]
        return asked is context.command and not arguments

    def format_completion(self, item: CompletionItem) -> str:
        told = " ".join((item.help or "").split())
        return f"{item.value}\t{told}" if told else str(item.value)


def answer_shells() -> None:
    """From now on, a shell that asks is answered."""
    for shell in SHELLS:
        add_completion_class(_Lines, shell)
