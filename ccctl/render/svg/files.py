"""Writes pictures: as SVG, or as PNG where the name of the file asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ccctl import console
from ccctl.artifacts.atomic import write_atomically
from ccctl.render.svg.drawing import Drawing, document

__all__ = ["SUFFIXES", "write_pictures"]

SUFFIXES = (".svg", ".png")


def write_pictures(drawings: Sequence[Drawing], path: str) -> None:
    """Write the pictures below each other to ``path``; "-" is stdout, as SVG."""
    written = document(drawings)
    if path.endswith(".png"):
        from ccctl.render.svg.png import png

        content = png(written)
    else:
        content = written.encode()
    if path == "-":
        console.raw(content)
    else:
        write_atomically(Path(path), content)
