"""The rows of a run as they arrive, printed at once and saved before the run ends."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.artifacts import codec
from ccctl.errors import CannotWriteError
from ccctl.render.text import ColumnTable, draw_breakdowns, report as bench, training

if TYPE_CHECKING:
    from exec.benchmark import BenchRequest, Report, Row
    from exec.training.workloads import Mode, TrainedMode, TrainingReport

__all__ = ["BenchRows", "TrainingRows"]

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
        with suppress(BrokenPipeError):
            self._write_whole(report)
        kept = f"{len(report.rows)} of {self._total} {self.unit} were {self.done} until then"
        return f"{kept}, and are in {self._output}." if self._output not in (None, "-") else f"{kept}."

    def _write_whole(self, report: Any) -> None:
        if self._output is not None:
            codec.write(self._output, self.kind, report, self._inputs)
        self.finish(report)
        if self._json:
            console.summary(self.summary(report))

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


class BenchRows(RowsSoFar):
    """The rows of a benchmark, one for each size, element type, operator and program."""

    kind, unit, done = "report", "rows", "measured"

    def __init__(
        self, asked: Sequence[BenchRequest], output: str | None, inputs: dict[str, str], *, json: bool
    ) -> None:
        total = sum(len(request.counts) * len(request.contenders) for request in asked)
        super().__init__(total, output, inputs, json=json, to_stdout=output == "-")
        self._asked = asked
        self._table: ColumnTable | None = None

    def summary(self, report: Report) -> dict[str, Any]:
        return bench.summary(report)

    def _print_foot(self, report: Report) -> None:
        for line in self._table.notes() if self._table is not None else ():
            console.data(line)
        bench.draw_foot(report)
        draw_breakdowns(report)

    def _print_row(self, report: Report, rows: Sequence[Row], row: Row) -> None:
        if self._table is None:
            bench.draw_head(report)
        heads = self._table is None or not self._table.fits(row)
        if self._table is None or heads:
            self._table = ColumnTable(rows, self._widest(), console.width())
        for line in self._table.lines([row])[0 if heads else -1 :]:
            console.data(line)

    def _widest(self) -> dict[str, str]:
        from exec.program import dtype_name, dtype_of, size_bytes_of

        sizes = [
            size_bytes_of(one.collective, max(one.counts), dtype_of(one.dtype).itemsize)
            for one in self._asked
        ]
        names = {entry.name for one in self._asked for entry in one.contenders}
        return {
            "size (B)": str(max(sizes)),
            "count": str(max(max(one.counts) for one in self._asked)),
            "type": max((dtype_name(dtype_of(one.dtype)) for one in self._asked), key=len),
            "redop": max((one.redop for one in self._asked), key=len),
            **({"program": max(names, key=len)} if bench.shows_programs(names) else {}),
        }


class TrainingRows(RowsSoFar):
    """The rows of a training comparison, one for each mode."""

    kind, unit, done = "training", "modes", "trained"

    def __init__(
        self,
        modes: Sequence[Mode],
        output: str | None,
        inputs: dict[str, str],
        *,
        json: bool,
        to_stdout: bool,
    ) -> None:
        super().__init__(len(modes), output, inputs, json=json, to_stdout=to_stdout)
        self._modes = modes

    def end(self) -> TrainingReport:
        """Write the whole report, print its remaining rows, and return it."""
        report: TrainingReport = self.gathered()
        self._write_whole(report)
        return report

    def summary(self, report: TrainingReport) -> dict[str, Any]:
        return training.summary(report)

    def _print_foot(self, report: TrainingReport) -> None:
        for line in training.notes(report):
            console.data(line)

    def _print_row(self, report: TrainingReport, rows: Sequence[TrainedMode], row: TrainedMode) -> None:
        from exec.training.workloads import label_of

        labels = [label_of(mode.name, mode.bucket_bytes) for mode in self._modes]
        head, line = training.lines(report, [row], labels)
        for text in [line] if self._printed else [training.headline(report), head, line]:
            console.data(text)
