"""Fields of results, chosen by name: as objects for ``--json``, and as columns of tables.

A field is a path of attributes and keys such as ``outcome.time_s``; in ``hosts.*.name`` the star stands for
each entry of a list. In a record without the field ``x_us``, the name ``x_us`` gives the field ``x_s``, one
time or several, in microseconds. Likewise ``x_percent`` gives the share ``x`` in percent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ccctl import console
from ccctl.render.units import about, seconds

__all__ = ["Column", "Say", "cells", "field", "figures", "print_table"]

Say: TypeAlias = Callable[[str], None]

_FORMS = {"s": seconds, "bytes": about}


def figures(record: object, names: str) -> dict[str, Any]:
    """Return the fields of a record named in the blank-separated ``names``, as plain values.

    ``name=path`` gives the field at a path another name. What lies below a None is None.
    """
    import msgspec

    from ccctl.artifacts import to_plain

    pairs = (word.partition("=") for word in names.split())
    found = {name: field(record, path or name) for name, _, path in pairs}
    plain: dict[str, Any] = msgspec.to_builtins(found, enc_hook=to_plain)
    return plain


def field(record: Any, path: str) -> Any:
    """Return the field of a record at a path."""
    name, _, rest = path.partition(".")
    if record is None:
        return None
    if name == "*":
        return [field(one, rest) if rest else one for one in record]
    value = _own(record, name)
    return field(value, rest) if rest else value


def _own(record: Any, name: str) -> Any:
    known: Any = record.get if isinstance(record, Mapping) else lambda name, _: getattr(record, name, _NONE)
    if (value := known(name, _NONE)) is not _NONE:
        return value
    stem, _, unit = name.rpartition("_")
    value, factor = (known(f"{stem}_s", _NONE), 1e6) if unit == "us" else (known(stem, _NONE), 100.0)
    if unit not in ("us", "percent") or value is _NONE:
        raise AttributeError(f"{type(record).__name__} has no field {name}")
    if value is None:
        return None
    return [factor * one for one in value] if isinstance(value, tuple) else factor * value


_NONE = object()


@dataclass(frozen=True)
class Column:
    """A column of a table: its head, its value (a field or function of a row), and its form.

    ``form`` is a function of the value, or a template such as "{:.2f}x"; if empty, the unit in the name of
    the field decides. None is written as a dash. ``width`` is the least number of characters.
    """

    head: str
    field: str | Callable[[Any], object]
    form: str | Callable[[Any], str] = ""
    width: int = 0

    def value(self, row: Any) -> Any:
        """Return the value of this column in a row."""
        return field(row, self.field) if isinstance(self.field, str) else self.field(row)

    def below(self, part: Callable[[Any], Any]) -> Column:
        """Return this column for rows whose ``part`` has the field; without a part, it is None."""

        def value(row: Any) -> Any:
            below = part(row)
            return None if below is None else self.value(below)

        return replace(self, field=value, form=self._form)

    @property
    def _form(self) -> str | Callable[[Any], str]:
        unit = self.field.rpartition("_")[2] if isinstance(self.field, str) else ""
        return self.form or _FORMS.get(unit, str)

    def cell(self, row: Any) -> str:
        """Return the text of this column in a row."""
        if (value := self.value(row)) is None:
            return "-"
        return self._form.format(value) if isinstance(self._form, str) else self._form(value)


def cells(columns: Sequence[Column], rows: Sequence[Any]) -> tuple[list[str], list[list[str]]]:
    """Return the heads of a table and its rows as text."""
    return [column.head for column in columns], [[column.cell(row) for column in columns] for row in rows]


def print_table(
    columns: Sequence[Column], rows: Sequence[Any], say: Say = console.data, *, most: int = 0, noun: str = ""
) -> None:
    """Print a table through ``say``: all rows, or the first ``most`` and how many ``noun`` are left."""
    heads, shown = cells(columns, rows[: most or None])
    if say is console.data:
        console.table(heads, shown)
    else:
        for line in console.aligned(heads, shown):
            say(line)
    if most and len(rows) > most:
        say(f"… and {len(rows) - most} more {noun}")
