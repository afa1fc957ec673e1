"""BackPipe: a bucket's reduce_scatter starts in the backward pass as soon as its last gradient is ready.

Paper: DeAR, Sec. III-B. All ranks start the reduce_scatters in the order of the buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from exec.training.dear.bucket import GradientBucket
from probes.base import UsageError

__all__ = ["BackPipe"]


class BackPipe:
    """Counter of arriving gradients that starts each complete bucket.

    A round is one reduce_scatter of every bucket, and `end` ends it. If a gradient arrives a second time
    before the round ends, a new round starts, because the accumulated gradient replaces the first.
    ``update_all`` finishes the updates of buckets that the last forward pass did not use.
    """

    def __init__(
        self,
        buckets: Sequence[GradientBucket],
        name_of: Callable[[Any], str],
        update_all: Callable[[], None],
    ) -> None:
        self.buckets = list(buckets)
        self.bucket_of = {each: bucket for bucket in buckets for each in bucket.parameters}
        self._name_of, self._update_all = name_of, update_all
        self._arrived: set[Any] = set()
        self._launched = self._summed = 0

    @property
    def begun(self) -> bool:
        """Whether gradients have arrived since the last round."""
        return bool(self._arrived or self._launched)

    def arrived(self, parameter: Any, accumulating: bool = False) -> None:
        """Count a gradient; one that is ``accumulating`` is not final and does not count."""
        bucket = self.bucket_of.get(parameter)
        if bucket is None:
            return
        if bucket.pending:
            raise UsageError(
                f"{self._name_of(parameter)} was used in a forward pass before it was updated, outside the "
                "forward of its module and of the whole model",
                hint="Call synchronize() before such a forward pass.",
            )
        if accumulating:
            return
        if parameter in self._arrived or self._launched == len(self.buckets):
            self.end()
        self._arrived.add(parameter)
        bucket.missing -= 1
        while self._launched < len(self.buckets) and not self.buckets[self._launched].missing:
            self._launch()

    def reduce_all(self) -> None:
        """Start the remaining buckets, even those with unused parameters, and wait for all."""
        # A launch overwrites gradients that were gathered for an update.
        self._update_all()
        while self._launched < len(self.buckets):
            self._launch()
        for bucket in self.buckets:
            bucket.finish_reducing()

    def end(self) -> None:
        """End the round, and drop reduced gradients that were not used."""
        self.reduce_all()
        for bucket in self.buckets:
            bucket.exchange.gathered()
        self.reset()

    def reset(self) -> None:
        """Start a round."""
        self._arrived.clear()
        self._launched = self._summed = 0
        for bucket in self.buckets:
            bucket.missing = len(bucket.parameters)

    def _launch(self) -> None:
        while self._summed < self._launched and self.buckets[self._summed].exchange.poll():
            self._summed += 1
        self.buckets[self._launched].launch()
        self._launched += 1
