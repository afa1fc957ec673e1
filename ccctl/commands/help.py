"""`ccctl help`: the help of a command, as its ``--help`` prints it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ccctl import console

__all__ = ["EXAMPLES", "help"]

EXAMPLES = (
    ("ccctl help synth", "the same as ccctl synth --help"),
    ("ccctl help lab up", "of a command of several words"),
)


def _commands(ctx: Any, incomplete: str) -> list[str]:
    group = ctx.find_root().command
    for name in ctx.params.get("command") or ():
        group = getattr(group, "commands", {}).get(name)
    return [name for name in getattr(group, "commands", ()) if name.startswith(incomplete)]


def help(  # noqa: A001 - a command is a function of its name
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND…", autocompletion=_commands, help="Of which command."),
    ] = None,
) -> None:
    """Print the help of a command, or of all of ccctl.

    See ccctl manual for whole pages.
    """
    at = ctx.find_root()
    for name in command or ():
        group: Any = at.command
        if not hasattr(group, "resolve_command"):
            at.fail(f"{at.command_path} has no commands of its own, found {name!r}")
        _, found, _ = group.resolve_command(at, [name])
        at = type(at)(found, info_name=name, parent=at, **found.context_settings)
    console.document(at.get_help())
