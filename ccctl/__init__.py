"""ccctl: from bare wires to the collectives that they can carry best.

This floor is the command line: it reads and writes artifacts, prints, and exits. ``load`` and ``save`` are
for programs that use the three floors below as libraries: ``probes``, ``synth`` and ``exec``.

Read `main` and `commands`, one module a command; `arguments`, what their words mean; `artifacts`, the files;
`render` and `summaries`, what is shown; `console`, the one place that prints.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccctl.artifacts import load, save

__version__ = "0.1.0"
__all__ = ["load", "save"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("ccctl.artifacts.codec"), name)
