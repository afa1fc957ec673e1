"""The pictures of any kind of artifact, and their files: PNG if named .png, otherwise SVG.

The PNG is made by resvg, a small wheel that needs no system libraries and draws as browsers do.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ccctl.artifacts import write_output
from ccctl.render.svg.drawing import Drawing, document
from probes.base import UnavailableError, install

if TYPE_CHECKING:
    from typing import Any

    from ccctl.render.svg.report import Bounds

__all__ = ["NARROW", "SUFFIXES", "WIDE", "WITHOUT_PICTURE", "draw", "png", "write_pictures"]

# Widths in pixels: a text column on a desktop, and a phone without margins.
WIDE, NARROW = 960, 358
SUFFIXES = (".svg", ".png")
# The module that draws each of these kinds, by a function with the name of the kind. Any other kind has a
# module with its name and a function `pictures`.
_SEVERAL = {
    **dict.fromkeys(("schedule", "periodic", "symmetric", "selection"), "schedules"),
    **dict.fromkeys(("model", "fusion", "tuning", "groups", "training"), "training"),
}
# Facts of hosts are read, not drawn. Samples show in the profile that was fitted to them.
WITHOUT_PICTURE = ("health", "samples")
# Scale of the PNG, so that it is sharp on high-resolution screens.
_ZOOM = 2
_LETTERS = "<svg xmlns='http://www.w3.org/2000/svg' width='20' height='20'>{}</svg>"


def draw(kind: str, body: Any, width: int = WIDE, bounds_s: Bounds | None = None) -> list[Drawing]:
    """Return the pictures of an artifact, each ``width`` pixels wide; none where it is empty.

    ``bounds_s`` are the proven bounds of a report's rows.
    """
    if kind in WITHOUT_PICTURE:
        return []
    module = importlib.import_module(f"ccctl.render.svg.{_SEVERAL.get(kind, kind)}")
    pictures = getattr(module, kind if kind in _SEVERAL else "pictures")
    return list(pictures(body, width, bounds_s) if kind == "report" else pictures(body, width))


def write_pictures(drawings: Sequence[Drawing], path: str) -> None:
    """Write the pictures below each other to ``path``; "-" is stdout, as SVG."""
    written = document(drawings)
    content = png(written) if path.endswith(".png") else written.encode()
    write_output(path, content)


def png(document: str) -> bytes:
    """Return the PNG on a light background; raises UnavailableError if resvg or every font is missing."""
    try:
        import resvg_py
    except ImportError as error:
        raise UnavailableError(
            "a .png needs resvg, which is not installed", hint=f"{install('png')}, or name a .svg."
        ) from error
    word = "<text x='2' y='16' font-family='sans-serif'>M</text>"
    if resvg_py.svg_to_bytes(_LETTERS.format(word)) == resvg_py.svg_to_bytes(_LETTERS.format("")):
        raise UnavailableError(
            "a .png needs a font, and this machine has none",
            hint="On Debian: apt-get install fonts-dejavu-core. Or name a .svg, which browsers draw.",
        )
    return bytes(resvg_py.svg_to_bytes(document, zoom=_ZOOM))
