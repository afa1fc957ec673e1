"""The rows of `ccctl training compare` as they arrive, and their summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.artifacts import codec
from ccctl.render import figures
from ccctl.summaries.rows_so_far import RowsSoFar

if TYPE_CHECKING:
    from exec.training.workloads import Mode, TrainedMode, TrainingReport

__all__ = ["TrainingRows", "summary_of"]


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
        if self._output is not None:
            codec.write(self._output, self.kind, report, self._inputs)
        self.finish(report)
        if self._json:
            console.summary(self.summary(report))
        return report

    def summary(self, report: TrainingReport) -> dict[str, Any]:
        return summary_of(report)

    def _print_foot(self, report: TrainingReport) -> None:
        from ccctl.render.text.training import notes

        for line in notes(report):
            console.data(line)

    def _print_row(self, report: TrainingReport, rows: Sequence[TrainedMode], row: TrainedMode) -> None:
        from ccctl.render.text.training import TrainingTable, training as text
        from exec.training.workloads import label_of

        labels = [label_of(mode.name, mode.bucket_bytes) for mode in self._modes]
        head, line = TrainingTable(labels).lines(report, [row])
        if not self._printed:
            console.data(text.headline(report))
            console.data(head)
        console.data(line)


def summary_of(report: TrainingReport) -> dict[str, Any]:
    """Return what ``training compare --json`` prints."""
    told = figures(
        report,
        "model parameter_bytes ranks hosts backend steps batch compute_s target seed machine interrupted",
    )
    return told | {"rows": [_row(row) for row in report.rows]}


def _row(row: TrainedMode) -> dict[str, Any]:
    return {
        **figures(row, "mode bucket_bytes"),
        "iteration_s": row.time_s,
        **figures(row.spread, "min_s p25_s p75_s max_s"),
        **figures(row, "rank_s start_s wire_bytes most_wire_bytes"),
        "loss": float(row.losses[-1]),
        **figures(row, "losses evaluated evaluated_s accuracies accuracy reached_s equal"),
        **figures(row, "replica_difference ddp_difference lost note"),
    }
