"""`ccctl help`: the manual page of a command, wherever ccctl was installed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ccctl import console

__all__ = ["EXAMPLES", "help"]

EXAMPLES = (
    ("ccctl help", "list the commands, as ccctl -h does"),
    ("ccctl help synth", "the page of a command"),
    ("ccctl help ccctl", "the page of ccctl itself: exit statuses, environment, files"),
    ("ccctl help artifacts", "what every file holds"),
)
_PAGES = {"ccctl": "ccctl.1", "artifacts": "ccctl-artifacts.5"}


def _names(ctx: Any, incomplete: str) -> list[str]:
    group, typed = ctx.find_root().command, ctx.params.get("command") or ()
    for name in typed:
        group = getattr(group, "commands", {}).get(name)
    known = [*getattr(group, "commands", ()), *(() if typed else _PAGES)]
    return [name for name in known if name.startswith(incomplete)]


def help(  # noqa: A001 - the command has this name
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", autocompletion=_names, help="A command, or ccctl, or artifacts."),
    ] = None,
) -> None:
    """Show the manual page of a command, or list the commands.

    On a terminal man or mandoc shows it, elsewhere it is plain text. The pages are installed under share/man
    beside bin/. If man does not look there, as after uv tool install, add this line to ~/.bashrc or ~/.zshrc:

    \b
    export MANPATH="$(dirname "$(realpath "$(command -v ccctl)")")/../share/man:"
    """
    from ccctl.render import manual_page
    from ccctl.shipped import manual_page as page_file

    if not command:
        console.document(ctx.find_root().get_help())
        return
    if len(command) > 1 or command[0] not in _PAGES:
        _refuse_unknown(ctx.find_root(), command)
    page = page_file(_PAGES.get(command[0], f"ccctl-{command[0]}.1"))
    if not console.read_in_pager(page):
        for line in manual_page.lines(page.read_text(encoding="utf-8")):
            console.data(line)


def _refuse_unknown(at: Any, names: list[str]) -> None:
    """Raise a usage error unless the words, in this order, name a command."""
    for name in names:
        group: Any = at.command
        if not hasattr(group, "resolve_command"):
            at.fail(f"{at.command_path} has no commands of its own, found {name!r}")
        _, found, _ = group.resolve_command(at, [name])
        at = type(at)(found, info_name=name, parent=at)
