"""Search for the best buffer: DeAR's Bayesian optimization, an improved one, random search, and a grid.

A trial is a buffer and the mean seconds of an iteration with it. The next buffer follows from the trials
alone, so a search can resume later, also on another machine. `best_plan` finds the best buffer by simulation,
without any run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import isfinite
from typing import Literal

import numpy as np

from probes.base import Floats, Longs, floats, longs
from synth.fusion.costs import RingCosts
from synth.fusion.gaussian_process import expected_improvement, posterior
from synth.fusion.methods import DEFAULT_BUFFER_BYTES, Overheads, fusion_plan
from synth.fusion.model import Model
from synth.fusion.plan import FusionPlan

__all__ = ["PAPER_XI", "STRATEGIES", "Strategy", "Tuning", "begun", "best_plan"]

Strategy = Literal["bo", "paper", "grid", "random"]
STRATEGIES: tuple[Strategy, ...] = ("bo", "paper", "grid", "random")
_MIB = 1 << 20
# DeAR's search (Sec. IV-B): the range, and the first buffer.
_LOW_BYTES, _HIGH_BYTES, _FIRST_BYTES = _MIB, 100 * _MIB, 25 * _MIB
# The improvement that a trial must promise in the paper (xi), in iterations per second.
PAPER_XI = 0.1
# The same for ``bo``, in standard deviations of the observed values.
_XI = 0.01
# The buffers whose expected improvement is compared before each trial.
_CANDIDATES = 400
# The number of buffers, and the cycles, that `best_plan` tries.
_BUFFERS = 40
_CYCLES_S = (1e-3, 5e-3, 10e-3)
# The number of buffers of the first grid.
_GRID = 20
# The limits of a file: more trials take long to model, and larger numbers are no measurements.
_MOST_TRIALS, _MOST_BYTES, _MOST_S = 1000, 1 << 50, 1e9


@dataclass(frozen=True, eq=False)
class Tuning:
    """A search for the buffer with the shortest iteration, and its trials so far.

    ``subject`` says in words what is timed; trials of another subject must not be added. ``strategy`` is
    ``bo`` (a Gaussian process that models the logarithm of the seconds over the square root of the buffer),
    ``paper`` (one that models iterations per second over the buffer itself, with xi = 0.1 iterations per
    second), ``grid`` (20 evenly spaced buffers, then a finer grid) or ``random``. Each begins with
    ``first_bytes``.
    """

    subject: str
    strategy: Strategy
    low_bytes: int
    high_bytes: int
    first_bytes: int
    seed: int
    buffer_bytes: Longs
    seconds: Floats

    @property
    def trials(self) -> int:
        return len(self.seconds)

    @property
    def best(self) -> tuple[int, float]:
        """(buffer, seconds) of the fastest trial; there must be one."""
        row = int(np.argmin(self.seconds))
        return int(self.buffer_bytes[row]), float(self.seconds[row])

    def then(self, buffer_bytes: int, seconds: float) -> Tuning:
        """Return the search after one more trial."""
        return replace(
            self,
            buffer_bytes=longs([*self.buffer_bytes.tolist(), buffer_bytes]),
            seconds=floats([*self.seconds.tolist(), seconds]),
        )

    def next_bytes(self) -> int:
        """Return the buffer to try next, which depends on the trials and the seed alone; O(trials³)."""
        if not self.trials:
            return self.first_bytes
        if self.strategy == "random":
            draw = np.random.default_rng([self.seed, self.trials])
            return int(draw.integers(self.low_bytes, self.high_bytes, endpoint=True))
        if self.strategy == "grid":
            return self._on_the_grid()
        return self._promising()

    def problems(self) -> list[str]:
        """Return every inconsistency, as ``path: what is wrong``."""
        found = []
        if not 1 <= self.low_bytes < self.high_bytes <= _MOST_BYTES:
            found.append(f"low_bytes: expected 1 to less than high_bytes, found {self.low_bytes}")
        elif not self.low_bytes <= self.first_bytes <= self.high_bytes:
            found.append(
                f"first_bytes: expected {self.low_bytes} to {self.high_bytes}, found {self.first_bytes}"
            )
        if self.seed < 0:
            found.append(f"seed: expected at least 0, found {self.seed}")
        if len(self.buffer_bytes) != len(self.seconds):
            count = len(self.buffer_bytes)
            found.append(f"seconds: expected {count} values, as many as buffer_bytes, found {self.trials}")
        if self.trials > _MOST_TRIALS:
            found.append(f"seconds: expected at most {_MOST_TRIALS} values, found {self.trials}")
        for row, seconds in enumerate(self.seconds.tolist()):
            if not (isfinite(seconds) and 0 < seconds <= _MOST_S):
                found.append(f"seconds[{row}]: expected more than 0, at most {_MOST_S:g}, found {seconds:g}")
        for row, size in enumerate(self.buffer_bytes.tolist()):
            if not self.low_bytes <= size <= self.high_bytes:
                found.append(
                    f"buffer_bytes[{row}]: expected {self.low_bytes} to {self.high_bytes}, found {size}"
                )
        return found

    def _promising(self) -> int:
        """Return the buffer whose expected improvement is largest among those not yet tried."""
        paper = self.strategy == "paper"
        if paper:
            even = np.linspace(self.low_bytes, self.high_bytes, _CANDIDATES)
        else:
            even = np.linspace(np.sqrt(self.low_bytes), np.sqrt(self.high_bytes), _CANDIDATES) ** 2
        candidates = np.rint(even).astype(np.int64).clip(self.low_bytes, self.high_bytes)
        untried = candidates[~np.isin(candidates, self.buffer_bytes)]
        left = untried if len(untried) else candidates
        # The Gaussian process minimizes, so throughput is negated.
        observed = -1.0 / self.seconds if paper else np.log(self.seconds)
        spread = float(observed.std()) or 1.0
        mean, deviation = posterior(
            self._place(self.buffer_bytes), floats((observed - observed.mean()) / spread), self._place(left)
        )
        least = float((observed.min() - observed.mean()) / spread)
        gain = expected_improvement(mean, deviation, least, PAPER_XI / spread if paper else _XI)
        # If no improvement is expected, try where the uncertainty is largest.
        return int(left[np.argmax(gain if gain.max() > 0 else deviation)])

    def _place(self, size_bytes: Longs) -> Floats:
        """Return the places of buffers in the range, from 0 to 1: linear, or by square root.

        On a logarithmic scale a search would spend its first trials on the smallest buffers, where every
        layer is a bucket. On a linear scale it would hardly try small buffers in a wide range.
        """
        scale = floats if self.strategy == "paper" else np.sqrt
        low, high = scale(np.array([self.low_bytes, self.high_bytes], float))
        return floats((scale(size_bytes) - low) / (high - low))

    def _on_the_grid(self) -> int:
        """Return the buffer of the grid that is farthest from all tried buffers; refine a used-up grid."""
        points = _GRID
        while True:
            grid = np.rint(np.linspace(self.low_bytes, self.high_bytes, points)).astype(np.int64)
            distance = np.abs(grid[:, None] - self.buffer_bytes[None, :]).min(axis=1)
            if distance.max() > 0 or points > self.high_bytes - self.low_bytes:
                return int(grid[np.argmax(distance)])
            points = 2 * points - 1


def begun(
    strategy: Strategy = "bo",
    *,
    subject: str = "",
    low_bytes: int = _LOW_BYTES,
    high_bytes: int = _HIGH_BYTES,
    first_bytes: int = _FIRST_BYTES,
    seed: int = 0,
) -> Tuning:
    """Return a search without trials, by default in the paper's range."""
    return Tuning(subject, strategy, low_bytes, high_bytes, first_bytes, seed, longs([]), floats([]))


def best_plan(model: Model, costs: RingCosts, method: str, overheads: Overheads | None = None) -> FusionPlan:
    """Return the fastest plan of ``method`` with its default buffer or one of 40 from 1 to 100 MiB.

    The 40 buffers are a geometric series. For Horovod, cycles of 1, 5 and 10 ms and the cycle of
    ``overheads`` are also tried.
    """
    extra = overheads or Overheads()
    buffers = [
        DEFAULT_BUFFER_BYTES[method],
        *np.geomspace(_LOW_BYTES, _HIGH_BYTES, _BUFFERS).astype(int).tolist(),
    ]
    cycles = sorted({*_CYCLES_S, extra.cycle_s}) if method == "horovod" else [extra.cycle_s]
    plans = (
        fusion_plan(model, costs, method, buffer, replace(extra, cycle_s=cycle))
        for cycle, buffer in product(cycles, buffers)
    )
    return min(plans, key=lambda plan: plan.iteration_s)
