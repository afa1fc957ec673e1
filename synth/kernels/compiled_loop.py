"""The decorator of compiled loops: numba compiles each once, and ``loop_store`` keeps it.

A loop is looked up by what it was compiled from, wherever that lies: the sources of the loop and of all that
it calls, the versions of Python and of the compiler, the processor. So all installations of a user share
their loops, and those that come with the package are found by every one of the same versions. They are
compiled for a baseline processor.

A loop of which there is no machine code yet is carried out by Python where that is sooner done than compiling
it, as on networks of a few ranks.

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
    "machine_code",
]

# For each architecture the processor, as LLVM calls it, that loops to be shipped are compiled for, and what
# a processor must have to run them.
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

# Python runs a loop until that has taken this process as long as compiling the loop would, so that no loop
# costs more than about twice the better choice (as in ski rental). The time of a call is predicted from the
# calls before it, as if it grew with the square of the elements in its tables. That of the first call is this
# for each element; most loops take 5 us, the slowest up to 500.
_FIRST_S_PER_ELEMENT = 0.2e-3
# The time in which numba compiles a byte of bytecode, of a loop and of all loops that it calls: 0.3 to 1.0 ms
# in ten loops. numba is written in Python, so on other processors this changes as the time of the loops does.
_COMPILING_S_PER_BYTE = 0.6e-3

Function = TypeVar("Function", bound=Callable[..., Any])

_log = logging.getLogger(__name__)
# numba's functions have no annotations.
_dumped: Any = dumps
_rebuilt: Any = CompileResult._rebuild
_named_tuple: Any = types.BaseNamedTuple
_tuple_of: Any = types.BaseTuple.from_types
_plain: Any = types.unliteral
_normalized: Any = sigutils.normalize_signature
_njit: Any = numba.njit


# Another minor version of Python has other bytecode and another layout of its objects.
_VERSIONS = (
    f"{sys.implementation.cache_tag}{sys.abiflags}",
    f"numba {numba.__version__}",
    f"llvmlite {llvmlite.__version__}",
)


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

    A loop has the loops that it calls inside it, so it is another, too, where the source of one of them
    changed: with tables that others lay out anew it would read past their ends.

    Processes that need the same loop at once, as the ranks of a host do, wait for one that compiles it.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        # Now: by the time of the first call another version may lie there.
        _digest_of_file(function.__globals__["__file__"])
        self._turns = ExitStack()
        self._looked_for: set[Any] = set()

    def is_there(self, sig: Any) -> bool:
        """Whether machine code for these types was kept, or came with the package."""
        if sig in self._looked_for:
            return False
        processor = cpu_target.target_context.codegen().magic_tuple()
        baseline, shipped = _baseline(processor), shipped_loops()
        came = baseline is not None and shipped is not None and shipped.read(*self._labelled(sig, baseline))
        found = bool(came or _store.read(*self._labelled(sig, processor)))
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
        # What holds addresses of this process is of no use to another.
        if not data.lifted and not data.library.has_dynamic_globals:
            _store.write(*self._labelled(sig, data.codegen.magic_tuple()), _dumped((sig, data._reduce())))

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

    def _rebuilt_from(self, content: bytes | None, sig: Any, target_context: Any) -> Any:
        """None where there is none, or not what it says."""
        if content is None:
            return None
        try:
            with _without_blas():
                kept, reduced = pickle.loads(content)
                return _rebuilt(target_context, *reduced) if kept == sig else None
        except Exception as error:
            _log.info("%s is compiled anew: %s", self._function.__qualname__, error)
            return None

    def _labelled(self, sig: Any, processor: Any) -> tuple[str, bytes]:
        """The name of the file for these types on this processor, and all that it was made from."""
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
    """A loop as Python carries it out, and for how long it has."""

    def __init__(self, function: Any) -> None:
        self._function, self._spent_s = function, 0.0
        self._longest_s, self._largest = 0.0, 0

    def suits(self, arguments: tuple[Any, ...]) -> bool:
        """Whether Python has the result sooner than a compiler would."""
        if _compiling[-1]:
            return False
        elements = _elements(arguments)
        if not self.begun:
            return elements * _FIRST_S_PER_ELEMENT <= self._compiling_s
        grown = max(1.0, elements / max(1, self._largest))
        return self._spent_s + self._longest_s * grown**2 <= self._compiling_s

    @property
    def begun(self) -> bool:
        """Whether Python has run it before, which is so only if no compiled loop was found."""
        return self._spent_s > 0

    @functools.cached_property
    def _compiling_s(self) -> float:
        return _COMPILING_S_PER_BYTE * sum(len(code.co_code) for code in _codes(self._function, set()))

    def __call__(self, *arguments: Any) -> Any:
        begun_s = time.thread_time()
        try:
            # Random numbers and sets are words that overflow, as they do in machine code.
            with np.errstate(over="ignore"):
                return _returned(_in_python(self._function)(*arguments))
        finally:
            taken_s = time.thread_time() - begun_s
            self._spent_s += taken_s
            self._longest_s = max(self._longest_s, taken_s)
            self._largest = max(self._largest, _elements(arguments))


def _codes(function: Any, found: set[CodeType]) -> set[CodeType]:
    """The bytecode of a loop and of all that it calls."""
    if function.__code__ not in found:
        found.add(function.__code__)
        for name in function.__code__.co_names:
            called = function.__globals__.get(name)
            if isinstance(called, Dispatcher):
                _codes(called.py_func, found)
    return found


def _returned(value: Any) -> Any:
    """Numbers as machine code returns them: Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, tuple):
        return value
    values = map(_returned, value)
    return type(value)(*values) if hasattr(value, "_fields") else tuple(values)


