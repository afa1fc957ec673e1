"""Keeps numba from reading ``.numba_config.yaml`` in the working directory, which others may have written.

numba reads that file while it is imported, and again before compiling. Its environment variables still apply.
numba also imports coverage.py if that is installed, which takes a tenth of numba's own import. This import is
prevented, too, unless coverage.py measures this process.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

__all__ = ["leave_file_unread"]

_MODULE = "numba.core.config"
# For each module of numba, the optional package that it must not import.
_WITHHELD = {_MODULE: "yaml", "numba.misc.coverage_support": "coverage"}


class _Loader(SourceFileLoader):
    """Loads a module of numba as if the package withheld from it were not installed."""

    def exec_module(self, module: ModuleType) -> None:
        withheld, missing = _WITHHELD[module.__name__], object()
        before = sys.modules.get(withheld, missing)
        sys.modules[withheld] = None  # type: ignore[assignment] # with None here, Python refuses to import it
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="A Numba config file is found")
                super().exec_module(module)
        finally:
            if before is missing:
                del sys.modules[withheld]
            else:
                sys.modules[withheld] = before  # type: ignore[assignment]
        if module.__name__ == _MODULE:
            module._config_fname = ""  # type: ignore[attr-defined] # numba's


class _Finder(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # If coverage.py measures this process, it is loaded by now. Then numba may import it, and report the
        # compiled lines to it.
        if name not in _WITHHELD or (name != _MODULE and _WITHHELD[name] in sys.modules):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin)
        return spec


def leave_file_unread() -> None:
    """Make imports of numba read no settings file from now on; a loaded numba stops reading it."""
    if (loaded := sys.modules.get(_MODULE)) is not None:
        loaded._config_fname = ""  # type: ignore[attr-defined] # numba's
    elif not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
