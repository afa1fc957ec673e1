"""How the hot loops of synth are compiled: once, by numba, cached under the XDG cache.

Importing this module costs numba's import; only modules with a hot loop do so, and only when a
command needs them.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

__all__ = ["compiled"]

Function = TypeVar("Function", bound=Callable[..., Any])


def cache_folder() -> Path:
    """Where compiled loops are kept: ``$XDG_CACHE_HOME/ccctl/numba``, else ``~/.cache/ccctl/numba``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")  # noqa: PTH111, PTH118 - Path.home() raises where there is no home
    return Path(base) / "ccctl" / "numba"


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _start_without_blas() -> None:
    """Load numba's array functions before SciPy is: it imports all of scipy.linalg to see whether products
    of matrices could be compiled, which no loop of ours needs and which costs 0.2 s of every command.
    """
    if "scipy.linalg" in sys.modules:
        return
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment] # what Python reads as "not there"
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        del sys.modules["scipy.linalg"]


_start_without_blas()
_folder = cache_folder()
_cached = _writable(_folder)
if _cached:
    numba.config.CACHE_DIR = str(_folder)  # type: ignore[attr-defined] # numba fills its config at import


def compiled(function: Function) -> Function:
    """Compile ``function`` at its first call; later processes load it from the cache."""
    return cast(Function, numba.njit(cache=_cached, nogil=True)(function))
