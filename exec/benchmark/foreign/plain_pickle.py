"""Reads pickles that hold plain data alone, without running or importing anything.

It knows the instructions that PyTorch's own writer and Python's protocols 2 to 5 use for dictionaries, lists,
tuples, strings and numbers (CPython, Lib/pickletools.py). PyTorch wraps lists of numbers in a call of
``torch.jit._pickle.build_intlist`` or the like; such a call becomes its argument. Everything else is refused,
and so are data that are too deep, or too large with shared values written out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

__all__ = ["load_plain"]

_MOST_VALUES = 20_000_000
_MOST_DEPTH = 64
_MOST_INTEGER_BYTES = 16
_LISTS = frozenset({"build_intlist", "build_doublelist", "build_boollist"})
_LIST_MODULE = "torch.jit._pickle"


class _Mark:
    """Marks on the stack where the items of a container begin."""


class _ListBuilder:
    """One of PyTorch's functions that return their argument as a list."""


_MARK, _LIST_BUILDER = _Mark(), _ListBuilder()


def load_plain(content: bytes) -> Any:
    """Return the value of a pickle of plain data.

    O(content). Raises ValueError for anything else, and for data beyond the bounds.
    """
    return _Reader(content).read()


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        # By the identity of a container: (values with shared ones written out, depth, the container itself,
        # which keeps the identity from being used again).
        self._measured: dict[int, tuple[int, int, Any]] = {}
        # Containers that are part of another, or were referred to again: they may not change any more.
        self._closed: set[int] = set()

    def read(self) -> Any:
        while True:
            code = self._take(1)
            if code == b".":
                return self._pop()
            handler = _HANDLERS.get(code)
            if handler is None:
                raise ValueError(f"byte {self._at - 1}: instruction {code!r} makes no plain data")
            handler(self)

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._content):
            raise ValueError(f"it ends within byte {self._at}")
        found = self._content[self._at : end]
        self._at = end
        return found

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _line(self) -> str:
        end = self._content.find(b"\n", self._at, self._at + 256)
        if end < 0:
            raise ValueError(f"byte {self._at}: expected a short name")
        return self._take(end + 1 - self._at)[:-1].decode("ascii", "replace")

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise ValueError(f"byte {self._at}: a value is missing")
        return self._stack.pop()

    def _items(self) -> list[Any]:
        """Remove and return the values above the last mark."""
        for start in range(len(self._stack) - 1, -1, -1):
            if self._stack[start] is _MARK:
                items = self._stack[start + 1 :]
                del self._stack[start:]
                return items
        raise ValueError(f"byte {self._at}: a mark is missing")

    def _container(self, value: Any, items: list[Any]) -> None:
        """Push a new container that holds ``items``."""
        self._measured[id(value)] = (1, 1, value)
        # There is one empty tuple only.
        self._closed.discard(id(value))
        self._grow(value, items)
        self._push(value)

    def _grow(self, value: Any, items: list[Any]) -> None:
        """Count ``items`` as part of ``value``; raise ValueError beyond the bounds."""
        if id(value) in self._closed or id(value) not in self._measured:
            raise ValueError(f"byte {self._at}: a value changes after it was used")
        values, depth, _ = self._measured[id(value)]
        for item in items:
            inner, below, _ = self._measured.get(id(item), (1, 0, None))
            values, depth = values + inner, max(depth, below + 1)
            if id(item) in self._measured:
                self._closed.add(id(item))
            elif item is _LIST_BUILDER:
                raise ValueError(f"byte {self._at}: a function is no plain data")
        if values > _MOST_VALUES or depth > _MOST_DEPTH:
            raise ValueError(f"more than {_MOST_VALUES} values, or {_MOST_DEPTH} inside each other")
        self._measured[id(value)] = (values, depth, value)

    def _top(self, kind: type) -> Any:
        if not self._stack or type(self._stack[-1]) is not kind:
            raise ValueError(f"byte {self._at}: expected a {kind.__name__}")
        return self._stack[-1]

    def _append(self, items: list[Any]) -> None:
        found = self._top(list)
        self._grow(found, items)
        found.extend(items)

    def _set(self, items: list[Any]) -> None:
        found = self._top(dict)
        keys = items[::2]
        if len(items) % 2 or not all(isinstance(key, str | int | float | bool | None) for key in keys):
            raise ValueError(f"byte {self._at}: expected keys that are words or numbers")
        self._grow(found, items)
        found.update(zip(keys, items[1::2], strict=True))

    def _integer(self, count: int) -> None:
        if not 0 <= count <= _MOST_INTEGER_BYTES:
            raise ValueError(f"byte {self._at}: an integer of {count} bytes")
        self._push(int.from_bytes(self._take(count), "little", signed=True))

    def _text(self, count: int) -> None:
        self._push(self._take(count).decode("utf-8", "replace"))

    def _memoize(self, index: int) -> None:
        if not self._stack:
            raise ValueError(f"byte {self._at}: a value is missing")
        self._memo[index] = self._stack[-1]

    def _recall(self, index: int) -> None:
        if index not in self._memo:
            raise ValueError(f"byte {self._at}: nothing is stored as {index}")
        found = self._memo[index]
        if id(found) in self._measured:
            self._closed.add(id(found))
        self._push(found)

    def _name(self, module: str, name: str) -> None:
        if module != _LIST_MODULE or name not in _LISTS:
            raise ValueError(f"{module[:80]}.{name[:80]} is no plain data")
        self._push(_LIST_BUILDER)

    def _call(self) -> None:
        arguments, function = self._pop(), self._pop()
        plain = type(arguments) is tuple and len(arguments) == 1 and type(arguments[0]) is list
        if function is not _LIST_BUILDER or not plain:
            raise ValueError(f"byte {self._at}: a call is no plain data")
        self._push(arguments[0])

    def _tuple(self, items: list[Any]) -> None:
        self._container(tuple(items), items)

    def _last(self, count: int) -> list[Any]:
        return [self._pop() for _ in range(count)][::-1]

    def _stacked_name(self) -> None:
        module, name = self._last(2)
        self._name(str(module), str(name))


