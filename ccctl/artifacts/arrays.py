"""Conversion of columns of numbers between the NumPy arrays of records and the lists of JSON."""

from __future__ import annotations

from typing import Any, get_args, get_origin

__all__ = ["column_dtype", "entry_range", "json_type", "to_column", "to_plain"]


def column_dtype(expected: Any) -> Any:
    """Return the NumPy type of a column's entries, or None where ``expected`` is no column."""
    import numpy as np

    if get_origin(expected) is not np.ndarray:
        return None
    return np.dtype(get_args(get_args(expected)[1])[0])


def to_column(expected: Any, value: object) -> object:
    """Return a read-only column of a list of numbers; raises ValueError for any other value."""
    import numpy as np

    dtype = column_dtype(expected)
    if dtype is None:
        raise TypeError(f"cannot decode {expected}")
    if not isinstance(value, list):
        raise ValueError(f"Expected `array`, got `{json_type(value)}`")
    allowed, wanted, *_ = entry_range(dtype)
    if not set(map(type, value)) <= allowed:
        raise ValueError(f"expected a list of {wanted}")
    try:
        column = np.array(value, dtype=dtype)
    except OverflowError as error:
        raise ValueError(f"expected a list of {wanted}") from error
    column.setflags(write=False)
    return column


def to_plain(value: object) -> object:
    """Return a column, or a number of NumPy, as plain Python values."""
    import numpy as np

    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"cannot encode {type(value)}")


def entry_range(dtype: Any) -> tuple[set[type], str, Any, Any]:
    """Return (allowed Python types, what to call them, smallest, largest)."""
    import numpy as np

    if dtype.kind == "f":
        limit = float(np.finfo(dtype).max)
        return {int, float}, "a number", -limit, limit
    limits = np.iinfo(dtype)
    return {int}, f"an integer from {limits.min} to {limits.max}", int(limits.min), int(limits.max)


def json_type(value: object) -> str:
    """Return the JSON word for the type of a decoded value."""
    names = {dict: "object", list: "array", str: "str", bool: "bool", type(None): "null"}
    return names.get(type(value), type(value).__name__)
