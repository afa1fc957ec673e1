"""Keeps numba from reading ``.numba_config.yaml`` in the working directory, which others may have written.

numba reads that file while it is imported, and again before compiling. Its environment variables still apply.
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


class _Loader(SourceFileLoader):
    """Loads numba's settings module without YAML, and removes the file name from it."""

    def exec_module(self, module: ModuleType) -> None:
        missing = object()
        before = sys.modules.get("yaml", missing)
        sys.modules["yaml"] = None  # type: ignore[assignment] # an import of it fails, as the language says
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="A Numba config file is found")
                super().exec_module(module)
        finally:
            if before is missing:
                del sys.modules["yaml"]
            else:
                sys.modules["yaml"] = before  # type: ignore[assignment] # it is what stood there
        module._config_fname = ""  # type: ignore[attr-defined] # numba's


class _Finder(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _MODULE:
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