_HANDLERS: dict[bytes, Callable[[_Reader], object]] = {
    b"\x80": lambda it: it._take(1),
    b"\x95": lambda it: it._take(8),
    b"(": lambda it: it._push(_MARK),
    b"}": lambda it: it._container({}, []),
    b"]": lambda it: it._container([], []),
    b")": lambda it: it._tuple([]),
    b"t": lambda it: it._tuple(it._items()),
    b"\x85": lambda it: it._tuple(it._last(1)),
    b"\x86": lambda it: it._tuple(it._last(2)),
    b"\x87": lambda it: it._tuple(it._last(3)),
    b"s": lambda it: it._set(it._last(2)),
    b"u": lambda it: it._set(it._items()),
    b"a": lambda it: it._append(it._last(1)),
    b"e": lambda it: it._append(it._items()),
    b"N": lambda it: it._push(None),
    b"\x88": lambda it: it._push(True),
    b"\x89": lambda it: it._push(False),
    b"J": lambda it: it._push(it._number("<i")),
    b"K": lambda it: it._push(it._number("<B")),
    b"M": lambda it: it._push(it._number("<H")),
    b"G": lambda it: it._push(it._number(">d")),
    b"\x8a": lambda it: it._integer(it._number("<B")),
    b"\x8b": lambda it: it._integer(it._number("<i")),
    b"X": lambda it: it._text(it._number("<I")),
    b"\x8c": lambda it: it._text(it._number("<B")),
    b"\x8d": lambda it: it._text(it._number("<Q")),
    b"q": lambda it: it._memoize(it._number("<B")),
    b"r": lambda it: it._memoize(it._number("<I")),
    b"\x94": lambda it: it._memoize(len(it._memo)),
    b"h": lambda it: it._recall(it._number("<B")),
    b"j": lambda it: it._recall(it._number("<I")),
    b"c": lambda it: it._name(it._line(), it._line()),
    b"\x93": lambda it: it._stacked_name(),
    b"R": lambda it: it._call(),
}
