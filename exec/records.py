"""Values as bytes between the processes of a run: typed records, which hold data and no code.

A message is MessagePack of nested lists. The first element of each list is a number for the type of the
value: a plain container, an array, or a record. Records are dataclasses, named tuples, enumerations and
CcctlErrors; each is sent as the name of its class and its fields.

Decoding sets fields and calls no constructor, so a forged message can cause wrong data but nothing worse.
Classes are looked up in ccctl's own packages and in modules that this process has already imported; functions
only in modules named by ``share_functions_of``. A value that occurs twice in a message is sent once, except
in keys and elements of sets, which are hashed.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import importlib
import math
import sys
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache
from pathlib import Path, PurePath
from types import FunctionType
from typing import Any

import msgspec
import numpy as np

from probes.base import CcctlError

__all__ = ["UnsendableError", "decode", "encode", "share_functions_of"]

_OWN = frozenset({"ccctl", "exec", "probes", "synth"})
# Modules whose functions messages may name: they define the tasks that this process was started to run.
_shared_modules: set[str] = set()
# Each level takes a few nested calls, and Python allows 1000 by default.
_MOST_DEPTH = 200
# Longer arrays are cut into pieces, because a byte string of MessagePack has less than 4 GiB.
_PIECE_BYTES = 1 << 30
_INT64 = 1 << 63
_PLAIN = (type(None), bool, float, str, bytes)
_KINDS_OF_ARRAYS = "biufcSUmM"
# Errors that can occur while decoding bytes that are no message.
_MALFORMED = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
    ImportError,
    SyntaxError,
)
(
    _LIST,
    _TUPLE,
    _DICT,
    _SET,
    _FROZENSET,
    _INTEGER,
    _COMPLEX,
    _FRACTION,
    _ARRAY,
    _SCALAR,
    _PATH,
    _CLASS,
    _FUNCTION,
    _ENUM,
    _NAMED_TUPLE,
    _RECORD,
    _ERROR,
    _AGAIN,
    _BYTEARRAY,
    _RANGE,
    _BUILTIN_ERROR,
) = range(21)


class UnsendableError(TypeError):
    """A value cannot be encoded."""


class _Unreadable(ValueError):  # noqa: N818 - a reason, which becomes the text of a ValueError
    pass


def encode(value: object) -> bytes:
    """Return ``value`` as a message; raises UnsendableError if it is neither plain data nor a record."""
    try:
        return msgspec.msgpack.encode(_Encoding().node(value, 0))
    except UnicodeEncodeError as error:
        raise UnsendableError(f"a text that is no Unicode: {error}") from error


def decode(content: bytes) -> Any:
    """Return the value of a message; raises ValueError if ``content`` is no message."""
    try:
        return _Decoding().value(msgspec.msgpack.decode(content))
    except _MALFORMED as error:
        raise ValueError(f"no message of ccctl: {error}") from error


def share_functions_of(module: str) -> None:
    """Allow messages to name functions of ``module``, which defines a task of this process."""
    _shared_modules.add(module)


class _Encoding:
    """The encoding of one message, with the values that it already contains."""

    def __init__(self) -> None:
        # Maps id(value) to (value, its number). The reference keeps Python from reusing the id.
        self._sent: dict[int, tuple[object, int]] = {}
        self._count = 0
        # The number of dict keys and set elements that enclose the value being encoded.
        self._hashed = 0

    def node(self, value: Any, depth: int) -> Any:
        cls = type(value)
        if cls in _PLAIN:
            return value
        if cls is int:
            return value if -_INT64 <= value < _INT64 else [_INTEGER, hex(value)]
        if depth > _MOST_DEPTH:
            raise UnsendableError(f"values inside each other more than {_MOST_DEPTH} deep, or in themselves")
        if not self._hashed and (again := self._sent.get(id(value))) is not None:
            return [_AGAIN, again[1]]
        if cls in _CONTAINERS:
            node = [_CONTAINERS[cls], *self._nodes(value, depth)]
        elif cls in _SETS:
            node = [_SETS[cls], *self._hashables(value, depth)]
        elif cls is dict:
            keys = self._hashables(value, depth)
            node = [_DICT, keys, *self._nodes(value.values(), depth)]
        else:
            node = self._special(value, depth)
        if node[0] in _SHARED:
            self._sent[id(value)] = (value, self._count)
            self._count += 1
        return node

    def _hashables(self, values: Iterable[Any], depth: int) -> list[Any]:
        """Return the nodes of values that are hashed, without references to earlier values.

        With references, hashing a value from a short forged message could take for ever.
        """
        self._hashed += 1
        nodes = self._nodes(values, depth)
        self._hashed -= 1
        return nodes

    def _nodes(self, values: Iterable[Any], depth: int) -> list[Any]:
        return [self.node(value, depth + 1) for value in values]

    def _special(self, value: Any, depth: int) -> list[Any]:
        cls: Any = type(value)
        if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
            return _array(value)
        if isinstance(value, np.generic):
            return [_SCALAR, value.dtype.str, value.tobytes()]
        if isinstance(value, enum.Enum):
            return [_ENUM, _name(cls), self.node(value.value, depth + 1)]
        if isinstance(value, tuple) and hasattr(cls, "_fields"):
            return [_NAMED_TUPLE, _name(cls), *self._nodes(value, depth)]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [getattr(value, name) for name in _fields(cls)]
            return [_RECORD, _name(cls), *self._nodes(fields, depth)]
        # mpi4py wraps the error of a task in another error; only the task's is sent.
        if isinstance(value, Exception) and value.args and isinstance(value.args[0], Exception):
            return self._special(value.args[0], depth)
        if isinstance(value, CcctlError):
            return [_ERROR, _name(cls), *self._nodes((value.args, value.__dict__), depth)]
        if _is_record(value):
            return [_CLASS, _name(value)]
        if isinstance(value, BaseException):
            known = next(base for base in cls.__mro__ if base.__module__ == "builtins")
            words = [each if type(each) in (str, int, float) else str(each) for each in value.args]
            return [_BUILTIN_ERROR, known.__name__, *words]
        if isinstance(value, FunctionType) and _is_shared(value.__module__):
            return [_FUNCTION, _name(value)]
        simple = _SIMPLE.get(cls) or (_path if isinstance(value, PurePath) else None)
        if simple is None:
            cls_name = f"{cls.__module__}.{cls.__qualname__}"
            raise UnsendableError(f"{cls_name}: expected plain values, arrays of numbers, or dataclasses")
        return simple(value)


def _array(value: Any) -> list[Any]:
    if (value.dtype.kind not in _KINDS_OF_ARRAYS and value.dtype.names is None) or value.dtype.hasobject:
        raise UnsendableError(f"an array of {value.dtype}: expected numbers")
    content = np.ascontiguousarray(value).tobytes()
    pieces = [content]
    if len(content) > _PIECE_BYTES:
        pieces = [content[at : at + _PIECE_BYTES] for at in range(0, len(content), _PIECE_BYTES)]
    described: Any = (
        value.dtype.str if value.dtype.names is None else [list(field) for field in value.dtype.descr]
    )
    return [_ARRAY, described, value.flags.writeable, list(value.shape), *pieces]


def _path(value: PurePath) -> list[Any]:
    return [_PATH, str(value)]


_CONTAINERS: dict[Any, int] = {list: _LIST, tuple: _TUPLE}
_SETS: dict[Any, int] = {set: _SET, frozenset: _FROZENSET}
_SHARED = frozenset({_LIST, _TUPLE, _SET, _FROZENSET, _DICT, _ARRAY, _NAMED_TUPLE, _RECORD})
_SIMPLE: dict[type, Callable[[Any], list[Any]]] = {
    Fraction: lambda value: [_FRACTION, hex(value.numerator), hex(value.denominator)],
    complex: lambda value: [_COMPLEX, value.real, value.imag],
    bytearray: lambda value: [_BYTEARRAY, bytes(value)],
    range: lambda value: [_RANGE, value.start, value.stop, value.step],
}


class _Decoding:
    """The decoding of one message, with the values decoded so far."""

    def __init__(self) -> None:
        self._sent: list[Any] = []
        self._hashed = 0

    def value(self, node: Any) -> Any:
        if type(node) is not list:
            if type(node) is not int and type(node) not in _PLAIN:
                raise _Unreadable(f"a {type(node).__name__}")
            return node
        kind, *parts = node
        if kind == _RECORD:
            made = self._record(*parts)
        elif kind == _ARRAY:
            made = _array_of(*parts)
        elif kind == _NAMED_TUPLE:
            cls = _class(parts[0])
            if not (issubclass(cls, tuple) and len(getattr(cls, "_fields", ())) == len(parts) - 1):
                raise _Unreadable(f"{parts[0]} is no such named tuple")
            made = tuple.__new__(cls, self._values(parts[1:]))
        else:
            reader = _READERS.get(kind)
            if reader is None:
                raise _Unreadable(f"type {kind!r}")
            made = reader(self, parts)
            if kind not in _SHARED:
                return made
        self._sent.append(made)
        return made

    def _values(self, nodes: list[Any]) -> list[Any]:
        return [self.value(node) for node in nodes]

    def _reference(self, parts: list[Any]) -> Any:
        (number,) = parts
        if self._hashed:
            raise _Unreadable("a value again in a key")
        if type(number) is not int or not 0 <= number < len(self._sent):
            raise _Unreadable(f"value {number!r} again")
        return self._sent[number]

    def _record(self, name: str, *nodes: Any) -> Any:
        cls = _class(name)
        if not hasattr(cls, "__dataclass_fields__") or len(_fields(cls)) != len(nodes):
            raise _Unreadable(f"{name} is no such dataclass")
        made: Any = object.__new__(cls)
        for field, node in zip(_fields(cls), nodes, strict=True):
            object.__setattr__(made, field, self.value(node))
        return made

    def _error(self, parts: list[Any]) -> CcctlError:
        cls = _class(parts[0])
        arguments, attributes = self._values(parts[1:])
        if not issubclass(cls, CcctlError) or type(arguments) is not tuple or type(attributes) is not dict:
            raise _Unreadable(f"{parts[0]} is no expected error")
        made: CcctlError = cls.__new__(cls, *arguments)
        made.__dict__.update(attributes)
        return made

    def _builtin_error(self, parts: list[Any]) -> BaseException:
        name, *words = parts
        cls = getattr(builtins, name)
        if not issubclass(cls, BaseException) or any(type(word) is list for word in words):
            raise _Unreadable(f"{name} is no error of Python")
        made: BaseException = cls.__new__(cls, *words)
        made.args = tuple(words)
        return made

    def _member(self, parts: list[Any]) -> enum.Enum:
        cls = _class(parts[0])
        if not issubclass(cls, enum.Enum):
            raise _Unreadable(f"{parts[0]} is no enumeration")
        found: enum.Enum = cls(self.value(parts[1]))
        return found

    def _dict(self, parts: list[Any]) -> dict[Any, Any]:
        keys, *values = parts
        return dict(zip(self._hashables(keys), self._values(values), strict=True))

    def _hashables(self, nodes: list[Any]) -> list[Any]:
        self._hashed += 1
        values = self._values(nodes)
        self._hashed -= 1
        return values


def _array_of(described: Any, writeable: bool, shape: list[int], *pieces: bytes) -> Any:
    dtype = np.dtype([tuple(each) for each in described] if type(described) is list else described)
    if dtype.hasobject or not dtype.itemsize:
        raise _Unreadable("an array of objects, or of nothing")
    content = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if any(type(each) is not int or each < 0 for each in shape) or math.prod(shape) * dtype.itemsize != len(
        content
    ):
        raise _Unreadable(f"an array of {shape} {dtype} in {len(content)} bytes")
    return np.ndarray(shape, dtype, bytearray(content) if writeable else content)


def _is_shared(module: str) -> bool:
    return module in _shared_modules


@cache
def _fields(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


def _name(found: Any) -> str:
    return f"{found.__module__}:{found.__qualname__}"


def _look_up(name: str) -> Any:
    """Return the object named ``package.module:qualified.name``; None for an unknown or forbidden name."""
    if type(name) is not str:
        raise _Unreadable("a name that is no text")
    module, _, path = name.partition(":")
    if module.partition(".")[0] in _OWN:
        found: Any = (
            importlib.import_module(module) if all(map(str.isidentifier, module.split("."))) else None
        )
    else:
        found = sys.modules.get(module)
    # vars() is used because getattr() can run code: reading an attribute of ``ctypes.cdll`` loads the library
    # of that name.
    first, *inner = path.split(".")
    found = vars(found).get(first) if found is not None else None
    for part in inner:
        found = vars(found).get(part) if isinstance(found, type) else None
    return found


def _is_record(found: Any) -> bool:
    """Return whether ``found`` is a class whose instances hold data only."""
    return isinstance(found, type) and (
        dataclasses.is_dataclass(found)
        or issubclass(found, enum.Enum | CcctlError)
        or (issubclass(found, tuple) and hasattr(found, "_fields"))
    )


@cache
def _class(name: str) -> Any:
    """Return the class of this name; raises ValueError unless its instances hold data only."""
    found = _look_up(name)
    if not _is_record(found) or _name(found) != name:
        raise _Unreadable(f"{name[:200]} is no record")
    return found


def _function(name: str) -> Callable[..., Any]:
    found = _look_up(name) if _is_shared(str(name).partition(":")[0]) else None
    if not isinstance(found, FunctionType) or _name(found) != name:
        raise _Unreadable(f"{str(name)[:200]} is no function of ccctl")
    return found


_READERS: dict[int, Callable[[_Decoding, list[Any]], Any]] = {
    _LIST: _Decoding._values,
    _TUPLE: lambda it, parts: tuple(it._values(parts)),
    _DICT: _Decoding._dict,
    _SET: lambda it, parts: set(it._hashables(parts)),
    _FROZENSET: lambda it, parts: frozenset(it._hashables(parts)),
    _INTEGER: lambda it, parts: int(parts[0], 16),
    _COMPLEX: lambda it, parts: complex(*map(float, parts)),
    _FRACTION: lambda it, parts: Fraction(int(parts[0], 16), int(parts[1], 16)),
    _SCALAR: lambda it, parts: _array_of(parts[0], False, [], parts[1])[()],
    _PATH: lambda it, parts: Path(parts[0]),
    _CLASS: lambda it, parts: _class(parts[0]),
    _FUNCTION: lambda it, parts: _function(parts[0]),
    _ENUM: _Decoding._member,
    _ERROR: _Decoding._error,
    _BUILTIN_ERROR: _Decoding._builtin_error,
    _AGAIN: _Decoding._reference,
    # memoryview(n) raises TypeError, whereas bytearray(n) would allocate n zeros.
    _BYTEARRAY: lambda it, parts: bytearray(memoryview(parts[0])),
    _RANGE: lambda it, parts: range(*parts),
}
