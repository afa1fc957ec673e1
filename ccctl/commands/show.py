"""`ccctl show`: any artifact as text."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Annotated, Any

import typer

from ccctl import artifacts, console
from ccctl.options import Json

__all__ = ["EXAMPLES", "show"]

EXAMPLES = (
    ("ccctl show schedule.json", "draw a schedule in time"),
    ("ccctl show --json profile.json", "say in one object what a profile holds"),
    ("ccctl detect -o - | ccctl show -", "draw this machine without writing a file"),
)


def show(
    artifact: Annotated[str, typer.Argument(metavar="ARTIFACT", help="The file to draw; - reads stdin.")],
    lines: Annotated[
        int, typer.Option("--lines", metavar="N", min=1, help="Draw at most N ranks, sends or steps.")
    ] = 32,
    json: Json = False,
) -> None:
    """Draw an artifact as text: topology, profile, schedule, program or report.

    Bandwidths and times are those that the file holds; a schedule is timed again on its own network.
    """
    found = artifacts.read(artifact)
    if json:
        console.summary({"kind": found.kind, "sha256": found.sha256, **_outline(found.body)})
        return
    picture = importlib.import_module(f"ccctl.pictures.{found.kind}")
    limit = {"lines": lines} if found.kind in ("schedule", "program") else {}
    picture.draw(found.body, **limit)


def _outline(value: Any) -> dict[str, Any]:
    """Each field of a dataclass: a plain value as it is, a nested one outlined, a list by its length."""
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
