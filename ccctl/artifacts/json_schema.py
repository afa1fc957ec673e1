"""The JSON Schema of each kind of artifact, made from the dataclasses that hold it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

from ccctl.artifacts.codec import KINDS, body_type

__all__ = ["nested", "schema"]


def schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of an artifact's file, envelope included."""
    import msgspec

    cls = body_type(kind)
    (body,), components = msgspec.json.schema_components(
        [cls], schema_hook=lambda _: {"type": "array"}, ref_template="#/$defs/{name}"
    )
    for described in (cls, *nested(cls)):
        _describe_columns(described, components[described.__name__]["properties"])
    text = {"type": "string"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"ccctl {kind}",
        "type": "object",
        "required": ["schema", "body"],
        "properties": {
            "schema": {"const": f"ccctl/{kind}/{KINDS[kind][1]}"},
            "created": {"type": "string", "format": "date-time"},
            "tool": text,
            "host": text,
            "inputs": {"type": "object", "additionalProperties": text},
            "body": body,
        },
        "$defs": components,
    }


def nested(cls: Any) -> list[type]:
    """Return the dataclasses below ``cls``, each once, in the order in which fields name them."""
    return _below(cls, [])


def _below(cls: Any, seen: list[type]) -> list[type]:
    for hint in get_type_hints(cls).values():
        for found in _classes(hint):
            if found not in seen:
                seen.append(found)
                _below(found, seen)
    return seen


def _classes(hint: Any) -> Iterator[type]:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        yield hint
    for argument in get_args(hint):
        yield from _classes(argument)


def _describe_columns(cls: type, properties: dict[str, Any]) -> None:
    """Add the type of each column's entries: msgspec hands its hook an array without its dtype."""
    from ccctl.artifacts.arrays import column_dtype, entry_range

    for name, hint in get_type_hints(cls).items():
        dtype = column_dtype(hint)
        if dtype is None:
            continue
        _, _, low, high = entry_range(dtype)
        integers = {"type": "integer", "minimum": low, "maximum": high}
        properties[name]["items"] = {"type": "number"} if dtype.kind == "f" else integers
