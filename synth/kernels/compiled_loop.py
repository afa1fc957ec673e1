"""The decorator of compiled loops: numba compiles each loop once, and ``loop_store`` keeps it.

A loop is looked up by all that its machine code depends on, but not by the paths of files: the sources of the
loop and of all loops that it calls, the versions of Python and of the compiler, and the processor. So all
installations of a user share their loops, and every installation of the same versions finds the loops that
come with the package, which are compiled for a baseline processor.

Python runs a loop without machine code if that takes less time than compiling it, as on networks of a few
ranks.

Importing this module costs numba's import. Only modules with a hot loop import it, and only when a command
needs them.
"""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import json
import logging
import os
import pickle
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any, TypeVar, cast

import llvmlite
import numba
import numpy as np
from numba import types
from numba.core import sigutils
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.environment import Environment, _rebuild_env, lookup_environment
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from synth.kernels.stored_loops import COMPILE_ALL, loop_store, shipped_loops

__all__ = [
    "BASELINES",
    "all_compiled",
    "compiled",
    "compiled_always",
    "fitting_loops",
    "machine_address",
    "machine_code",
]

# For each architecture: the processor, by LLVM's name, for which shipped loops are compiled, and the features
# that a processor needs to run them.
BASELINES: dict[str, tuple[str, frozenset[str]]] = {
    "x86_64": (
        "x86-64-v3",
        frozenset(
            ("avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf", "sse3")
        )
        | {"sse4.1", "sse4.2", "ssse3", "xsave"},
    ),
    "aarch64": ("generic", frozenset()),
}

# Python runs a loop until its calls have taken as long as compiling would. So no loop costs more than about
# twice the better choice (as in ski rental). The time of a call is predicted from earlier calls, as growing
# with the square of the number of array elements. For the first call, this time is assumed for each element.
# Most loops take 5 us for each element, the slowest up to 500.
_FIRST_S_PER_ELEMENT = 0.2e-3
# numba's compile time per byte of bytecode of a loop and of all loops that it calls: 0.3 to 1.0 ms in ten
# loops. numba itself runs in Python, so on a faster processor compile time and loops' time shrink about
# alike.
_COMPILING_S_PER_BYTE = 0.6e-3

Function = TypeVar("Function", bound=Callable[..., Any])

_log = logging.getLogger(__name__)
# numba's functions have no annotations.
_dumped: Any = dumps
_rebuilt: Any = CompileResult._rebuild
_lookup_environment: Any = lookup_environment
_named_tuple: Any = types.BaseNamedTuple
_tuple_of: Any = types.BaseTuple.from_types
_plain: Any = types.unliteral
_normalized: Any = sigutils.normalize_signature
_njit: Any = numba.njit


# Another minor version of Python has other bytecode and another object layout.
_VERSIONS = (
    f"{sys.implementation.cache_tag}{sys.abiflags}",
    f"numba {numba.__version__}",
    f"llvmlite {llvmlite.__version__}",
)


class _Unpickler(pickle.Unpickler):
    """Reads stored machine code without importing the modules of numba that compiled it.

    numba would import its array functions and test whether matrix products can be compiled, which takes 0.1 s
    of every command. Machine code reads only the constants of an environment.
    """

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (_rebuild_env.__module__, _rebuild_env.__name__):
            return _environment
        return super().find_class(module, name)


def _environment(module: str, constants: list[Any], name: str) -> Any:
    """Return the environment of machine code; unlike numba's, does not import ``module``."""
    found = _lookup_environment(name)
    if found is None:
        found = Environment({"__name__": module})
        found.consts[:] = constants
        found.env_name = name
        Environment._memo[name] = found
    return found


