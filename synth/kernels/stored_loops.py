"""The store of compiled loops between processes: a file for each loop and signature.

Loops that came with the package are searched first, and never written here.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from probes.files import FileCache, ShippedFiles, user_folder

__all__ = ["COMPILE_ALL", "HIDE_SHIPPED", "SHIPPED_LOOPS", "cache_folder", "loop_store", "shipped_loops"]

# ``python -m ccctl.compile_loops`` fills this folder, and so does the build of a wheel.
SHIPPED_LOOPS = Path(__file__).parent / "loops"
# If this environment variable is set, shipped loops are not read. The build of new ones sets it, so that each
# loop is compiled rather than found.
HIDE_SHIPPED = "CCCTL_HIDE_SHIPPED_LOOPS"
# If this environment variable is set, every loop is compiled, also a small one that Python would otherwise
# run.
COMPILE_ALL = "CCCTL_COMPILE_ALL_LOOPS"
# Stored loops older than this are removed, since their sources or compiler are mostly no longer in use.
_MOST_AGE_S = 90 * 24 * 3600.0

# Nothing is printed unless the application adds a handler: the processes of a command share one stderr.
logging.getLogger("synth").addHandler(logging.NullHandler())


def cache_folder() -> Path | None:
    """Return ``$NUMBA_CACHE_DIR/ccctl``, else ``numba`` in the user's cache folder; None without a home."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    return Path(given).absolute() / "ccctl" if given else user_folder("numba")


def loop_store() -> FileCache:
    """Return the store of this user's compiled loops."""
    without = "each command compiles them anew, which takes seconds"
    return FileCache(cache_folder(), "compiled loops", without, _MOST_AGE_S)


def shipped_loops() -> ShippedFiles | None:
    """Return the compiled loops that came with the package; None if they are hidden."""
    return None if os.environ.get(HIDE_SHIPPED) else ShippedFiles(SHIPPED_LOOPS)
