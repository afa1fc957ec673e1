"""`ccctl show`: any artifact as text or as pictures."""

from __future__ import annotations

import dataclasses
from inspect import signature
from typing import Annotated, Any

import typer

from ccctl import console
from ccctl.arguments import MOST_COUNT, GeneralOptions, Pictures, refuse_unproven
from ccctl.artifacts import codec
from ccctl.errors import UsageError

__all__ = ["EXAMPLES", "show"]

EXAMPLES = (
    ("ccctl show schedule.json", "draw a schedule in time"),
    ("ccctl show --json profile.json", "print an outline of a profile as one object"),
    ("ccctl show profile.json -o links.png", "draw its links as a heat map, the slow hosts first"),
    ("ccctl show schedule.json -o busy.svg", "draw how busy its links are, over time"),
    ("ccctl detect -o - | ccctl show -", "draw this machine without writing a file"),
    ("ccctl show report.json -o bench.svg", "plot a report: bandwidth and time over size"),
    ("ccctl show report.json nccl.txt", "put our report beside what nccl-tests printed"),
)

_JUDGED = (*codec.SCHEDULE_KINDS, "groups")
# The fields of judged artifacts that claim times and bounds.
_CLAIMS = ("outcome", "points", "rho", "distance", "predicted_s")


@dataclasses.dataclass(frozen=True)
class ShowOptions(GeneralOptions):
    """The arguments and options of ``show``."""

    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="ARTIFACT…",
            help="The file to draw; - reads stdin. Several reports, ours or nccl-tests', are "
            "drawn side by side.",
        ),
    ]
    lines: Annotated[
        int,
        typer.Option(
            "--lines", metavar="N", min=1, max=MOST_COUNT, help="Draw at most N ranks, sends or steps."
        ),
    ] = 32
    output: Pictures = None


def show(options: ShowOptions) -> None:
    """Draw any file of ccctl as text, SVG or PNG.

    Takes every kind of artifact: topology, profile, samples, health, schedule, periodic, symmetric,
    selection, program, report, history, model, fusion, tuning, groups, training and certificate; and
    nccl-tests' output, as a report. With -o FILE.svg or FILE.png it draws the pictures of ccctl report;
    health and samples have none.

    A topology shows the devices of each host below its NUMA nodes and PCIe switches, and its NVLinks. A
    profile: what each host sends and receives, and a heat map of the links. A schedule: how busy links and
    ranks are over time; a periodic one in its first periods. A selection or report: bandwidth and time over
    size, and where the time went if bench --explain wrote it. A program: the steps of each threadblock. A
    history: the links over time. A model: its layers. A fusion plan: one iteration. A tuning: its trials.
    Groups: who averages with whom. A training: loss and error. Health: each host, and how hosts differ. A
    certificate: what each culprit costs, and what share of their bounds the collectives reach.

    Bandwidths and times are those in the file; a schedule is timed again on its own network. No times are
    shown for a schedule, selection or groups that are wrong.
    """
    from ccctl.artifacts import read_any
    from ccctl.render import unproven
    from ccctl.render.text import drawing_of

    paths, output = options.paths, options.output
    if len(paths) > 1:
        _side_by_side(paths, output, json=options.json)
        return
    found = read_any(paths[0])
    findings = unproven(found)
    if output is not None:
        refuse_unproven(found.source, findings)
        _plot(found, output)
        return
    if options.json:
        outline = _outline(found.body)
        if found.kind in _JUDGED:
            outline = {name: value for name, value in outline.items() if not (findings and name in _CLAIMS)}
            outline["proven"] = not findings
        console.summary({"kind": found.kind, "sha256": found.sha256, **outline})
        return
    draw = drawing_of(found.kind)
    limits = {"lines": options.lines, "proven": not findings}
    if findings:
        more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
        console.warn(f"{found.source}: not proven, so no times are shown: {findings[0]}{more}")
    draw(found.body, **{name: limits[name] for name in signature(draw).parameters if name in limits})


def _side_by_side(paths: list[str], output: str | None, *, json: bool) -> None:
    from ccctl.artifacts import read_any
    from ccctl.render.text import draw_side_by_side

    if output is not None or json:
        raise UsageError(f"{'-o' if output is not None else '--json'} is for one file", hint="Name one.")
    draw_side_by_side([(path, read_any(path, "report").body) for path in paths])


def _plot(found: codec.Artifact, output: str) -> None:
    from ccctl.render.svg import SUFFIXES, draw, write_pictures

    if output != "-" and not output.endswith(SUFFIXES):
        raise UsageError(
            f"-o {output}: expected a name that ends in {' or '.join(SUFFIXES)}",
            hint="Without -o it is drawn as text.",
        )
    drawings = draw(found.kind, found.body)
    if not drawings:
        raise UsageError(f"{found.source}: there is nothing in the {found.kind} to draw")
    write_pictures(drawings, output)


def _outline(value: Any) -> dict[str, Any]:
    """Return the outline of a dataclass, field by field.

    A plain value stays as it is, a nested dataclass is outlined too, and anything else is given by its
    length.
    """
    outline: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        entry = getattr(value, field.name)
        if dataclasses.is_dataclass(entry):
            outline[field.name] = _outline(entry)
        elif entry is None or isinstance(entry, str | int | float):
            outline[field.name] = entry
        else:
            outline[field.name] = {"length": len(entry)}
    return outline
