"""The module that draws each kind of artifact."""

from __future__ import annotations

__all__ = ["module_of"]

_TRAINING = ("model", "fusion", "tuning", "groups", "training")
_COMPACT = ("periodic", "symmetric")
_FOLDERS = {
    **dict.fromkeys(_TRAINING, "training."),
    **dict.fromkeys(_COMPACT, "compact."),
    "report": "benchmark.",
}


def module_of(kind: str, form: str) -> str:
    """Return the module that draws ``kind`` as ``form``, "text" or "svg"; both have the same layout."""
    return f"ccctl.render.{form}.{_FOLDERS.get(kind, '')}{kind}"
