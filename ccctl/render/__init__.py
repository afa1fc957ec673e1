"""Pictures of artifacts: text, SVG and PNG, traces for Perfetto, metrics for Prometheus."""

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
    """The module that draws a kind of artifact as ``form``, "text" or "svg": each has the same folders."""
    return f"ccctl.render.{form}.{_FOLDERS.get(kind, '')}{kind}"
