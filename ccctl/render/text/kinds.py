"""The function that draws each kind of artifact as text."""

from __future__ import annotations

import importlib
from collections.abc import Callable

__all__ = ["drawing_of"]

# Kinds that are not drawn by the function ``draw`` of the module of their name.
_ELSEWHERE = {
    "periodic": "schedule:draw",
    "symmetric": "schedule:draw",
    "model": "fusion:draw_model",
    "tuning": "fusion:draw_tuning",
    "certificate": "acceptance:draw",
}


def drawing_of(kind: str) -> Callable[..., None]:
    """Return the function that prints an artifact of a kind."""
    module, _, name = _ELSEWHERE.get(kind, f"{kind}:draw").partition(":")
    draw: Callable[..., None] = getattr(importlib.import_module(f"ccctl.render.text.{module}"), name)
    return draw
