"""The pictures of any kind of artifact."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ccctl.render import module_of

if TYPE_CHECKING:
    from typing import Any

    from ccctl.render.svg.benchmark import Bounds
    from ccctl.render.svg.drawing import Drawing

__all__ = ["NARROW", "WIDE", "draw"]

# Widths in pixels: a text column on a desktop, and a phone without margins.
WIDE, NARROW = 960, 358


def draw(kind: str, body: Any, width: int = WIDE, bounds_s: Bounds | None = None) -> list[Drawing]:
    """Return the pictures of an artifact, each ``width`` pixels wide; none where it is empty.

    ``bounds_s`` are the proven bounds of a report's rows.
    """
    pictures = importlib.import_module(module_of(kind, "svg")).pictures
    found: list[Drawing] = pictures(body, width, bounds_s) if kind == "report" else pictures(body, width)
    return found
