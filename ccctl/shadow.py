"""Whether `probes`, `synth` and `exec` are our own packages: the names are common."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

__all__ = ["shadowed"]

STAGES = ("probes", "synth", "exec")


def shadowed() -> str:
    """What is wrong where a file of somebody else hides one of our packages; "" where nothing does.

    Only looks the packages up, imports none of them.
    """
    home = Path(__file__).resolve().parents[1]
    for name in STAGES:
        spec = find_spec(name)
        if spec is None:
            return f"expected the package {name!r} in {home}, found none\nhint: install ccctl again"
        found = Path(spec.origin).resolve() if spec.origin else None
        if found != home / name / "__init__.py":
            return (
                f"expected the package {name!r} of ccctl in {home}, found {found or 'a bare folder'}\n"
                "hint: start the ccctl script or `python -P -m ccctl`, or rename that file"
            )
    return ""
