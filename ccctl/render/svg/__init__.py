"""Pictures as SVG, by kind of artifact: `ccctl show -o` writes them, the page of `ccctl report` shows them.

In: an artifact's value and a width in pixels. Out: `drawing.Drawing`. Read `drawing`, `chart`, then a kind.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from ccctl.render.svg.drawing import Drawing
    from ccctl.render.svg.report import Bounds

__all__ = ["DRAWN", "NARROW", "WIDE", "pictures"]

# Pixels: a column of text on a desk, and a telephone less its margins.
WIDE, NARROW = 960, 358
DRAWN = ("profile", "schedule", "selection", "report", "training")


def pictures(kind: str, body: Any, width: int = WIDE, bounds_s: Bounds | None = None) -> list[Drawing]:
    """What there is to see of an artifact, each picture ``width`` pixels wide; none where it is empty.

    ``bounds_s`` are the proven bounds of a report's rows.
    """
    if kind not in DRAWN:
        return []
    draw = importlib.import_module(f"ccctl.render.svg.{kind}").pictures
    found: list[Drawing] = draw(body, width, bounds_s) if kind == "report" else draw(body, width)
    return found
