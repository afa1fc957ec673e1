"""The fusion artifact: the bucket of every tensor, and the timeline of an iteration."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np

from probes.base import Ints, Longs
from synth.fusion.costs import RingCosts, speedup_max
from synth.fusion.model import MOST_ENTRIES, MOST_TENSOR_BYTES
from synth.fusion.timeline import BACKWARD, FORWARD, Timeline

__all__ = ["FusionPlan"]

# Relative tolerance: times are sums of thousands of numbers, in varying order.
_NEAR = 1e-6
# The least time of all passes together: shorter than any real pass, and large enough to divide by.
_LEAST_S = 1e-12


@dataclass(frozen=True, eq=False)
class FusionPlan:
    """A method's overlap of a model's communication with its computation.

    ``tensors`` are in forward order; ``bucket`` is the number of each tensor's bucket. Bucket 0 is ready
    first and holds the last tensors. ``buffer_bytes`` is the requested size of a bucket, 0 if the method has
    none. The ``timeline`` is one iteration, from the start of a backward pass to the end of the next forward
    pass; no communication crosses these two moments.
    """

    model: str
    method: str
    ranks: int
    alpha_s: float
    beta_s_per_byte: float
    buffer_bytes: int
    iteration_s: float
    tensors: tuple[str, ...]
    tensor_bytes: Longs
    bucket: Ints
    timeline: Timeline

    @property
    def buckets(self) -> int:
        return int(self.bucket.max(initial=-1)) + 1

    @property
    def costs(self) -> RingCosts:
        """Costs of collectives that the plan assumes."""
        return RingCosts(self.ranks, self.alpha_s, self.beta_s_per_byte)

    @property
    def compute_s(self) -> float:
        return self.timeline.busy_s(0)

    @property
    def exposed_s(self) -> float:
        """Seconds of communication during which nothing is computed."""
        return max(0.0, self.iteration_s - self.compute_s)

    @property
    def speedup(self) -> float:
        """Speed of all ranks together, relative to one rank alone."""
        return self.ranks * self.compute_s / self.iteration_s

    @property
    def speedup_max(self) -> float:
        """Largest speed-up by equation 6 of DeAR, with collectives that have no start-up time."""
        line = self.timeline
        passes = [float((line.end_s - line.start_s)[line.kind == kind].sum()) for kind in (FORWARD, BACKWARD)]
        half_s = RingCosts(self.ranks, 0.0, self.beta_s_per_byte).reduce_scatter_s(
            int(self.tensor_bytes.sum())
        )
        return speedup_max(self.ranks, passes[0], passes[1], half_s, half_s)

    def problems(self) -> list[str]:
        """Return every inconsistency, as ``path: what is wrong``."""
        count = len(self.tensors)
        found = [
            f"{name}: expected {count} values, as many as tensors, found {len(getattr(self, name))}"
            for name in ("tensor_bytes", "bucket")
            if len(getattr(self, name)) != count
        ]
        found += (
            [] if 1 <= count <= MOST_ENTRIES else [f"tensors: expected 1 to {MOST_ENTRIES}, found {count}"]
        )
        found += [] if 2 <= self.ranks <= 1 << 20 else [f"ranks: expected 2 to {1 << 20}, found {self.ranks}"]
        found += [
            f"{name}: expected a number from 0 to {most:g}, found {value:g}"
            for name, value, most in (
                ("alpha_s", self.alpha_s, 1e6),
                ("beta_s_per_byte", self.beta_s_per_byte, 1.0),
                ("buffer_bytes", self.buffer_bytes, float(1 << 50)),
            )
            if not 0 <= value <= most
        ]
        found += [f"timeline.{problem}" for problem in self.timeline.problems()]
        return found or [*self._wrong_buckets(), *self._wrong_times()]

    def _wrong_buckets(self) -> list[str]:
        step = np.diff(self.bucket)
        found = [
            f"bucket[{row + 1}]: expected {self.bucket[row]} or one less, found {self.bucket[row + 1]}"
            for row in np.flatnonzero((step > 0) | (step < -1)).tolist()[:5]
        ]
        if self.bucket[-1] != 0:
            found.append(f"bucket[{len(self.bucket) - 1}]: expected 0, found {self.bucket[-1]}")
        for row in np.flatnonzero((self.tensor_bytes < 1) | (self.tensor_bytes > MOST_TENSOR_BYTES)).tolist()[
            :5
        ]:
            found.append(
                f"tensor_bytes[{row}]: expected 1 to {MOST_TENSOR_BYTES}, found {self.tensor_bytes[row]}"
            )
        line = self.timeline
        sent = (line.on_network == 1) & ((line.item < 0) | (line.item >= self.buckets))
        for row in np.flatnonzero(sent).tolist()[:5]:
            found.append(f"timeline.item[{row}]: there is no bucket {line.item[row]}")
        return found

    def _wrong_times(self) -> list[str]:
        found = []
        ends_s = self.timeline.time_s
        if not (isfinite(self.iteration_s) and abs(self.iteration_s - ends_s) <= _NEAR * ends_s):
            found.append(
                f"iteration_s: expected {ends_s:g}, the end of the timeline, found {self.iteration_s:g}"
            )
        if not self.compute_s >= _LEAST_S:
            found.append("timeline: expected passes that take time")
        return found