class _Cache(NullCache):
    """numba's cache of a function: machine code to load before compiling, and to save afterwards.

    Before a lookup, numba's own cache imports everything that numba can compile, which costs every command
    0.15 s. A loop in this cache needs only the runtime that allocates its arrays.

    The machine code of a loop contains the loops that it calls, so its key changes with the source of each of
    them. An outdated loop could read past the end of a table whose layout has changed.

    Processes that need the same loop at once, such as the ranks of a host, wait for one that compiles it.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        # Read the source now, because another version may replace the file before the first call.
        _digest_of_file(function.__globals__["__file__"])
        self._turns = ExitStack()
        self._looked_for: set[Any] = set()

    def is_there(self, sig: Any) -> bool:
        """Return whether machine code for these types is stored, or came with the package."""
        if sig in self._looked_for:
            return False
        processor = cpu_target.target_context.codegen().magic_tuple()
        baseline, shipped = _baseline(processor), shipped_loops()
        is_shipped = (
            baseline is not None and shipped is not None and shipped.read(*self._labelled(sig, baseline))
        )
        found = bool(is_shipped or _store.read(*self._labelled(sig, processor)))
        if not found:
            self._looked_for.add(sig)
        return found

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)
        processor = target_context.codegen().magic_tuple()
        baseline, shipped = _baseline(processor), shipped_loops()
        if baseline is not None and shipped is not None:
            content = shipped.read(*self._labelled(sig, baseline))
            if (found := self._rebuilt_from(content, sig, target_context)) is not None:
                return found
        name, label = self._labelled(sig, processor)
        found = self._rebuilt_from(_store.read(name, label), sig, target_context)
        if found is None:
            self._turns.enter_context(_store.turn(name))
            found = self._rebuilt_from(_store.read(name, label), sig, target_context)
            if found is None:
                _log.info("compiling %s, once on this machine", self._function.__qualname__)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        # Machine code with addresses of this process is useless to another.
        if not data.lifted and not data.library.has_dynamic_globals:
            _store.write(*self._labelled(sig, data.codegen.magic_tuple()), _dumped((sig, data._reduce())))

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Release the locks that were taken in the block when it ends, also after an error."""
        with global_compiler_lock:
            before, self._turns = self._turns, ExitStack()
            try:
                with self._turns:
                    yield
            finally:
                self._turns = before

    def _rebuilt_from(self, content: bytes | None, sig: Any, target_context: Any) -> Any:
        """Return the machine code in ``content``; None if there is none, or none that fits."""
        if content is None:
            return None
        try:
            kept, reduced = _Unpickler(io.BytesIO(content)).load()
            return _rebuilt(target_context, *reduced) if kept == sig else None
        except Exception as error:
            _log.info("%s is compiled anew: %s", self._function.__qualname__, error)
            return None

    def _labelled(self, sig: Any, processor: Any) -> tuple[str, bytes]:
        """Return the name of the file for these types on this processor, and all of its inputs."""
        function = self._function
        cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
        identity = (
            function.__module__,
            function.__qualname__,
            str(sig),
            processor,
            _VERSIONS,
            hashlib.sha256(function.__code__.co_code + _dumped(cells)).hexdigest(),
            _sources(function.__module__),
        )
        label = json.dumps(identity).encode()
        readable = re.sub(r"[^\w.]", "_", f"{function.__module__}.{function.__qualname__}")[:120]
        return f"{readable}-{hashlib.sha256(label).hexdigest()[:32]}.loop", label


class _Interpreted:
    """A loop that Python runs, and the time spent so far."""

    def __init__(self, function: Any) -> None:
        self._function, self._spent_s = function, 0.0
        self._longest_s, self._largest = 0.0, 0

    def suits(self, arguments: tuple[Any, ...]) -> bool:
        """Return whether Python's total time stays within the compile time, this call included."""
        if _compiling[-1]:
            return False
        elements = _elements(arguments)
        if not self.begun:
            return elements * _FIRST_S_PER_ELEMENT <= self._compiling_s
        grown = max(1.0, elements / max(1, self._largest))
        return self._spent_s + self._longest_s * grown**2 <= self._compiling_s

    @property
    def begun(self) -> bool:
        """Whether Python has run the loop before, which implies that no compiled loop was found."""
        return self._spent_s > 0

    @functools.cached_property
    def _compiling_s(self) -> float:
        return _COMPILING_S_PER_BYTE * sum(len(code.co_code) for code in _codes(self._function, set()))

    def __call__(self, *arguments: Any) -> Any:
        begun_s = time.thread_time()
        try:
            # Loops keep random numbers and sets in words whose overflow is intended, as in machine code.
            with np.errstate(over="ignore"):
                return _returned(_in_python(self._function)(*arguments))
        finally:
            taken_s = time.thread_time() - begun_s
            self._spent_s += taken_s
            self._longest_s = max(self._longest_s, taken_s)
            self._largest = max(self._largest, _elements(arguments))


