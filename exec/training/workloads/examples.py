"""Examples to train on from a file: 64 numbers and the class, 0 to 9, in each line of a CSV file."""

from __future__ import annotations

import numpy as np

from probes.base import DataError, Floats
from probes.files import MOST_TEXT_BYTES, decoded, inflated, read_bytes

__all__ = ["CLASSES", "FEATURES", "HELD_OUT_OF", "TABULAR", "read_examples"]

CLASSES, FEATURES = 10, 64
# One in this many examples is held out, so a file must have at least as many.
HELD_OUT_OF = 6
# The models whose input is a row of numbers.
TABULAR = ("mlp", "moe")


def read_examples(path: str) -> Floats:
    """Return the rows of a CSV file, gzipped or not; raises MissingInputError or DataError."""
    text = decoded(inflated(read_bytes(path), path, MOST_TEXT_BYTES), path)
    lines = [line for line in text.splitlines() if line.strip()]
    try:
        # An empty list makes NumPy print a warning.
        rows = np.loadtxt(lines, delimiter=",", ndmin=2, comments=None) if lines else np.empty((0, 0))
    except ValueError as error:
        raise DataError(path, [f"expected {FEATURES + 1} numbers a line: {error}"]) from error
    if len(rows) < HELD_OUT_OF or rows.shape[1] != FEATURES + 1:
        raise DataError(
            path,
            [
                f"expected at least {HELD_OUT_OF} lines of {FEATURES} numbers and a class, found "
                f"{len(rows)} of {rows.shape[1]}"
            ],
        )
    # The model computes in float32, which cannot hold larger numbers.
    wrong = ~(np.abs(rows) < np.finfo(np.float32).max).all(axis=1)
    wrong |= ~np.isin(rows[:, -1], np.arange(CLASSES))
    if wrong.any():
        raise DataError(
            path,
            [
                f"row {row + 1}: expected finite numbers and a class from 0 to {CLASSES - 1} at the end"
                for row in np.flatnonzero(wrong)[:5]
            ],
        )
    return rows
