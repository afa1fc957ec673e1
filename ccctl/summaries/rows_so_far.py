"""The rows of a run as they arrive, printed at once and saved before the run ends."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ccctl import console
from ccctl.artifacts import codec
from ccctl.errors import CannotWriteError

__all__ = ["RowsSoFar"]

# The largest share of the time that goes into writing incomplete reports.
_SHARE = 0.05


class RowsSoFar(ABC):
    """The rows of a run so far, of ``total`` rows.

    The rows are printed as a table, or with ``json`` as one object if the run ends early. Nothing is printed
    if stdout carries an artifact. ``output`` gets a report of the rows so far, marked as incomplete.
    """

    # The artifact's kind, the words for its rows, and the word for a finished row.
    kind: str
    unit: str
    done: str

    def __init__(
        self, total: int, output: str | None, inputs: dict[str, str], *, json: bool, to_stdout: bool
    ) -> None:
        self._total, self._output, self._inputs = total, output, inputs
        self._json, self._drawn = json and not to_stdout, not json and not to_stdout
        self._pieces: list[Any] = []
        self._printed = 0
        self._ready_s = 0.0
        self._warned = False

    @abstractmethod
    def _print_row(self, report: Any, rows: Sequence[Any], row: Any) -> None:
        """Print one row of the new ``rows``, after the head if it is the first."""

    @abstractmethod
    def _print_foot(self, report: Any) -> None:
        """Print the notes on the rows."""

    @abstractmethod
    def summary(self, report: Any) -> dict[str, Any]:
        """Return the object of ``--json``."""

    def keep(self, piece: Any) -> None:
        """Print and write the rows of a piece; a piece without rows begins a run."""
        self._pieces.append(piece)
        if not piece.rows:
            return
        # Write first, so that a printed row is always in the file.
        if self._output not in (None, "-") and time.monotonic() >= self._ready_s:
            self._write_early()
        self._print(self.gathered())

    def gathered(self, why: str = "") -> Any:
        """Return one report of all pieces; None without pieces; ``why`` says what ended the run early."""
        if not self._pieces:
            return None
        rows = tuple(row for piece in self._pieces for row in piece.rows)
        if why and (missing := self._total - len(rows)):
            why = f"{why}; {missing} of {self._total} {self.unit} not {self.done}"
        return replace(self._pieces[-1], rows=rows, interrupted=why)

    def finish(self, report: Any) -> None:
        """Print the remaining rows, then the notes on the rows."""
        self._print(report)
        if self._drawn:
            self._print_foot(report)

    def rescue(self, why: str) -> str:
        """Write the rows of a run that ended early; return a message on where they are."""
        report = self.gathered(why)
        if report is None or not report.rows:
            return ""
        if self._output is not None:
            codec.write(self._output, self.kind, report, self._inputs)
        with suppress(BrokenPipeError):
            self.finish(report)
            if self._json:
                console.summary(self.summary(report))
        kept = f"{len(report.rows)} of {self._total} {self.unit} were {self.done} until then"
        return f"{kept}, and are in {self._output}." if self._output not in (None, "-") else f"{kept}."

    def _write_early(self) -> None:
        report = self.gathered("the run had not ended when this was written")
        begun_s = time.monotonic()
        try:
            codec.write(str(self._output), self.kind, report, self._inputs)
        except CannotWriteError as error:
            # The file may become writable later, and the rows are printed anyway.
            if not self._warned:
                console.warn(error.message)
            self._warned = True
        ended_s = time.monotonic()
        self._ready_s = ended_s + (ended_s - begun_s) / _SHARE

    def _print(self, report: Any) -> None:
        if not self._drawn:
            return
        rows = report.rows[self._printed :]
        try:
            for row in rows:
                self._print_row(report, rows, row)
                self._printed += 1
            console.flush()
        except BrokenPipeError:
            # The reader of the table is gone, but the file is still needed.
            if self._output is None:
                raise
            self._drawn = False
