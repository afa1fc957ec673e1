"""Converts SVG to PNG by resvg: one small wheel without system libraries, which draws as browsers do."""

from __future__ import annotations

from probes.errors import UnavailableError
from probes.install_hints import install

__all__ = ["png"]

# Pixels of the picture for one of the drawing, so that it is sharp on screens of today.
_ZOOM = 2
_LETTERS = "<svg xmlns='http://www.w3.org/2000/svg' width='20' height='20'>{}</svg>"


def png(document: str) -> bytes:
    """The picture on a light ground; raises UnavailableError where resvg, or any font, is missing."""
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
