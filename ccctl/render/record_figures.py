"""The figures of a record as ``--json`` prints them."""

from __future__ import annotations

from typing import Any

__all__ = ["figures"]


def figures(record: object, names: str) -> dict[str, Any]:
    """Return the attributes of a record named in the blank-separated ``names``; arrays as lists.

    A name ``x_us`` gives the attribute ``x_s``, which is in seconds, in microseconds.
    """
    return {name: _plain(record, name) for name in names.split()}


def _plain(record: object, name: str) -> Any:
    value = getattr(record, f"{name[:-3]}_s") * 1e6 if name.endswith("_us") else getattr(record, name)
    return value.tolist() if hasattr(value, "tolist") else value
