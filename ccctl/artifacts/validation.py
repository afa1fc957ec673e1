"""Validation: every place where a document does not fit its dataclass, with path and expectation."""

from __future__ import annotations

import dataclasses
import re
import types
from itertools import islice
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ccctl.artifacts.arrays import column_dtype, entry_range, json_type, to_column

__all__ = ["ENOUGH", "mismatches"]

# A wrong document may have a mismatch in every entry; the first ones show what is wrong. They fit on a
# terminal of 24 lines.
ENOUGH = 20
# The most characters of a value in a message, so that it fits on a line with its path.
_SHOWN = 40
_WORDS = {"int": "an integer", "float": "a number", "str": "a text", "bool": "true or false", "null": "null"}
_WORDS |= {"array": "a list", "object": "an object"}


def mismatches(value: object, expected: Any, path: str) -> list[str]:
    """Return the places where ``value`` does not fit ``expected``; of a list or table at most ENOUGH + 1.

    Descends only where something is wrong, so a right document costs one conversion.
    """
    import msgspec

    try:
        msgspec.convert(value, expected, dec_hook=to_column)
    except msgspec.ValidationError as error:
        return _inner(value, expected, path) or [f"{path}: {_reworded(str(error))}"]
    return []


def _inner(value: object, expected: Any, path: str) -> list[str]:
    origin, arguments = get_origin(expected), get_args(expected)
    if origin in (Union, types.UnionType):
        meant = [kind for kind in arguments if kind is not type(None)]
        return _inner(value, meant[0], path) if value is not None and len(meant) == 1 else []
    if origin is Literal:
        return [f"{path}: expected one of {', '.join(map(str, arguments))}, found {_shown(value)}"]
    if isinstance(value, dict):
        return _in_object(value, expected, path)
    if isinstance(value, list):
        if (dtype := column_dtype(expected)) is not None:
            return _in_column(value, dtype, path)
        if origin in (tuple, list):
            return _in_list(value, arguments, path)
    return []


def _in_object(value: dict[str, object], expected: Any, path: str) -> list[str]:
    if get_origin(expected) is dict:
        entry = get_args(expected)[1]
        inside = (p for key, inner in value.items() for p in mismatches(inner, entry, f"{path}.{key}"))
        return list(islice(inside, ENOUGH + 1))
    if not dataclasses.is_dataclass(expected) or not isinstance(expected, type):
        return []
    hints = get_type_hints(expected)
    found = []
    for field in dataclasses.fields(expected):
        if field.name in value:
            found += mismatches(value[field.name], hints[field.name], f"{path}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            found.append(f"{path}.{field.name}: missing")
    return found


def _in_list(value: list[object], arguments: tuple[Any, ...], path: str) -> list[str]:
    if len(arguments) == 1 or arguments[1] is Ellipsis:
        entries = [arguments[0]] * len(value)
    elif len(arguments) == len(value):
        entries = list(arguments)
    else:
        return [f"{path}: expected a list of {len(arguments)}, found {len(value)}"]
    pairs = enumerate(zip(value, entries, strict=True))
    inside = (p for index, (entry, kind) in pairs for p in mismatches(entry, kind, f"{path}[{index}]"))
    return list(islice(inside, ENOUGH + 1))


def _in_column(value: list[object], dtype: Any, path: str) -> list[str]:
    allowed, wanted, low, high = entry_range(dtype)
    bad = (
        index for index, entry in enumerate(value) if type(entry) not in allowed or not low <= entry <= high
    )
    return [
        f"{path}[{index}]: expected {wanted}, found {_shown(value[index])}"
        for index in islice(bad, ENOUGH + 1)
    ]


def _reworded(text: str) -> str:
    text = text.split(" - at `$")[0]
    if match := re.fullmatch(r"Expected `(.+)`, got `(.+)`", text):
        return f"expected {_in_words(match[1])}, found {_in_words(match[2])}"
    return text[:1].lower() + text[1:]


def _in_words(names: str) -> str:
    return " or ".join(_WORDS.get(name, name) for name in names.split(" | "))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, int | float | str) else _WORDS[json_type(value)]
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
