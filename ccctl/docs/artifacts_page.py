"""The page ccctl-artifacts(5): the envelope, and the fields of each kind, from its dataclasses."""

from __future__ import annotations

import dataclasses
import inspect
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ccctl.artifacts import codec, column_dtype, nested
from ccctl.docs.page import Block, Entries, Mentions, Page, Section, Subsection, Text

__all__ = ["artifacts_page"]

_ENVELOPE = (
    ("schema", "ccctl/<kind>/<major>. Another major version is refused, with both versions named."),
    ("created", "When it was written, in ISO 8601 and UTC."),
    ("tool", "The name and version of the program that wrote it."),
    ("host", "The host it was written on."),
    ("inputs", "The sha256 of each artifact that it was made from, by name."),
    ("body", "What the kind holds; see below."),
)
_FORM = """An artifact is what one command hands to the next: one JSON object in UTF-8, its keys sorted,
with a trailing newline. A name that ends in .gz is compressed. The name - is standard input or output, so
that commands pipe.

Large tables are stored by column: each field is a list of numbers, all of one length; entry i of each list
belongs to row i.

A reader ignores fields that it does not know and reports every problem of a file at once, each with its path.
A file is replaced as a whole: a reader never sees a part of one, even when the writer is killed.

ccctl schema KIND prints the JSON Schema of a kind."""
_PLAIN = {int: "integer", float: "number", str: "text", bool: "true or false"}
_MANY = {int: "integers", float: "numbers", str: "texts"}


def artifacts_page() -> Page:
    """Return the page of all kinds."""
    kinds = tuple(
        Section(f"{kind.upper()} (VERSION {major})", _kind(codec.body_type(kind)))
        for kind, (_, major) in codec.KINDS.items()
    )
    return Page(
        "ccctl-artifacts",
        5,
        "the files that ccctl reads and writes",
        (
            Section("DESCRIPTION", (Text(_FORM),)),
            Section("ENVELOPE", (Entries(_ENVELOPE),)),
            *kinds,
            Section("SEE ALSO", (Mentions((("ccctl", 1), ("ccctl-schema", 1))),)),
        ),
    )


def _kind(body: type) -> tuple[Block | Subsection, ...]:
    return *_fields(body), *(Subsection(part.__name__, _fields(part)) for part in nested(body))


def _fields(cls: Any) -> tuple[Block, ...]:
    hints = get_type_hints(cls)
    rows = tuple(
        (field.name, _type(hints[field.name]) + ("" if _required(field) else "; may be absent"))
        for field in dataclasses.fields(cls)
    )
    described = inspect.cleandoc(cls.__doc__ or "").replace("``", "")
    return Text(described), Entries(rows)


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _type(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if (dtype := column_dtype(hint)) is not None:
        return f"column of {'numbers' if dtype.kind == 'f' else f'integers ({dtype})'}"
    if origin is Literal:
        return "one of " + ", ".join(str(word) or '""' for word in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if kind is type(None) else _type(kind) for kind in arguments)
    if origin is dict:
        return f"object of {_many(arguments[1])} by name"
    if origin in (tuple, list):
        fixed = len(arguments) > 1 and arguments[1] is not Ellipsis
        return "list: " + ", ".join(map(_type, arguments)) if fixed else f"list of {_many(arguments[0])}"
    return _PLAIN.get(hint) or str(hint.__name__)


def _many(hint: Any) -> str:
    return _MANY.get(hint) or _type(hint)
