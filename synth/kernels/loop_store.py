"""Where compiled loops are kept between processes: a file for each loop and signature."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from probes.files.file_cache import FileCache, user_folder

__all__ = ["cache_folder", "loop_store"]

# Without a handler of the application's, nothing is printed: the processes of a command share one stderr.
logging.getLogger("synth").addHandler(logging.NullHandler())


def cache_folder() -> Path | None:
    """``$NUMBA_CACHE_DIR/ccctl``, else ``numba`` in the user's cache folder; None where there is no home."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    return Path(given).absolute() / "ccctl" if given else user_folder("numba")


def loop_store() -> FileCache:
    """The compiled loops of this user."""
    return FileCache(cache_folder(), "compiled loops", "each command compiles them anew, which takes seconds")
