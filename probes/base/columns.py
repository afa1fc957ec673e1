"""Column types: a large table is one NumPy array per field."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Bytes",
    "Floats",
    "Indices",
    "Ints",
    "Longs",
    "Mask",
    "bytes_of",
    "floats",
    "ints",
    "longs",
    "offsets",
    "spans",
]

Ints: TypeAlias = NDArray[np.int32]
Longs: TypeAlias = NDArray[np.int64]
Indices: TypeAlias = NDArray[np.integer[Any]]
Floats: TypeAlias = NDArray[np.float64]
Bytes: TypeAlias = NDArray[np.uint8]
Mask: TypeAlias = NDArray[np.bool_]


def offsets(counts: object) -> Indices:
    """Return where each block of rows begins, and where the last block ends, from the blocks' row counts."""
    return np.concatenate(([0], np.cumsum(np.asarray(counts, dtype=np.int64))))


def spans(first: Indices, counts: Indices) -> Indices:
    """Return ``first[n] … first[n] + counts[n] - 1`` for every n, concatenated."""
    begin = offsets(counts)
    return np.arange(begin[-1]) + np.repeat(first - begin[:-1], counts)


def ints(values: object) -> Ints:
    """Return the values as a read-only int32 column."""
    column: Ints = np.array(values, dtype=np.int32)
    column.setflags(write=False)
    return column


def longs(values: object) -> Longs:
    """Return the values as a read-only int64 column."""
    column: Longs = np.array(values, dtype=np.int64)
    column.setflags(write=False)
    return column


def floats(values: object) -> Floats:
    """Return the values as a read-only float64 column."""
    column: Floats = np.array(values, dtype=np.float64)
    column.setflags(write=False)
    return column


def bytes_of(values: object) -> Bytes:
    """Return the values as a read-only uint8 column."""
    column: Bytes = np.array(values, dtype=np.uint8)
    column.setflags(write=False)
    return column
