"""The rows of `ccctl training compare` as they come: printed at once, written before the run ends."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.artifacts import codec
from ccctl.errors import CannotWriteError

if TYPE_CHECKING:
    from exec.training.workloads import Mode, TrainedMode, TrainingReport

__all__ = ["TrainingRows", "summary_of"]


_EARLY = "the run had not ended when this was written"


class TrainingRows:
    """The results of a training run so far; ``output`` gets a report of it after each mode."""

    def __init__(
        self,
        modes: Sequence[Mode],
        output: str | None,
        inputs: dict[str, str],
        *,
        json: bool,
        to_stdout: bool,
    ) -> None:
        self._modes, self._output, self._inputs = modes, output, inputs
        self._json, self._drawn = json and not to_stdout, not json and not to_stdout
        self._pieces: list[TrainingReport] = []
        self._printed = 0

    def keep(self, piece: TrainingReport) -> None:
        """Write and print the next mode; a piece without rows begins a run."""
        self._pieces.append(piece)
        if not piece.rows:
            return
        if self._output not in (None, "-"):
            try:
                codec.write(str(self._output), "training", self._so_far(_EARLY), self._inputs)
            except CannotWriteError as error:
                # It may be writable in the end, and the rows are printed in any case.
                console.warn(error.message)
        self._print()

    def finish(self) -> TrainingReport:
        """Write the whole report, print what is not printed yet, and return it."""
        from exec.training.workloads import gathered

        report = gathered(self._pieces)
        assert report is not None, "a run that ends well has rows"
        if self._output is not None:
            codec.write(self._output, "training", report, self._inputs)
        self._print()
        if self._json:
            console.summary(summary_of(report))
        elif self._drawn:
            from ccctl.render.text.training import notes

            for line in notes(report):
                console.data(line)
        return report

    def rescue(self, why: str) -> str:
        """Write what there is when the run ended before its time; returns where it is."""
        report = self._so_far(why)
        if report is None or not report.rows:
            return ""
        if self._output is not None:
            codec.write(self._output, "training", report, self._inputs)
        with suppress(BrokenPipeError):
            self._print()
            if self._json:
                console.summary(summary_of(report))
        kept = f"{len(report.rows)} of {len(self._modes)} modes were trained until then"
        return f"{kept}, and are in {self._output}." if self._output not in (None, "-") else f"{kept}."

    def _so_far(self, why: str) -> TrainingReport | None:
        from exec.training.workloads import gathered

        rows = sum(len(piece.rows) for piece in self._pieces)
        return gathered(self._pieces, f"{why}; {len(self._modes) - rows} of {len(self._modes)} modes missing")

    def _print(self) -> None:
        from exec.training.workloads import gathered

        report = gathered(self._pieces)
        if not self._drawn or report is None:
            return
        from ccctl.render.text.training import TrainingTable, training as text
        from exec.training.workloads import label_of

        rows = report.rows[self._printed :]
        try:
            for row in rows:
                lines = TrainingTable([label_of(mode.name, mode.bucket_bytes) for mode in self._modes]).lines(
                    report, [row]
                )
                if not self._printed:
                    console.data(text.headline(report))
                    console.data(lines[0])
                console.data(lines[1])
                self._printed += 1
            console.flush()
        except BrokenPipeError:
            # Whoever read the table has left; a file is still wanted.
            if self._output is None:
                raise
            self._drawn = False


def summary_of(report: TrainingReport) -> dict[str, Any]:
    """What ``train --json`` prints."""
    return {
        "model": report.model,
        "parameter_bytes": report.parameter_bytes,
        "ranks": report.ranks,
        "hosts": list(report.hosts),
        "backend": report.backend,
        "steps": report.steps,
        "batch": report.batch,
        "compute_s": report.compute_s,
        "target": report.target,
        "seed": report.seed,
        "machine": report.machine,
        "interrupted": report.interrupted,
        "rows": [_row(row) for row in report.rows],
    }


def _row(row: TrainedMode) -> dict[str, Any]:
    return {
        "mode": row.mode,
        "bucket_bytes": row.bucket_bytes,
        "iteration_s": row.time_s,
        "min_s": row.spread.min_s,
        "p25_s": row.spread.p25_s,
        "p75_s": row.spread.p75_s,
        "max_s": row.spread.max_s,
        "rank_s": list(row.rank_s),
        "start_s": row.start_s,
        "wire_bytes": row.wire_bytes,
        "most_wire_bytes": row.most_wire_bytes,
        "loss": float(row.losses[-1]),
        "losses": row.losses.tolist(),
        "evaluated": row.evaluated.tolist(),
        "evaluated_s": row.evaluated_s.tolist(),
        "accuracies": row.accuracies.tolist(),
        "accuracy": row.accuracy,
        "reached_s": row.reached_s,
        "equal": row.equal,
        "replica_difference": row.replica_difference,
        "ddp_difference": row.ddp_difference,
        "lost": list(row.lost),
        "note": row.note,
    }