def _in_python(function: Any) -> Any:
    """The function with each loop that it calls as one of Python, too: none of them looks types up."""
    if function not in _made:
        names: dict[str, Any] = {}
        cells = tuple(CellType(_called_in_python(cell.cell_contents)) for cell in function.__closure__ or ())
        # Kept before its names are: a loop may call itself.
        _made[function] = FunctionType(
            function.__code__, names, function.__name__, function.__defaults__, cells
        )
        names |= {name: _called_in_python(value) for name, value in function.__globals__.items()}
    return _made[function]


def _called_in_python(value: Any) -> Any:
    return _in_python(value.py_func) if isinstance(value, Dispatcher) else value


def _elements(value: Any) -> int:
    """How many elements arrays have, those within tuples too."""
    if isinstance(value, np.ndarray):
        return value.size
    return sum(map(_elements, value)) if isinstance(value, tuple) else 0


@contextmanager
def all_compiled() -> Iterator[None]:
    """In this process, loops are compiled while the block runs, however little they have to do."""
    _compiling.append(True)
    try:
        yield
    finally:
        _compiling.pop()


def fitting_loops() -> tuple[int, int]:
    """How many loops came with the package, and how many of them fit this processor and these versions."""
    baseline = _baseline(cpu_target.target_context.codegen().magic_tuple())
    here = [baseline and [*baseline], [*_VERSIONS]]
    shipped = shipped_loops()
    made_for = [json.loads(label)[3:5] for label in shipped.labels()] if shipped is not None else []
    return len(made_for), made_for.count(here)


def _baseline(processor: tuple[str, str, str]) -> tuple[str, str, str] | None:
    """What a shipped loop for a processor like this one was compiled for; None where it could not run."""
    triple, name, features = processor
    baseline, needed = BASELINES.get(triple.partition("-")[0], ("", frozenset[str]()))
    has = {feature[1:] for feature in features.split(",") if feature.startswith("+")}
    return (triple, baseline, "") if baseline and (name == baseline or needed <= has) else None


@functools.cache
def _sources(module: str) -> tuple[tuple[str, str, str], ...]:
    """Digests of what decides the code of a module's loops: of its file, of those of all loops and helpers
    that they can call, and of this one; and of the numbers that each imports, which are compiled in.
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
    """The names in the module of a loop, or of a helper that numba was taught; None for anything else."""
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
    """Let names of what this process compiles differ from those of any other.

    numba numbers what it generates from 1 in every process, and of functions with one name the linker keeps
    the first: two loops from the cache, compiled in two processes, would share what only has the same name,
    such as the helpers that sort numbers and those that sort their places.
    """
    FunctionIdentity._unique_ids = itertools.count(secrets.randbits(62))


# What the innermost ``all_compiled`` and the environment say; functions by what they are in Python.
_compiling = [bool(os.environ.get(COMPILE_ALL))]
_made: dict[Any, Any] = {}
_name_apart()
os.register_at_fork(after_in_child=_name_apart)
_store = loop_store()
_looking_up = threading.RLock()


def _writable_too(found: Any) -> Any:
    """The type of an argument, whether an array may be written to or not: one machine code is for both.

    No loop writes to what its caller has locked, and each combination would be compiled for seconds.
    """
    if isinstance(found, _named_tuple):
        return _tuple_of(tuple(map(_writable_too, found.types)), found.instance_class)
    return found.copy(readonly=False) if isinstance(found, types.Array) else found


def _widened(found: Any) -> Any:
    """The type of an argument as loops are compiled for it: an integer of any width below 64, or a number
    that is known, is an int64; one machine code is for all of them.
    """
    plain = _plain(found)
    return types.int64 if plain in types.integer_domain and plain != types.uint64 else plain


def compiled(function: Function) -> Function:
    """Compile ``function`` when it has much to do; later processes load it from the cache.

    It must have no comprehension: where it has one, numba drops as dead what is written to arrays of tuples.
    """
    return _loop(function, _Interpreted(function))


def compiled_always(function: Function) -> Function:
    """Compile ``function`` at its first call: what it does, as with addresses, Python cannot do."""
    return _loop(function, None)


def _loop(function: Function, interpreted: _Interpreted | None) -> Function:
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined] # numba fills its config at import
        return function
    # Nothing calls a loop from C.
    loop: Any = _njit(nogil=True, no_cfunc_wrapper=True)(function)
    # numba asks the loop itself.
    loop.typeof_pyval = lambda value: _writable_too(type(loop).typeof_pyval(loop, value))
    loop._cache = kept = _Kept(function)  # what njit(cache=True) does, with numba's own cache
    compile_one, compile_for_call = loop.compile, loop._compile_for_args

    def compile_in_turn(sig: Any) -> Any:
        arguments = tuple(map(_widened, _normalized(sig)[0]))
        with kept.compiling():
            return compile_one(arguments)

    def callable_for(*arguments: Any) -> Any:
        # Threads share what numba keeps of the call that it looks types up for.
        with _looking_up:
            if interpreted is not None and interpreted.suits(arguments):
                if interpreted.begun:
                    return interpreted
                try:
                    if not kept.is_there(tuple(_widened(loop.typeof_pyval(value)) for value in arguments)):
                        return interpreted
                finally:
                    loop._types_active_call.clear()
            return compile_for_call(*arguments)

    loop.compile = compile_in_turn
    # What numba's dispatcher asks where it has no machine code for the types of a call.
    loop._compile_for_args = callable_for
    return cast(Function, loop)


def machine_code(loop: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """The loop for arguments of these types: its calls take no time to find out of what types they are."""
    dispatcher: Any = loop
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined] # numba fills its config at import
        return loop
    found: Callable[..., Any] = dispatcher.compile(tuple(map(dispatcher.typeof_pyval, arguments)))
    return found
