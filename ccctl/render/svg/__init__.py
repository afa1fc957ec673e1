"""Pictures as SVG, by kind of artifact: `ccctl show -o` writes them, the page of `ccctl report` shows them.

In: an artifact's value and a width in pixels. Out: `drawing.Drawing`. Read `drawing`, `chart`, `bars`, then a
kind. `files` writes them, as SVG or PNG.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ccctl.render import module_of

if TYPE_CHECKING:
    from typing import Any

    from ccctl.render.svg.benchmark.report import Bounds
    from ccctl.render.svg.drawing import Drawing

__all__ = ["NARROW", "WIDE", "pictures"]

# Pixels: a column of text on a desk, and a telephone less its margins.
WIDE, NARROW = 960, 358


def pictures(kind: str, body: Any, width: int = WIDE, bounds_s: Bounds | None = None) -> list[Drawing]:
    """What there is to see of an artifact, each picture ``width`` pixels wide; none where it is empty.

    ``bounds_s`` are the proven bounds of a report's rows.
    """
    draw = importlib.import_module(module_of(kind, "svg")).pictures
    found: list[Drawing] = draw(body, width, bounds_s) if kind == "report" else draw(body, width)
    return found
