"""What running a collective gave: the report artifact of ``run``, ``bench`` and ``simulate``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from synth.collective import Kind

__all__ = ["Measurement", "Report", "Row"]


@dataclass(frozen=True)
class Measurement:
    """One placement of one size: seconds are the slowest rank's, per iteration."""

    time_s: float
    p50_s: float
    p99_s: float
    slowest_rank: int
    algbw_gbs: float
    busbw_gbs: float
    wrong: int | None


@dataclass(frozen=True)
class Row:
    """One size: ours in both placements, the prediction, and each peer measured in the same run."""

    collective: Kind
    size_bytes: int
    count: int
    dtype: str
    redop: str
    root: int
    program: str
    predicted_s: float | None
    out_of_place: Measurement | None
    in_place: Measurement | None
    peers: dict[str, Measurement]


@dataclass(frozen=True)
class Report:
    """A table of rows and where it was measured; no environment is recorded."""

    ranks: int
    hosts: tuple[str, ...]
    executor: Literal["mpi", "cuda", "reference"]
    library: str
    warmup: int
    iterations: int
    rows: tuple[Row, ...]
