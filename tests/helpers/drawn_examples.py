"""The cases that a run tries: a share of the examples of a property test, a part of a table of cases.

Long runs try more. Every run draws other examples, so that runs add up; CI always draws the same ones.
"""

import os
from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["chessboard", "drawn"]

# `make test-long` asks for 4.
SHARE = float(os.environ.get("CCCTL_TEST_EXAMPLES", "0.25"))
# Hypothesis tries the simplest values first: with fewer examples these would be all.
LEAST = 10


def drawn(examples: int) -> int:
    """Return how many to draw in this run where ``examples`` would be thorough."""
    return max(min(examples, LEAST), round(examples * SHARE))


def chessboard(rows: Iterable[Any], columns: Iterable[Any], *, one_in: int = 2) -> list[Any]:
    """Return all pairs for a parametrized test; `make test` runs every second one, as a chessboard is black.

    Each row so meets half of the columns and each column half of the rows; `make test-long` runs the others.
    With ``one_in`` more than 2, diagonals that many columns apart run; no row or column must be shorter.
    """
    down, across = list(rows), list(columns)
    assert min(len(down), len(across)) >= one_in, "a row or a column would have no case"
    return [
        pytest.param(one, other, marks=[pytest.mark.long] * ((row + column) % one_in != 0))
        for row, one in enumerate(down)
        for column, other in enumerate(across)
    ]
