"""The figures of a record as ``--json`` prints them."""

from __future__ import annotations

from typing import Any

__all__ = ["figures"]


def figures(record: object, names: str) -> dict[str, Any]:
    """Attributes of a record by their names, with blanks between them; arrays as lists.

    A name that ends in ``_us`` is that of a time in seconds, told in microseconds.
    """
    return {name: _plain(record, name) for name in names.split()}


def _plain(record: object, name: str) -> Any:
    value = getattr(record, f"{name[:-3]}_s") * 1e6 if name.endswith("_us") else getattr(record, name)
    return value.tolist() if hasattr(value, "tolist") else value
