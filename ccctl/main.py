"""The command line: one typer application, its commands, and the way from error to exit status."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer
from typer.completion import completion_init

from ccctl import __version__, console
from ccctl.commands import COMMANDS
from ccctl.errors import INTERNAL, INTERRUPTED, CcctlError, FoundProblem, exit_status

__all__ = ["app", "main"]

app = typer.Typer(
    name="ccctl",
    help="From bare wires to the collectives that they can carry best.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
)


def _version(wanted: bool) -> None:
    if wanted:
        console.data(f"ccctl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Detect, profile, synthesize, prove, run and watch the collectives of a GPU cluster."""


for _command in COMMANDS:
    app.command()(_command)
completion_init()


def main() -> None:
    """Run the command line and exit with the status that ``ccctl.errors`` gives."""
    sys.exit(_run())


def _run() -> int:
    try:
        app(standalone_mode=False)
    except FoundProblem as problem:
        if problem.message:
            console.error(problem.message, problem.hint)
        return exit_status(problem)
    except CcctlError as error:
        console.error(error.message, error.hint)
        return exit_status(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:
        traceback.print_exc()
        console.error("this is a bug in ccctl", "please report it with the lines above")
        return INTERNAL
    return 0
