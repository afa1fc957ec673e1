"""The rows of a run as they come: printed at once, and written before the run has ended."""

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

# At most this share of the time goes into writing what is not whole yet.
_SHARE = 0.05


class RowsSoFar(ABC):
    """What came of a run so far, of ``total`` rows.

    The rows are printed as a table, with ``json`` as one object when the run ends early, and neither where
    stdout is for an artifact. ``output`` gets a report of what there is, which says that it is not whole.
    """

    # The artifact that holds the rows, the words for them, and for one that is there.
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
        """Print one of the ``rows`` that came with it, after the head where it is the first."""

    @abstractmethod
    def _print_foot(self, report: Any) -> None:
        """Print what explains the rows."""

    @abstractmethod
    def summary(self, report: Any) -> dict[str, Any]:
        """Return the object of ``--json``."""

    def keep(self, piece: Any) -> None:
        """Print and write the rows of a piece; one without rows begins a run."""
        self._pieces.append(piece)
        if not piece.rows:
            return
        # Whoever sees a row may count on the file.
        if self._output not in (None, "-") and time.monotonic() >= self._ready_s:
            self._write_early()
        self._print(self.gathered())

    def gathered(self, why: str = "") -> Any:
        """Return one report of all pieces, None of none; ``why`` is what ended the run too early."""
        if not self._pieces:
            return None
        rows = tuple(row for piece in self._pieces for row in piece.rows)
        if why and (missing := self._total - len(rows)):
            why = f"{why}; {missing} of {self._total} {self.unit} not {self.done}"
        return replace(self._pieces[-1], rows=rows, interrupted=why)

    def finish(self, report: Any) -> None:
        """Print what is not printed yet, then what explains the rows."""
        self._print(report)
        if self._drawn:
            self._print_foot(report)

    def rescue(self, why: str) -> str:
        """Write what there is when the run ended before its time; returns where it is."""
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
            # It may be writable in the end, and the rows are printed in any case.
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
            # Whoever read the table has left; a file is still wanted.
            if self._output is None:
                raise
            self._drawn = False
