"""The manual: a page for each command, generated from the command line, and one for the artifacts.

``python -m ccctl.docs.manpages man`` writes every page into the folder ``man``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from ccctl.commands import COMMANDS
from ccctl.docs import roff
from ccctl.docs.artifacts_page import artifacts_page
from ccctl.docs.page import Block, Code, Entries, Mentions, Page, Section, Subsection, Text, Usage
from ccctl.help_sections import claim, sections
from ccctl.main import command_line, examples

__all__ = ["pages", "reference"]

_ROOT = Path(__file__).parents[2]
_EXIT_STATUS = (
    ("0", "Done."),
    ("1", "It ran and found a problem: drift, a wrong result, a regression, a failed proof, a lost rank."),
    ("2", "Usage: the command line is wrong or contradicts itself."),
    ("65", "An artifact or input file is wrong; every problem is named with its path."),
    ("66", "An input file is not there."),
    ("69", "This machine has no GPU, MPI, solver, memory or permission for what was asked."),
    ("70", "A bug in ccctl: please report it."),
    ("73", "An output cannot be written; what was there is unchanged."),
    ("75", "Another run holds the lock, or an acceptance could not decide: try later."),
    (
        "78",
        "A configuration is wrong, or a file here has the name of a package of ccctl (synth, exec, probes) "
        "and would be imported in its place.",
    ),
    ("124", "The time of --timeout ran out."),
    ("130", "Interrupted."),
)
_ENVIRONMENT = (
    ("NO_COLOR", "Set to anything: no colour on a terminal."),
    ("TERM", "With the value dumb: neither colour nor progress bars."),
    ("XDG_CACHE_HOME", "Compiled loops are kept in ccctl/numba below it; ~/.cache where it is not set."),
    (
        "XDG_STATE_HOME",
        "The locks of profile are kept in ccctl/locks below it; ~/.local/state where it is not set.",
    ),
    ("NUMBA_CACHE_DIR", "Compiled loops are kept in ccctl below it instead."),
    ("CCCTL_HOSTS", "Hosts where --hosts is not given; set for what runs inside a lab."),
    ("CCCTL_LAB", "Which lab, where --lab is not given."),
    ("SOURCE_DATE_EPOCH", "Seconds since 1970 to record as the moment in which an artifact was created."),
    ("_CCCTL_COMPLETE, _CCCTL_WORDS", "Used by the shell completions."),
)
_FILES = (
    ("*.json, *.json.gz", "Artifacts: see ccctl-artifacts(5)."),
    ("/run/ccctl/labs", "The labs that are up."),
    (
        "~/.cache/ccctl/artifacts",
        "Profiles and schedules that bench and training jobs made; may be removed at any time, and go after "
        "30 days. Used as compiled loops are.",
    ),
    (
        "~/.cache/ccctl/numba",
        "Compiled loops beyond those that came with ccctl, for all installations of a user; may be removed "
        "at any time. Used only where no other user could change them.",
    ),
    (
        "synth/kernels/loops, among the packages",
        "Loops that came compiled, for CPUs from x86-64-v3 on or any of aarch64; may be read-only. "
        "python -m ccctl.compile_loops makes them anew, as for another version of Python or numba.",
    ),
)


def reference() -> list[Page]:
    """Return the pages of ccctl, of the artifacts, and of each command."""
    root: Any = command_line()
    top = typer.Context(root, info_name="ccctl", **root.context_settings)
    written = [_root_page(root, top), artifacts_page()]
    for function in COMMANDS:
        name = function.__name__
        context = typer.Context(root.commands[name], info_name=name, parent=top)
        shipped = _example_files(getattr(sys.modules[function.__module__], "FILES", ()))
        written.append(_command_page(root.commands[name], context, examples(function), shipped))
    return written


def pages() -> dict[str, str]:
    """Return every page of the manual as {file name: content}."""
    return {f"{page.name}.{page.number}": roff.written(page) for page in reference()}


def _root_page(root: Any, context: typer.Context) -> Page:
    commands = [(f"ccctl-{name}(1)", claim(root.commands[name])) for name in root.list_commands(context)]
    shown = [
        line
        for function in COMMANDS
        for command, what in examples(function)[:1]
        for line in (f"# {what}", command)
    ]
    return Page(
        "ccctl",
        1,
        "from bare wires to the collectives that they can carry best",
        (
            Section("SYNOPSIS", (Usage((_usage(root, context),)),)),
            Section("DESCRIPTION", (Text(root.help),)),
            Section("COMMANDS", (Entries(tuple(commands)),)),
            *_parameters(root, context),
            Section("EXIT STATUS", (Entries(_EXIT_STATUS),)),
            Section("ENVIRONMENT", (Entries(_ENVIRONMENT),)),
            Section("FILES", (Entries(_FILES),)),
            Section("EXAMPLES", (Code(tuple(shown)),)),
            Section("SEE ALSO", (Mentions((("ccctl-artifacts", 5),)),)),
        ),
    )


def _command_page(
    command: Any, context: typer.Context, shown: tuple[tuple[str, str], ...], shipped: tuple[Subsection, ...]
) -> Page:
    named = claim(command).rstrip(".")
    usages = tuple(_usage(*one) for one in _contexts(command, context))
    return Page(
        f"ccctl-{context.info_name}",
        1,
        named[0].lower() + named[1:],
        (
            Section("SYNOPSIS", (Usage(usages),)),
            Section("DESCRIPTION", _description(command.help)),
            *_parameters(command, context),
            Section("COMMANDS", _verbs(command, context)),
            Section("EXIT STATUS", (Mentions((("ccctl", 1),), "The same for every command: see", "."),)),
            Section("EXAMPLES", (Code(tuple(line for cmd, what in shown for line in (f"# {what}", cmd))),)),
            Section("FILES", shipped),
            Section("SEE ALSO", (Mentions((("ccctl", 1), ("ccctl-artifacts", 5))),)),
        ),
    )


def _description(help_text: str) -> tuple[Block, ...]:
    """Return the paragraphs of a help text; a paragraph with \\b is shown verbatim, as on a terminal."""
    blocks: list[Block] = []
    for shown, parts in groupby(help_text.split("\n\n"), lambda part: part.startswith("\b")):
        words = "\n\n".join(parts)
        blocks.append(Code(tuple(words.splitlines()[1:])) if shown else Text(words))
    return tuple(blocks)


def _example_files(files: Iterable[str]) -> tuple[Subsection, ...]:
    """Return the full text of files that are installed as examples."""
    return tuple(
        Subsection(
            f"share/ccctl/{name}",
            (Code(tuple((_ROOT / name).read_text(encoding="utf-8").splitlines())),),
        )
        for name in files
    )


def _usage(command: Any, context: typer.Context) -> tuple[str, str]:
    return context.command_path, " ".join(command.collect_usage_pieces(context))


def _contexts(command: Any, context: typer.Context) -> list[tuple[Any, typer.Context]]:
    """Return the subcommands of a command with their contexts; without any, the command itself."""
    verbs = getattr(command, "commands", {})
    if not verbs:
        return [(command, context)]
    return [(verb, typer.Context(verb, info_name=name, parent=context)) for name, verb in verbs.items()]


def _verbs(command: Any, context: typer.Context) -> tuple[Subsection, ...]:
    return tuple(
        Subsection(
            str(inner.info_name),
            (
                Text(verb.help),
                Entries(tuple(row for rows in sections(verb, inner).values() for row in _rows(rows))),
            ),
        )
        for verb, inner in _contexts(command, context)
        if verb is not command
    )


def _parameters(command: Any, context: typer.Context) -> tuple[Section, ...]:
    found = sections(command, context)
    arguments = Section("ARGUMENTS", (Entries(_rows(found.pop("Arguments", []))),))
    if len(found) == 1:
        return arguments, Section("OPTIONS", tuple(Entries(_rows(rows)) for rows in found.values()))
    options = tuple(Subsection(title, (Entries(_rows(rows)),)) for title, rows in found.items())
    return arguments, Section("OPTIONS", options)


def _rows(rows: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, " ".join(meaning.split())) for name, meaning in rows)


def main() -> None:
    """Write every page into the folder named on the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for name, content in pages().items():
        (folder / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
