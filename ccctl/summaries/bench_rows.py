"""The rows of a benchmark as they come: printed at once, and written before the run has ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.artifacts import codec
from ccctl.errors import CannotWriteError

if TYPE_CHECKING:
    from ccctl.render.text.benchmark import ColumnTable
    from exec.benchmark import BenchRequest, Report, Row

__all__ = ["BenchRows"]

# At most this share of the time goes into writing what is not whole yet.
_SHARE = 0.05


class BenchRows:
    """What came of a benchmark so far.

    The rows are printed as a table, with ``json`` as one object when the run ends early. ``output`` gets a
    report of what there is, which says that it is not whole.
    """

    def __init__(
        self, asked: Sequence[BenchRequest], output: str | None, inputs: dict[str, str], *, json: bool
    ) -> None:
        self._asked, self._output, self._inputs = asked, output, inputs
        self._json, self._drawn = json and output != "-", not json and output != "-"
        self._total = sum(len(request.counts) * len(request.contenders) for request in asked)
        self._pieces: list[Report] = []
        self._table: ColumnTable | None = None
        self._printed = 0
        self._ready_s = 0.0
        self._warned = False

    def keep(self, piece: Report) -> None:
        """Print and write the rows of the next size; the first piece has none."""
        self._pieces.append(piece)
        if not piece.rows:
            return
        # Whoever sees a row may count on the file.
        if self._output not in (None, "-") and time.monotonic() >= self._ready_s:
            self._write_early()
        self._print(self._so_far())

    def finish(self, report: Report) -> None:
        """Print what is not printed yet of the table, then what explains its rows."""
        from ccctl.render.text.benchmark import draw_breakdowns, draw_foot

        self._print(report)
        if self._drawn:
            for line in self._table.notes() if self._table is not None else ():
                console.data(line)
            draw_foot(report)
            draw_breakdowns(report)

    def rescue(self, why: str) -> str:
        """Write what there is when the run ended before its time; returns where it is."""
        report = self._so_far(why)
        if report is None or not report.rows:
            return ""
        if self._output is not None:
            codec.write(self._output, "report", report, self._inputs)
        with suppress(BrokenPipeError):
            self.finish(report)
            if self._json:
                from ccctl.summaries.bench import summary_of

                console.summary(summary_of(report))
        kept = f"{len(report.rows)} of {self._total} rows were measured until then"
        return f"{kept}, and are in {self._output}." if self._output not in (None, "-") else f"{kept}."

    def _so_far(self, why: str = "") -> Report | None:
        from exec.benchmark import gathered

        report = gathered(self._pieces, why)
        if report is None:
            return None
        missing = self._total - len(report.rows)
        return gathered(self._pieces, f"{why}; {missing} of {self._total} rows not measured")

    def _write_early(self) -> None:
        report = self._so_far("the run had not ended when this was written")
        begun_s = time.monotonic()
        try:
            codec.write(str(self._output), "report", report, self._inputs)
        except CannotWriteError as error:
            # It may be writable in the end, and the rows are printed in any case.
            if not self._warned:
                console.warn(error.message)
            self._warned = True
        ended_s = time.monotonic()
        self._ready_s = ended_s + (ended_s - begun_s) / _SHARE

    def _print(self, report: Report | None) -> None:
        if not self._drawn or report is None:
            return
        rows = report.rows[self._printed :]
        self._printed = len(report.rows)
        try:
            for row in rows:
                self._print_row(report, rows, row)
            console.flush()
        except BrokenPipeError:
            # Whoever read the table has left; a file is still wanted.
            if self._output is None:
                raise
            self._drawn = False

    def _print_row(self, report: Report, rows: Sequence[Row], row: Row) -> None:
        from ccctl.render.text.benchmark import ColumnTable, draw_head

        if self._table is None:
            draw_head(report)
        if self._table is None or not self._table.fits(row):
            self._table = ColumnTable(rows, self._widest(), console.width())
            lines = self._table.lines([row])
        else:
            lines = self._table.lines([row])[-1:]
        for line in lines:
            console.data(line)

    def _widest(self) -> dict[str, str]:
        from exec.program import dtype_name, dtype_of, size_bytes_of

        sizes = [
            size_bytes_of(one.program.collective, max(one.counts), dtype_of(one.dtype).itemsize)
            for one in self._asked
        ]
        names = {entry.name for one in self._asked for entry in one.contenders}
        return {
            "size (B)": str(max(sizes)),
            "count": str(max(max(one.counts) for one in self._asked)),
            "type": max((dtype_name(dtype_of(one.dtype)) for one in self._asked), key=len),
            "redop": max((one.redop for one in self._asked), key=len),
            **({"program": max(names, key=len)} if len(names) > 1 else {}),
        }
