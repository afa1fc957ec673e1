"""`ccctl manual`: the manual page of a command, wherever ccctl was installed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ccctl import console
from ccctl.errors import UsageError

__all__ = ["EXAMPLES", "manual"]

EXAMPLES = (
    ("ccctl manual", "the page of ccctl itself: commands, exit statuses, environment"),
    ("ccctl manual synth", "the page of a command"),
    ("ccctl manual artifacts", "what every file holds"),
)
_ARTIFACTS = "artifacts"


def _names(ctx: Any) -> list[str]:
    return [*ctx.find_root().command.list_commands(ctx), _ARTIFACTS]


def _pages(ctx: Any, incomplete: str) -> list[str]:
    return [name for name in _names(ctx) if name.startswith(incomplete)]


def manual(
    ctx: typer.Context,
    page: Annotated[
        str | None,
        typer.Argument(metavar="COMMAND", autocompletion=_pages, help="A command, or artifacts."),
    ] = None,
) -> None:
    """Show the manual page of a command.

    On a terminal by man or mandoc, else as plain text. The pages are installed under share/man beside bin/.
    Where man does not look there, as after uv tool install, man ccctl-synth finds them with this line in
    ~/.bashrc or ~/.zshrc:

    \b
    export MANPATH="$(dirname "$(realpath "$(command -v ccctl)")")/../share/man:"
    """
    from ccctl.render import manual_page
    from ccctl.shipped import manual_page as page_file
    from probes.wording import meant

    name = "ccctl.1" if page is None else f"ccctl-{page}.{5 if page == _ARTIFACTS else 1}"
    found = page_file(name) if page is None or page in _names(ctx) else None
    if found is None:
        raise UsageError(
            f"COMMAND: there is no manual page of {page!r}",
            hint=meant(page or "", _names(ctx)) or f"pages: {', '.join(_names(ctx))}",
        )
    if not console.read_in_pager(found):
        for line in manual_page.lines(found.read_text(encoding="utf-8")):
            console.data(line)
