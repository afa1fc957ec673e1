"""The command line: one typer application, its commands, and the way from error to exit status."""

from __future__ import annotations

import math
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache, wraps
from inspect import Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from ccctl import __version__, console
from ccctl.commands import CLAIMS, SECTIONS, function_of
from ccctl.completion import answer_shells
from ccctl.errors import (
    INTERNAL,
    INTERRUPTED,
    CannotWriteError,
    CcctlError,
    FoundProblem,
    UnavailableError,
    UsageError,
    exit_status,
    message_of,
)
from ccctl.help_sections import claim, sections
from ccctl.usage_errors import explained
from exec.launcher import hear_interrupts, told_to_end
from probes.base import LARGEST, unsteered

__all__ = ["app", "command_line", "examples", "main", "verbs"]

_LOADING = frozenset(
    (
        *("profile", "synth", "compile", "verify", "simulate", "run", "bench", "explain"),
        *("order", "tune", "training", "watch", "show", "report"),
    )
)


class _WithClaim:
    """A command listed with its whole first paragraph, which click would cut."""

    def get_short_help_str(self, limit: int = 0) -> str:
        return claim(self)


class _Group(_WithClaim, typer.core.TyperGroup):
    """A command with subcommands."""


class _InOrder(_Group):
    """A group that lists its commands in the order of the data path."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*CLAIMS]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, claims in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([*claims.items()])


class _Command(_WithClaim, typer.core.TyperCommand):
    """A command that lists options in sections; it refuses nan, inf, and integers above 63 bits."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title, rows in sections(self, ctx).items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        left = super().parse_args(ctx, args)
        for parameter in self.params:
            value = ctx.params.get(parameter.name)
            name = parameter.opts[-1]
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{name}: expected a finite number, found {value}")
            if isinstance(value, int) and abs(value) > LARGEST:
                raise UsageError(f"{name}: expected at most {LARGEST}, found a number of more digits")
        return left


# Each command gets these settings itself, so that its help is the same however it is reached.
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
app = typer.Typer(
    name="ccctl",
    cls=_InOrder,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    context_settings=_SETTINGS,
)


