"""Where compiled loops are kept between processes: a file for each loop and signature.

Those that came with the package are looked at first; they are never written here.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from probes.files import FileCache, ShippedFiles, user_folder

__all__ = ["COMPILE_ALL", "HIDE_SHIPPED", "SHIPPED_LOOPS", "cache_folder", "loop_store", "shipped_loops"]

# Filled by ``python -m ccctl.compile_loops``; a wheel brings it along.
SHIPPED_LOOPS = Path(__file__).parent / "loops"
# The variable of the environment under which they are not read, as when they are made.
HIDE_SHIPPED = "CCCTL_HIDE_SHIPPED_LOOPS"
# That under which Python carries out no loop, however small, so that all are compiled.
COMPILE_ALL = "CCCTL_COMPILE_ALL_LOOPS"
# What is so old was mostly made from other sources, or by another version of the compiler.
_MOST_AGE_S = 90 * 24 * 3600.0

# Without a handler of the application's, nothing is printed: the processes of a command share one stderr.
logging.getLogger("synth").addHandler(logging.NullHandler())


def cache_folder() -> Path | None:
    """``$NUMBA_CACHE_DIR/ccctl``, else ``numba`` in the user's cache folder; None where there is no home."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    return Path(given).absolute() / "ccctl" if given else user_folder("numba")


def loop_store() -> FileCache:
    """The compiled loops of this user."""
    without = "each command compiles them anew, which takes seconds"
    return FileCache(cache_folder(), "compiled loops", without, _MOST_AGE_S)


def shipped_loops() -> ShippedFiles | None:
    """The compiled loops that came with the package; None where they are hidden."""
    return None if os.environ.get(HIDE_SHIPPED) else ShippedFiles(SHIPPED_LOOPS)
