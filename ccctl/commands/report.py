"""`ccctl report`: a folder of artifacts as one page of HTML."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccctl import console
from ccctl.arguments import GeneralOptions, Page
from ccctl.artifacts import write_output
from ccctl.render import figures
from probes.base import plural

if TYPE_CHECKING:
    from ccctl.artifacts import Gathered
    from ccctl.render import ArtifactFinding

__all__ = ["EXAMPLES", "report"]

EXAMPLES = (
    ("ccctl report out/ -o report.html", "put all that lies in a folder on one page, findings first"),
    ("ccctl report profile.json bench.json -o report.html", "a profile, and a benchmark beside its bound"),
    ("ccctl report out/", "print the findings"),
)


@dataclass(frozen=True)
class ReportOptions(GeneralOptions):
    """The arguments and options of ``report``."""

    paths: Annotated[
        list[str],
        typer.Argument(metavar="FOLDER|FILE…", help="Artifacts, or folders of them."),
    ]
    output: Page = None


def report(options: ReportOptions) -> None:
    """Put artifacts on one page of HTML, findings first.

    Pictures and numbers follow. The page contains all that it shows and loads nothing. Curves of a benchmark
    are drawn with their proven bound, if a profile or a schedule of as many ranks is among the files. Output
    of nccl-tests is read, too. A file that cannot be read is a finding. Without -o the findings are printed.
    """
    from ccctl.artifacts import gather
    from ccctl.render import findings

    paths, output = options.paths, options.output
    gathered = gather(paths)
    found = findings(gathered)
    if output is not None:
        # The name of a single path fits on a narrow screen. Several paths may end in the same name, so they
        # are shown whole.
        whole = len(paths) > 1
        named = [path if whole and Path(path).name else Path(path).absolute().name for path in paths]
        content = _page(", ".join(named), gathered, found).encode()
        write_output(output, content)
        if output != "-":
            read = plural(len(gathered.artifacts), "artifact")
            console.note(f"{output}: {read}, {plural(len(found), 'finding')}, {len(content)} bytes")
    if options.json and output != "-":
        rows = [figures(one, "what source text severe") for one in found]
        console.summary(
            {"artifacts": len(gathered.artifacts), "unread": len(gathered.unread), "findings": rows}
        )
    elif output is None:
        for one in found:
            console.data(f"{one.what}: {one.source}: {one.text}")
        if not found:
            read = plural(len(gathered.artifacts), "artifact")
            console.data(f"nothing is wrong, slow or doubtful in {read}")


def _page(title: str, gathered: Gathered, found: list[ArtifactFinding]) -> str:
    from ccctl import __version__
    from ccctl.artifacts import created
    from ccctl.render import html_page

    files = [(artifact.source, artifact.kind, artifact.sha256[:16]) for artifact in gathered.artifacts]
    files += [(one.source, "not readable", one.reason) for one in gathered.unread]
    short = _short([source for source, _, _ in files])
    return html_page.page(
        f"ccctl report: {title}",
        f"ccctl {__version__}, {created()}",
        [replace(one, source=short[one.source]) for one in found],
        [replace(part, source=short[part.source]) for part in html_page.sections(gathered.artifacts)],
        [(short[source], what, digest) for source, what, digest in files],
    )


def _short(sources: list[str]) -> dict[str, str]:
    """Return each file's path below their common folder: whole paths would fill a narrow screen."""
    if len({Path(source).is_absolute() for source in sources}) != 1:
        return {source: source for source in sources}
    folder = os.path.commonpath([Path(source).parent for source in sources])
    return {source: os.path.relpath(source, folder or ".") for source in sources}
