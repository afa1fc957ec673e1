"""Column types: large tables are columns of numbers, one NumPy array a field."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bytes", "Floats", "Indices", "Ints", "Mask", "bytes_of", "floats", "ints"]

Ints: TypeAlias = NDArray[np.int32]
Indices: TypeAlias = NDArray[np.integer[Any]]
Floats: TypeAlias = NDArray[np.float64]
Bytes: TypeAlias = NDArray[np.uint8]
Mask: TypeAlias = NDArray[np.bool_]


def ints(values: object) -> Ints:
    """A read-only int32 column."""
    column: Ints = np.array(values, dtype=np.int32)
    column.setflags(write=False)
    return column


def floats(values: object) -> Floats:
    """A read-only float64 column."""
    column: Floats = np.array(values, dtype=np.float64)
    column.setflags(write=False)
    return column


def bytes_of(values: object) -> Bytes:
    """A read-only uint8 column."""
    column: Bytes = np.array(values, dtype=np.uint8)
    column.setflags(write=False)
    return column