def _codes(function: Any, found: set[CodeType]) -> set[CodeType]:
    """Return the bytecode of a loop and of all loops that it calls."""
    if function.__code__ not in found:
        found.add(function.__code__)
        for name in function.__code__.co_names:
            called = function.__globals__.get(name)
            if isinstance(called, Dispatcher):
                _codes(called.py_func, found)
    return found


def _returned(value: Any) -> Any:
    """Return the value with NumPy numbers made Python numbers, as machine code returns them."""
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, tuple):
        return value
    values = map(_returned, value)
    return type(value)(*values) if hasattr(value, "_fields") else tuple(values)


def _in_python(function: Any) -> Any:
    """Return a copy of the function whose calls of loops run in Python too, without type lookup."""
    if function not in _made:
        names: dict[str, Any] = {}
        cells = tuple(CellType(_called_in_python(cell.cell_contents)) for cell in function.__closure__ or ())
        # The function is stored before its names, because a loop may call itself.
        _made[function] = FunctionType(
            function.__code__, names, function.__name__, function.__defaults__, cells
        )
        names |= {name: _called_in_python(value) for name, value in function.__globals__.items()}
    return _made[function]


def _called_in_python(value: Any) -> Any:
    return _in_python(value.py_func) if isinstance(value, Dispatcher) else value


def _elements(value: Any) -> int:
    """Return the number of elements of arrays, also within tuples."""
    if isinstance(value, np.ndarray):
        return value.size
    return sum(map(_elements, value)) if isinstance(value, tuple) else 0


@contextmanager
def all_compiled() -> Iterator[None]:
    """Compile all loops that this process calls while the block runs, however little they do."""
    _compiling.append(True)
    try:
        yield
    finally:
        _compiling.pop()


def fitting_loops() -> tuple[int, int]:
    """Return (loops that came with the package, those that fit this processor and these versions)."""
    baseline = _baseline(cpu_target.target_context.codegen().magic_tuple())
    this_machine = [baseline and [*baseline], [*_VERSIONS]]
    shipped = shipped_loops()
    made_for = [json.loads(label)[3:5] for label in shipped.labels()] if shipped is not None else []
    return len(made_for), made_for.count(this_machine)


def _baseline(processor: tuple[str, str, str]) -> tuple[str, str, str] | None:
    """Return the target of shipped loops that this processor can run; None if it cannot run any."""
    triple, name, features = processor
    baseline, needed = BASELINES.get(triple.partition("-")[0], ("", frozenset[str]()))
    present = {feature[1:] for feature in features.split(",") if feature.startswith("+")}
    return (triple, baseline, "") if baseline and (name == baseline or needed <= present) else None


@functools.cache
def _sources(module: str) -> tuple[tuple[str, str, str], ...]:
    """Return digests of everything that the machine code of a module's loops depends on.

    These are the module's file, the files of all loops and helpers that it can call, this file, and the
    constants in those modules, also imported ones, because constants are compiled in.
    """
    found = {__name__: (_digest_of_file(__file__), "")}
    waiting = [vars(sys.modules[module])]
    while waiting:
        names = waiting.pop()
        if names["__name__"] not in found:
            found[names["__name__"]] = (_digest_of_file(names["__file__"]), _constants(names))
            waiting += filter(None, map(_called_by_loops, tuple(names.values())))
    return tuple((name, *digests) for name, digests in sorted(found.items()))


def _called_by_loops(value: Any) -> dict[str, Any] | None:
    """Return the module globals of a loop or of a helper registered with numba; None for anything else."""
    if isinstance(value, Dispatcher):
        return cast(dict[str, Any], value.py_func.__globals__)
    names: dict[str, Any] | None = getattr(getattr(value, "_defn", value), "__globals__", None)
    if names is None or names["__name__"].startswith("numba."):
        return None
    teaches = any(
        getattr(other, "__module__", "") == "numba.core.extending" for other in tuple(names.values())
    )
    return names if teaches else None


def _constants(names: dict[str, Any]) -> str:
    constants = [
        (name, value.tobytes() if isinstance(value, np.ndarray) else value)
        for name, value in sorted(names.items())
        if name.isupper() and isinstance(value, int | float | str | tuple | np.ndarray | np.generic)
    ]
    return hashlib.sha256(repr(constants).encode()).hexdigest()


