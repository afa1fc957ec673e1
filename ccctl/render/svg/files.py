"""Picture files, as SVG, or as PNG if the file is named so.

resvg makes the PNG: a small wheel without system libraries, which draws as browsers do.
"""

from __future__ import annotations

from collections.abc import Sequence

from ccctl.artifacts import write_output
from ccctl.render.svg.drawing import Drawing, document
from probes.base import UnavailableError, install

__all__ = ["SUFFIXES", "png", "write_pictures"]

SUFFIXES = (".svg", ".png")
# Scale of the PNG, so that it is sharp on high-resolution screens.
_ZOOM = 2
_LETTERS = "<svg xmlns='http://www.w3.org/2000/svg' width='20' height='20'>{}</svg>"


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