def _version(wanted: bool) -> None:
    if wanted:
        console.data(f"ccctl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("-V", "--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """From bare wires to the collectives that they can carry best.

    Detect, profile, synthesize, prove, run and watch the collectives of a GPU cluster.
    """


def _unfolded(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command for typer, with a parameter for each field of its options object, if any."""
    kind: Any = next(filter(is_dataclass, get_type_hints(command).values()), None)
    if kind is None:
        return command

    @wraps(command)
    def unfolded(**given: Any) -> None:
        command(kind(**given))

    types = get_type_hints(kind, include_extras=True)
    fields = signature(kind).parameters.values()
    parameters = [field.replace(annotation=types[field.name]) for field in fields]
    vars(unfolded)["__signature__"] = Signature(parameters)
    unfolded.__annotations__ = types
    return unfolded


def examples(command: Callable[..., None]) -> tuple[tuple[str, str], ...]:
    """Return the examples of a command, as (command line, explanation)."""
    found: tuple[tuple[str, str], ...] = getattr(sys.modules[command.__module__], "EXAMPLES", ())
    return found


def _epilog(shown: Iterable[tuple[str, str]]) -> str | None:
    # \b keeps the line breaks; without it the help formatter would join the lines into one paragraph.
    lines = [f"  {line}" for line, _ in shown]
    return "\n".join(["\b", "Examples:", *lines]) if lines else None


def verbs(command: Callable[..., None]) -> tuple[Callable[..., None], ...]:
    """Return the subcommands of a command, as ``up`` and ``run`` of ``lab``; most have none."""
    found: tuple[Callable[..., None], ...] = getattr(sys.modules[command.__module__], "VERBS", ())
    return found


def _group(command: Callable[..., None]) -> typer.Typer:
    group = typer.Typer(cls=_Group, no_args_is_help=True, rich_markup_mode=None)
    group.callback()(command)
    for verb in verbs(command):
        # In `lab run mpirun -n 4`, the words after mpirun are its options, not ours.
        interspersed = "command" not in signature(verb).parameters
        name = verb.__name__.removesuffix("_")
        shown = [
            example for example in examples(command) if example[0].split()[1:3] == [command.__name__, name]
        ]
        group.command(
            name,
            cls=_Command,
            epilog=_epilog(shown),
            context_settings={"allow_interspersed_args": interspersed},
        )(_unfolded(verb))
    return group


@cache
def _built(name: str) -> Any:
    """Return a command with its options; cached, because reading options from a function is slow."""
    function = function_of(name)
    own = typer.Typer(rich_markup_mode=None, add_completion=False)
    if verbs(function):
        own.add_typer(_group(function), name=name, epilog=_epilog(examples(function)))
        return typer.main.get_group(own).commands[name]
    settings = dict(_SETTINGS)
    own.command(cls=_Command, epilog=_epilog(examples(function)), context_settings=settings)(
        _unfolded(function)
    )
    return typer.main.get_command(own)


class _Commands(Mapping[str, Any]):
    """The commands by name, each imported and built at its first use."""

    def __getitem__(self, name: str) -> Any:
        if name not in CLAIMS:
            raise KeyError(name)
        return _built(name)

    def __iter__(self) -> Iterator[str]:
        return iter(CLAIMS)

    def __len__(self) -> int:
        return len(CLAIMS)


answer_shells()


@cache
def command_line() -> typer.core.TyperGroup:
    """Return the group of all commands."""
    found = typer.main.get_group(app)
    found.commands = _Commands()  # type: ignore[assignment] # nothing is added to it
    return found


def main() -> None:
    """Run the command line and exit with a status of ``ccctl.errors``."""
    _prepare_streams()
    _prepare_home()
    console.hear_libraries()
    hear_interrupts()
    # These commands load libraries for a while. Most others answer at once; the rest hand the terminal to a
    # program.
    if (command := next(iter(sys.argv[1:]), "")) in _LOADING:
        console.waiting(f"{command}: loading libraries")
    status = _run()
    sys.exit(_flush(status))


def _run() -> int:
    try:
        status = command_line().main(prog_name="ccctl", standalone_mode=False)
        if status == INTERRUPTED:
            return _interrupted()
        return status if isinstance(status, int) else 0
    except CcctlError as error:
        # An interrupted import looks like a missing library.
        return _ended() if isinstance(error, UnavailableError) and told_to_end() else _expected(error)
    except typer.TyperException as error:
        return _usage(error)
    except SystemExit as leaving:
        # typer would exit with 1 on a closed pipe, but here 1 means that a problem was found.
        closed_pipe = isinstance(leaving.__context__, BrokenPipeError)
        return leaving.code if isinstance(leaving.code, int) and not closed_pipe else 0
    except KeyboardInterrupt:
        return _interrupted()
    except typer.Abort as leaving:
        # typer would treat the end of any file as a user's abort.
        return _bug() if isinstance(leaving.__cause__, EOFError) else _interrupted()
    except BrokenPipeError:
        return 0
    except MemoryError:
        return _expected(UnavailableError("there is not enough memory on this machine for that"))
    except Exception:
        return _ended() if told_to_end() else _bug()


def _interrupted() -> int:
    console.note("ccctl: interrupted")
    return INTERRUPTED


def _ended() -> int:
    status = told_to_end()
    return _interrupted() if status == INTERRUPTED else status


def _bug() -> int:
    sys.stderr.write(unsteered(traceback.format_exc()))
    console.error("this is a bug in ccctl", "please report it with the lines above and the command")
    return INTERNAL


def _expected(error: CcctlError) -> int:
    if error.message.strip():
        console.error(message_of(error), error.hint)
    elif not isinstance(error, FoundProblem):  # its output already says it
        # No command may fail in silence, even if an error has no message.
        console.error(
            f"the command gave up without a reason ({type(error).__name__})",
            "this is a bug in ccctl: please report it with the command",
        )
    return exit_status(error)


def _usage(error: typer.TyperException) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(error.format_message() + "\n")
    else:
        console.error(*explained(error, command_line()))
    return error.exit_code


def _prepare_streams() -> None:
    """Open closed standard streams on /dev/null, and replace characters that cannot be encoded."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - lives as long as we
        getattr(sys, name).reconfigure(errors="replace")


def _prepare_home() -> None:
    """Set HOME if it is unset, as in many systemd units: Open MPI's mpirun requires it."""
    if "HOME" not in os.environ:
        with suppress(RuntimeError):  # a user without a home
            os.environ["HOME"] = str(Path.home())


def _flush(status: int) -> int:
    """Flush the output, so that a closed pipe or a full disk fails here and not at shutdown."""
    try:
        console.flush()
    except BrokenPipeError:
        _discard_stdout()
    except CannotWriteError as error:
        _discard_stdout()
        return _expected(error)
    return status


def _discard_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
