"""The rows of a benchmark as they arrive, and their summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.summaries.bench import summary_of
from ccctl.summaries.rows_so_far import RowsSoFar

if TYPE_CHECKING:
    from ccctl.render.text.benchmark import ColumnTable
    from exec.benchmark import BenchRequest, Report, Row

__all__ = ["BenchRows"]


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
        return summary_of(report)

    def _print_foot(self, report: Report) -> None:
        from ccctl.render.text.benchmark import draw_breakdowns, draw_foot

        for line in self._table.notes() if self._table is not None else ():
            console.data(line)
        draw_foot(report)
        draw_breakdowns(report)

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
