"""The cases that a run tries: a share of the examples of a property test, half of a table of cases.

Long runs try more. Every run draws other examples, so that runs add up; CI always draws the same ones.
"""

import os
from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["chessboard", "drawn"]

# `make test-long` asks for 4.
SHARE = float(os.environ.get("CCCTL_TEST_EXAMPLES", "0.4"))
# Hypothesis tries the simplest values first: with fewer examples these would be all.
LEAST = 10


def drawn(examples: int) -> int:
    """Return how many to draw in this run where ``examples`` would be thorough."""
    return max(min(examples, LEAST), round(examples * SHARE))


def chessboard(rows: Iterable[Any], columns: Iterable[Any]) -> list[Any]:
    """Return all pairs for a parametrized test; `make test` runs every second one, as a chessboard is black.

    Each row so meets half of the columns and each column half of the rows; `make test-long` runs the others.
    """
    across = list(columns)
    return [
        pytest.param(one, other, marks=[pytest.mark.long] * ((row + column) % 2))
        for row, one in enumerate(rows)
        for column, other in enumerate(across)
    ]
