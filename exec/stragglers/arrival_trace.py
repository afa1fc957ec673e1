"""Arrival traces: CSV files in which each row holds the times at which the ranks were ready in one iteration.

| part of the file | content                                                                            |
|------------------|------------------------------------------------------------------------------------|
| row              | one time for each rank, in the order of ranks: ``0.0,1.25,38.4``                    |
| time             | by any clock, with a unit (``38.4ms``) or without                                   |
| unit             | that of the time, else that in the column's header (``rank 2 (s)``), else ``unit``   |
| header           | optional, the first row; a column ``iteration`` is ignored                          |
| single column    | the time from the first to the last rank, as in AdapCC's wait_time files            |

Empty lines and lines that begin with # are ignored. A trace of one column does not tell the number of ranks,
nor when the ranks between the first and the last were ready; these count as ready with the first.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

import numpy as np

from exec.stragglers.arrivals import Arrivals, of_lags
from probes.base import CcctlError, DataError, UsageError, decimal, parse_seconds

__all__ = ["UNITS", "parse_trace"]

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
# The most problems that are reported: a wrong separator or unit gives one on every line.
_MOST_PROBLEMS = 20
# More columns are a sign of a file that is no trace.
_MOST_RANKS = 1 << 10
# Whole numbers up to this are exact in a double, so subtracting two times loses no digits.
_MOST = 1e15
_UNIT = re.compile(r"[(\[](s|ms|us)[)\]]\s*$")
_BEGINS_NUMBER = re.compile(r"[-+.0-9]")


def parse_trace(text: str, source: str, *, unit: str = "ms", ranks: int | None = None) -> Arrivals:
    """Return the arrivals in ``text``, read from file ``source``; bare numbers are in ``unit``.

    A trace of one column needs ``ranks``, the number of ranks. If ``ranks`` is given, a trace of more columns
    must have one for each rank. Raises DataError with up to 20 problems and their lines, and UsageError if
    ``ranks`` is missing or wrong.
    """
    reader = _Reader(source, unit)
    moments = np.array(reader.read(text))
    if moments.shape[1] > 1:
        if ranks is not None and ranks != moments.shape[1]:
            raise UsageError(
                f" {ranks}: {source} has {moments.shape[1]} ranks, a column each", argument="ranks"
            )
        return Arrivals.of(moments)
    if ranks is None:
        raise UsageError(
            f": {source} has one column, the lateness of the last rank, which does not tell their number",
            argument="ranks",
        )
    return of_lags(moments[:, 0], ranks)


class _Reader:
    """Reader of one file, which collects its rows and its problems."""

    def __init__(self, source: str, unit: str) -> None:
        self.source, self.unit = source, unit
        self.problems: list[str] = []
        self.rows: list[list[float]] = []

    def read(self, text: str) -> list[list[float]]:
        """Return the rows in seconds; raises DataError where there are problems, or no rows."""
        try:
            self._collect(text)
        except csv.Error as error:
            self.problems.append(f"expected lines with commas: {error}")
        if not self.rows and not self.problems:
            self.problems.append("no iterations; expected lines such as 0.0,1.25,38.4")
        if self.problems:
            hint = "A line holds the time at which each rank was ready: 0.0,1.25,38.4 or 0ms,1.25ms,38.4ms."
            raise DataError(self.source, self.problems[:_MOST_PROBLEMS], hint=hint)
        return self.rows

    def _collect(self, text: str) -> None:
        columns, units = None, None
        for line, fields in enumerate(csv.reader(io.StringIO(text), skipinitialspace=True), start=1):
            stripped = [field.strip() for field in fields]
            if not any(stripped) or stripped[0].startswith("#"):
                continue
            if columns is None:
                columns, units = self._header(stripped)
                width = len(stripped)
                if len(columns) > _MOST_RANKS:
                    self.problems.append(f"line {line}: expected at most {_MOST_RANKS} ranks")
                if units is not None:
                    continue
                units = [self.unit] * width
            if len(self.problems) > _MOST_PROBLEMS:
                return
            if len(stripped) != width:
                self.problems.append(f"line {line}: expected {width} columns, found {len(stripped)}")
                continue
            assert units is not None
            self._row(line, [(stripped[at], units[at]) for at in columns])

    def _header(self, fields: Sequence[str]) -> tuple[list[int], list[str] | None]:
        """Return (the columns of ranks, the unit of each column).

        The units are None if the first row is no header.
        """
        everything = list(range(len(fields)))
        if all(_BEGINS_NUMBER.match(field) for field in fields):
            return everything, None
        units = [found[1] if (found := _UNIT.search(field)) else self.unit for field in fields]
        columns = [at for at in everything if fields[at].lower() != "iteration"]
        if not columns:
            self.problems.append("the header has no column for a rank")
        return columns, units

    def _row(self, line: int, fields: Sequence[tuple[str, str]]) -> None:
        row = []
        for text, unit in fields:
            bare = decimal(text, -_MOST, _MOST)
            try:
                row.append(bare * UNITS[unit] if bare is not None else parse_seconds(text, "moment"))
            except CcctlError as error:
                self.problems.append(f"line {line}: {error.message}")
                return
        self.rows.append(row)