@functools.cache
def _digest_of_file(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _name_apart() -> None:
    """Make the names that this process compiles differ from the names of every other process.

    numba numbers generated names from 1 in every process, and the linker keeps the first of several functions
    with one name. So if two loops from the cache were compiled in two processes, one could call the other's
    helper of the same name, such as one that sorts indices instead of numbers.
    """
    FunctionIdentity._unique_ids = itertools.count(secrets.randbits(62))


# _compiling: a stack whose last entry says whether all loops are compiled. The environment sets the first
# entry; each open ``all_compiled`` adds one. _made: the copy of each loop that runs in Python.
_compiling = [bool(os.environ.get(COMPILE_ALL))]
_made: dict[Any, Any] = {}
_name_apart()
os.register_at_fork(after_in_child=_name_apart)
_store = loop_store()
_looking_up = threading.RLock()


def _writable_too(found: Any) -> Any:
    """Return an argument's type with all arrays writable: one machine code serves both kinds.

    This is safe, because no loop writes to arrays that its caller has made read-only. It saves the seconds
    that each further combination of types would take to compile.
    """
    if isinstance(found, _named_tuple):
        return _tuple_of(tuple(map(_writable_too, found.types)), found.instance_class)
    return found.copy(readonly=False) if isinstance(found, types.Array) else found


def _widened(found: Any) -> Any:
    """Return an argument's type with integers widened, so that one machine code serves all widths.

    Every integer type but uint64 becomes int64; a literal first gets the type of its value.
    """
    plain = _plain(found)
    return types.int64 if plain in types.integer_domain and plain != types.uint64 else plain


def compiled(function: Function) -> Function:
    """Compile ``function`` once it has much to do; later processes load it from the cache.

    ``function`` must have no comprehension, because numba would then drop writes to arrays of tuples as dead
    code.
    """
    return _loop(function, _Interpreted(function))


def compiled_always(function: Function) -> Function:
    """Compile ``function`` at its first call.

    It may be code that Python cannot run, such as code that works on addresses.
    """
    return _loop(function, None)


def _loop(function: Function, interpreted: _Interpreted | None) -> Function:
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined] # numba fills its config at import
        return function
    # No C code calls a loop, so it needs no wrapper for C.
    loop: Any = _njit(nogil=True, no_cfunc_wrapper=True)(function)
    # numba calls this method on the loop to find the type of an argument.
    loop.typeof_pyval = lambda value: _writable_too(type(loop).typeof_pyval(loop, value))
    loop._cache = cache = _Cache(function)  # as njit(cache=True) does with numba's own cache
    compile_one, compile_for_call = loop.compile, loop._compile_for_args

    def compile_in_turn(sig: Any) -> Any:
        arguments = tuple(map(_widened, _normalized(sig)[0]))
        with cache.compiling():
            return compile_one(arguments)

    def callable_for(*arguments: Any) -> Any:
        # numba keeps the argument types of the current call in one record for all threads.
        with _looking_up:
            if interpreted is not None and interpreted.suits(arguments):
                if interpreted.begun:
                    return interpreted
                try:
                    if not cache.is_there(tuple(_widened(loop.typeof_pyval(value)) for value in arguments)):
                        return interpreted
                finally:
                    loop._types_active_call.clear()
            return compile_for_call(*arguments)

    loop.compile = compile_in_turn
    # numba's dispatcher calls this if it has no machine code for the types of a call.
    loop._compile_for_args = callable_for
    return cast(Function, loop)


def machine_code(loop: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """Return the loop compiled for the types of ``arguments``; calls to it look up no types."""
    dispatcher: Any = loop
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined] # numba fills its config at import
        return loop
    found: Callable[..., Any] = dispatcher.compile(tuple(map(dispatcher.typeof_pyval, arguments)))
    return found


def machine_address(loop: Callable[..., Any], *arguments: Any) -> int:
    """Return the address of the loop's machine code for the types of ``arguments``, for calls by other loops.

    It is called as numba's functions call each other.
    """
    machine_code(loop, *arguments)
    dispatcher: Any = loop
    found = dispatcher.overloads[tuple(_widened(dispatcher.typeof_pyval(value)) for value in arguments)]
    address: int = found.library.get_pointer_to_function(found.fndesc.llvm_func_name)
    return address
