"""The training artifact: losses, accuracies, times and bytes of each mode of a training run."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

from exec.benchmark import Spread
from probes.base import Floats, Longs, format_size

__all__ = ["TrainedMode", "TrainingReport", "label_of"]

# Larger times and byte counts are errors.
_MOST = 2.0**60
# The most values of a column that are reported as wrong.
_MOST_TOLD = 5


@dataclass(frozen=True, eq=False)
class TrainedMode:
    """The results of one trained mode.

    The time of an iteration is the mean over ranks. ``time_s`` is its median after the warm-up, ``spread``
    holds its quartiles, and ``rank_s`` the mean time of each rank. ``start_s`` is the excess of the first
    iteration, in which connections and buffers are made.

    ``wire_bytes`` is the number of bytes that a rank sends over TCP in an iteration, as a mean over ranks;
    ``most_wire_bytes`` is the maximum over ranks. ``losses`` are means over ranks.

    Held-out data is evaluated on each rank's replica after ``evaluated`` iterations, at ``evaluated_s``
    seconds of training without ``start_s``; ``accuracies`` are means over ranks. ``reached_s`` is the time at
    which the target accuracy was first reached, None if never. ``accuracy`` is that of the final model.

    ``replica_difference`` is the largest difference of a parameter between replicas at the end of training,
    before a mode averages them for the last time. ``ddp_difference`` is the largest difference of the final
    model from DDP's, None if DDP was not trained. ``lost`` are ranks that died; ``note`` gives details that
    the mode's name does not show.
    """

    mode: str
    bucket_bytes: int
    time_s: float
    spread: Spread
    rank_s: tuple[float, ...]
    wire_bytes: float
    most_wire_bytes: float
    losses: Floats
    evaluated: Longs
    evaluated_s: Floats
    accuracies: Floats
    accuracy: float
    reached_s: float | None
    replica_difference: float
    ddp_difference: float | None
    lost: tuple[int, ...] = ()
    note: str = ""
    start_s: float = 0.0

    @property
    def label(self) -> str:
        """The mode, and its bucket size if one was requested."""
        return label_of(self.mode, self.bucket_bytes)

    @property
    def equal(self) -> bool:
        """Whether all replicas had the same bits at the end of training."""
        return self.replica_difference == 0


@dataclass(frozen=True, eq=False)
class TrainingReport:
    """A training run: its model, ranks and settings, and a row for each mode.

    ``parameter_bytes`` is the size of the model. ``target`` is the accuracy for which ``reached_s`` is
    reported. ``interrupted`` is the reason for missing rows, if the run ended early.
    """

    model: str
    layers: int
    parameter_bytes: int
    ranks: int
    hosts: tuple[str, ...]
    backend: str
    steps: int
    warmup: int
    batch: int
    compute_s: float
    target: float
    seed: int
    rows: tuple[TrainedMode, ...]
    machine: dict[str, str] = field(default_factory=dict)
    interrupted: str = ""

    def problems(self) -> list[str]:
        """Return a line for each inconsistency, as ``path: what is wrong``."""
        found = [
            f"{name}: expected an integer ≥ 1, found {getattr(self, name)}"
            for name in ("parameter_bytes", "ranks", "steps")
            if getattr(self, name) < 1
        ]
        for at, row in enumerate(self.rows):
            found += [f"rows[{at}].{problem}" for problem in _problems(row)]
        return found


def label_of(mode: str, bucket_bytes: int) -> str:
    """Return the name of a mode, with its bucket size if one was requested: ddp:4M."""
    return f"{mode}:{format_size(bucket_bytes)}" if bucket_bytes else mode


def _problems(row: TrainedMode) -> list[str]:
    found = [
        f"{name}: expected {len(row.evaluated)} values, as many as evaluated, found {len(getattr(row, name))}"
        for name in ("evaluated_s", "accuracies")
        if len(getattr(row, name)) != len(row.evaluated)
    ]
    for name in ("time_s", "start_s", "wire_bytes", "most_wire_bytes"):
        if not 0 <= (value := getattr(row, name)) <= _MOST:
            found.append(f"{name}: expected a number from 0 to {_MOST:g}, found {value}")
    wrong = [at for at, value in enumerate(row.accuracies.tolist()) if not 0 <= value <= 1]
    found += [f"accuracies[{at}]: expected a share from 0 to 1" for at in wrong[:_MOST_TOLD]]
    wrong = [at for at, value in enumerate(row.evaluated_s.tolist()) if not (isfinite(value) and value >= 0)]
    found += [f"evaluated_s[{at}]: expected seconds ≥ 0" for at in wrong[:_MOST_TOLD]]
    if not 0 <= row.accuracy <= 1:
        found.append(f"accuracy: expected a share from 0 to 1, found {row.accuracy}")
    return found
