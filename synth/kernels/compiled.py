"""The decorator of compiled loops: numba compiles each once, and ``loop_store`` keeps it.

Importing this module costs numba's import; only modules with a hot loop do so, and only when a
command needs them.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import logging
import os
import pickle
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite
import numba
from numba import types
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from synth.kernels.loop_store import loop_store

__all__ = ["compiled"]

Function = TypeVar("Function", bound=Callable[..., Any])

_log = logging.getLogger(__name__)
# numba's functions have no annotations.
_dumped: Any = dumps
_rebuilt: Any = CompileResult._rebuild
_named_tuple: Any = types.BaseNamedTuple
_tuple_of: Any = types.BaseTuple.from_types


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


class _Kept(NullCache):
    """What numba asks for machine code before it compiles a function, and gives what it has compiled.

    Before it looks a loop up, numba's own cache imports all that numba can compile, 0.15 s of every command;
    a loop that is there already needs just the runtime that allocates its arrays.

    A loop has the loops that it calls inside it, so it is stale, too, where the file of one of them changed:
    with tables that others lay out anew it would read past their ends.

    Processes that need the same loop at once, as the ranks of a host do, wait for one that compiles it.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._stamps = _stamps(function.__module__, function.__globals__)
        self._turns = ExitStack()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)
        name, label = self._labelled(sig, target_context.codegen())
        found = self._look_up(name, label, sig, target_context)
        if found is None:
            self._turns.enter_context(_store.turn(name))
            found = self._look_up(name, label, sig, target_context)
            if found is None:
                _log.info("compiling %s, once on this machine", self._function.__qualname__)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        # What holds addresses of this process is of no use to another.
        if not data.lifted and not data.library.has_dynamic_globals:
            _store.write(*self._labelled(sig, data.codegen), _dumped((sig, data._reduce())))

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Give up, at the end of the block, the turns that were taken in it, whatever ends it."""
        with global_compiler_lock:
            before, self._turns = self._turns, ExitStack()
            try:
                with self._turns:
                    yield
            finally:
                self._turns = before

    def _look_up(self, name: str, label: bytes, sig: Any, target_context: Any) -> Any:
        """None where it is not there, or not what it says."""
        content = _store.read(name, label)
        if content is None:
            return None
        try:
            with _without_blas():
                kept, reduced = pickle.loads(content)
                return _rebuilt(target_context, *reduced) if kept == sig else None
        except Exception as error:
            _log.info("%s is compiled anew: %s", self._function.__qualname__, error)
            return None

    def _labelled(self, sig: Any, codegen: Any) -> tuple[str, bytes]:
        """The name of the file for these types on this processor, and what else must be as it was."""
        function = self._function
        identity = (
            function.__code__.co_filename,
            function.__qualname__,
            str(sig),
            codegen.magic_tuple(),
            sys.version,
            numba.__version__,
            llvmlite.__version__,
        )
        cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
        code = hashlib.sha256(function.__code__.co_code + _dumped(cells)).hexdigest()
        short = hashlib.sha256(repr(identity).encode()).hexdigest()[:32]
        readable = re.sub(r"[^\w.]", "_", f"{function.__module__}.{function.__qualname__}")[:120]
        return f"{readable}-{short}.loop", json.dumps([identity, code, self._stamps]).encode()


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


@functools.cache
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
_store = loop_store()


def _writable_too(found: Any) -> Any:
    """The type of an argument, whether an array may be written to or not: one machine code is for both.

    No loop writes to what its caller has locked, and each combination would be compiled for seconds.
    """
    if isinstance(found, _named_tuple):
        return _tuple_of(tuple(map(_writable_too, found.types)), found.instance_class)
    return found.copy(readonly=False) if isinstance(found, types.Array) else found


def compiled(function: Function) -> Function:
    """Compile ``function`` at its first call; later processes load it from the cache.

    It must have no comprehension: where it has one, numba drops as dead what is written to arrays of tuples.
    """
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined] # numba fills its config at import
        return function
    loop: Any = numba.njit(nogil=True)(function)
    # numba asks the loop itself.
    loop.typeof_pyval = lambda value: _writable_too(type(loop).typeof_pyval(loop, value))
    loop._cache = kept = _Kept(function)  # what njit(cache=True) does, with numba's own cache
    compile_one = loop.compile

    def compile_in_turn(sig: Any) -> Any:
        with kept.compiling():
            return compile_one(sig)

    loop.compile = compile_in_turn
    return cast(Function, loop)
