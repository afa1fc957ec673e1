"""How the hot loops of synth are compiled: once, by numba, cached under the XDG cache.

Importing this module costs numba's import; only modules with a hot loop do so, and only when a
command needs them.
"""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import numba
from numba import types
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher
from numba.core.runtime.nrt import rtsys

__all__ = ["compiled"]

Function = TypeVar("Function", bound=Callable[..., Any])

_log = logging.getLogger(__name__)
# The longest loop takes some seconds to compile, on a busy machine a multiple.
_PATIENCE_S = 60.0


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


@contextmanager
def _without_blas() -> Iterator[None]:
    """Hide scipy.linalg, where it is not loaded: numba's array functions import all of it to see whether
    products of matrices could be compiled, which no loop of ours needs and which costs 0.2 s.
    """
    if "scipy.linalg" in sys.modules:
        yield
        return
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment] # what Python reads as "not there"
    try:
        yield
    finally:
        del sys.modules["scipy.linalg"]


class _Cache(FunctionCache):
    """numba's cache of a function, without what only compiling needs.

    Before it looks a loop up numba imports all that it could compile, 0.15 s of every command; a loop that
    is there already needs just the runtime that allocates its arrays. One that is not there is compiled,
    and before that numba does the rest itself.

    A loop has the loops that it calls inside it, so it is stale, too, where the file of one of them changed:
    with tables that others lay out anew it would read past their ends.

    Processes that need the same loop at once, as the ranks of a host do, wait for one that compiles it.
    """

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call] # as all of numba
        self._cache_file._source_stamp = _stamps(function.__module__, function.__globals__)
        self._function = function
        self._turns: list[IO[str]] = []

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)
        found = self._look_up(sig, target_context)
        if found is None:
            self._turns.append(self._turn())
            found = self._look_up(sig, target_context)
            if found is not None:
                self._turns.pop().close()
            else:
                _log.info("compiling %s, once on this machine", self._function.__qualname__)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """One process at a time: two at once would give two signatures one file, and the next one crashes."""
        with _locked(fcntl.LOCK_EX):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call] # as all of numba
        self._turns.pop().close()

    def _look_up(self, sig: Any, target_context: Any) -> Any:
        """None where it is not there. Nobody writes meanwhile: an index is written before what it names."""
        with _locked(fcntl.LOCK_SH), _without_blas(), self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call] # as all of numba

    def _turn(self) -> IO[str]:
        """The right to compile this loop: until closed, or after a while for whoever has waited in vain."""
        turn = (Path(self._impl.locator.get_cache_path()) / f"{self._impl.filename_base}.turn").open("w")
        deadline_s = time.monotonic() + _PATIENCE_S
        # Whoever compiles the loop for another signature meanwhile has the turn already.
        while not self._turns and time.monotonic() < deadline_s:
            try:
                fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.02)
        return turn


@contextmanager
def _locked(how: int) -> Iterator[None]:
    with (_folder / "lock").open("a") as lock:
        fcntl.flock(lock, how)
        yield


def _stamps(module: str, names: dict[str, Any]) -> tuple[tuple[str, int, int], ...]:
    """What the module's file, those of all loops that it can call, and this are now: name, time, size."""
    found = {module: _stamp(names["__file__"]), __name__: _stamp(__file__)}
    waiting = [names]
    while waiting:
        for called in tuple(waiting.pop().values()):
            if isinstance(called, Dispatcher) and called.__module__ not in found:
                there = called.py_func.__globals__
                found[called.__module__] = _stamp(there["__file__"])
                waiting.append(there)
    return tuple((name, *stamp) for name, stamp in sorted(found.items()))


def _stamp(path: str) -> tuple[int, int]:
    status = Path(path).stat()
    return status.st_mtime_ns, status.st_size


def _name_apart() -> None:
    """Let names of what this process compiles differ from those of any other.

    numba numbers what it generates from 1 in every process, and of functions with one name the linker keeps
    the first: two loops from the cache, compiled in two processes, would share what only has the same name,
    such as the helpers that sort numbers and those that sort their places.
    """
    FunctionIdentity._unique_ids = itertools.count(secrets.randbits(62))


_name_apart()
os.register_at_fork(after_in_child=_name_apart)
_folder = cache_folder()
_cached = _writable(_folder)
if _cached:
    numba.config.CACHE_DIR = str(_folder)  # type: ignore[attr-defined] # numba fills its config at import


def _writable_too(found: Any) -> Any:
    """The type of an argument, whether an array may be written to or not: one machine code is for both.

    No loop writes to what its caller has locked, and each combination would be compiled for seconds.
    """
    return found.copy(readonly=False) if isinstance(found, types.Array) else found


def compiled(function: Function) -> Function:
    """Compile ``function`` at its first call; later processes load it from the cache."""
    loop = numba.njit(nogil=True)(function)
    # numba asks the loop itself; mypy does not let a method be replaced in one instance.
    loop.typeof_pyval = lambda value: _writable_too(type(loop).typeof_pyval(loop, value))  # type: ignore
    if _cached:
        loop._cache = _Cache(function)  # type: ignore # what njit(cache=True) does, with numba's own cache
    return cast(Function, loop)
