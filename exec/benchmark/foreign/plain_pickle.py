"""Reads pickles that hold plain data alone, without running or importing anything.

`pickletools` of the standard library takes the file apart into instructions and carries out none. This module
carries out only the instructions that PyTorch's own writer and Python's protocols 2 to 5 use for
dictionaries, lists, tuples, strings and numbers. PyTorch wraps lists of numbers in a call of
``torch.jit._pickle.build_intlist`` or the like; such a call becomes its argument. Everything else is refused,
and so are data that are too deep, or too large when shared values are counted at each use.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any

__all__ = ["load_plain"]

# A short pickle can use one list again and again, so the number of values is bounded.
_MOST_VALUES = 20_000_000
_MOST_DEPTH = 64
_MOST_INTEGER_BITS = 127
_LISTS = frozenset(f"torch.jit._pickle build_{kind}list" for kind in ("int", "double", "bool"))


class _Mark:
    """Marks on the stack where the items of a container begin."""


class _ListBuilder:
    """One of PyTorch's functions that return their argument as a list."""


_MARK, _LIST_BUILDER = _Mark(), _ListBuilder()


def load_plain(content: bytes) -> Any:
    """Return the value of a pickle of plain data.

    Raises ValueError for anything else, and for data beyond the bounds. The time is linear in the content.
    """
    reader = _Reader()
    for instruction, argument, reader.at in pickletools.genops(content):
        if instruction.name == "STOP":
            break
        carry_out = _INSTRUCTIONS.get(instruction.name)
        if carry_out is None:
            raise ValueError(f"byte {reader.at}: instruction {instruction.name} makes no plain data")
        carry_out(reader, argument)
    return reader.pop()


class _Reader:
    """The stack and the memo of a pickle; the instruction being carried out is at byte ``at``."""

    def __init__(self) -> None:
        self.at: int | None = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        # For each container by its id: (number of values, shared ones counted at each use; depth; the
        # container itself, so that its id is not reused).
        self._measured: dict[int, tuple[int, int, Any]] = {}
        # Containers that are part of another, or were referred to again: they may not change any more.
        self._closed: set[int] = set()

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise ValueError(f"byte {self.at}: a value is missing")
        return self._stack.pop()

    def items(self) -> list[Any]:
        """Remove and return the values above the last mark."""
        for start in range(len(self._stack) - 1, -1, -1):
            if self._stack[start] is _MARK:
                items = self._stack[start + 1 :]
                del self._stack[start:]
                return items
        raise ValueError(f"byte {self.at}: a mark is missing")

    def container(self, value: Any, items: list[Any]) -> None:
        """Push a new container that holds ``items``."""
        self._measured[id(value)] = (1, 1, value)
        # Python has only one empty tuple, so an earlier use may have closed it.
        self._closed.discard(id(value))
        self._grow(value, items)
        self.push(value)

    def _grow(self, value: Any, items: list[Any]) -> None:
        """Count ``items`` as part of ``value``; raise ValueError beyond the bounds."""
        if id(value) in self._closed or id(value) not in self._measured:
            raise ValueError(f"byte {self.at}: a value changes after it was used")
        values, depth, _ = self._measured[id(value)]
        for item in items:
            inner, below, _ = self._measured.get(id(item), (1, 0, None))
            values, depth = values + inner, max(depth, below + 1)
            if id(item) in self._measured:
                self._closed.add(id(item))
            elif item is _LIST_BUILDER:
                raise ValueError(f"byte {self.at}: a function is no plain data")
        if values > _MOST_VALUES or depth > _MOST_DEPTH:
            raise ValueError(f"more than {_MOST_VALUES} values, or {_MOST_DEPTH} inside each other")
        self._measured[id(value)] = (values, depth, value)

    def _top(self, kind: type) -> Any:
        if not self._stack or type(self._stack[-1]) is not kind:
            raise ValueError(f"byte {self.at}: expected a {kind.__name__}")
        return self._stack[-1]

    def append(self, items: list[Any]) -> None:
        found = self._top(list)
        self._grow(found, items)
        found.extend(items)

    def set(self, items: list[Any]) -> None:
        found = self._top(dict)
        keys = items[::2]
        if len(items) % 2 or not all(isinstance(key, str | int | float | bool | None) for key in keys):
            raise ValueError(f"byte {self.at}: expected keys that are words or numbers")
        self._grow(found, items)
        found.update(zip(keys, items[1::2], strict=True))

    def integer(self, value: int) -> None:
        if value.bit_length() > _MOST_INTEGER_BITS:
            raise ValueError(f"byte {self.at}: an integer of {value.bit_length()} bits")
        self.push(value)

    def text(self, value: str) -> None:
        # Replace surrogates, which cannot be printed.
        self.push(value.encode(errors="replace").decode())

    def memoize(self, index: int | None) -> None:
        if not self._stack:
            raise ValueError(f"byte {self.at}: a value is missing")
        self._memo[len(self._memo) if index is None else index] = self._stack[-1]

    def recall(self, index: int) -> None:
        if index not in self._memo:
            raise ValueError(f"byte {self.at}: nothing is stored as {index}")
        found = self._memo[index]
        if id(found) in self._measured:
            self._closed.add(id(found))
        self.push(found)

    def name(self, name: str) -> None:
        if name not in _LISTS:
            raise ValueError(f"{name[:160]} is no plain data")
        self.push(_LIST_BUILDER)

    def call(self) -> None:
        arguments, function = self.pop(), self.pop()
        plain = type(arguments) is tuple and len(arguments) == 1 and type(arguments[0]) is list
        if function is not _LIST_BUILDER or not plain:
            raise ValueError(f"byte {self.at}: a call is no plain data")
        self.push(arguments[0])

    def tuple(self, items: list[Any]) -> None:
        self.container(tuple(items), items)

    def last(self, count: int) -> list[Any]:
        return [self.pop() for _ in range(count)][::-1]


_INSTRUCTIONS: dict[str, Callable[[_Reader, Any], object]] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda reader, value: None),
    "MARK": lambda reader, _: reader.push(_MARK),
    "NONE": lambda reader, _: reader.push(None),
    "NEWTRUE": lambda reader, _: reader.push(True),
    "NEWFALSE": lambda reader, _: reader.push(False),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "LONG4"), _Reader.integer),
    "BINFLOAT": _Reader.push,
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), _Reader.text),
    "EMPTY_DICT": lambda reader, _: reader.container({}, []),
    "EMPTY_LIST": lambda reader, _: reader.container([], []),
    "EMPTY_TUPLE": lambda reader, _: reader.tuple([]),
    "TUPLE": lambda reader, _: reader.tuple(reader.items()),
    "TUPLE1": lambda reader, _: reader.tuple(reader.last(1)),
    "TUPLE2": lambda reader, _: reader.tuple(reader.last(2)),
    "TUPLE3": lambda reader, _: reader.tuple(reader.last(3)),
    "SETITEM": lambda reader, _: reader.set(reader.last(2)),
    "SETITEMS": lambda reader, _: reader.set(reader.items()),
    "APPEND": lambda reader, _: reader.append(reader.last(1)),
    "APPENDS": lambda reader, _: reader.append(reader.items()),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "MEMOIZE"), _Reader.memoize),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _Reader.recall),
    "GLOBAL": _Reader.name,
    "STACK_GLOBAL": lambda reader, _: reader.name(" ".join(map(str, reader.last(2)))),
    "REDUCE": lambda reader, _: reader.call(),
}
