"""Tuning of the bucket size during training (DeAR, Sec. IV-B)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from synth.fusion import Tuning

__all__ = ["Retuning"]


class Retuning:
    """A search over ``trials`` bucket sizes, each timed for ``steps`` iterations after an untimed one.

    The time is that of the slowest rank; rank 0 chooses the next size.
    """

    def __init__(self, search: Tuning, trials: int, steps: int, group: Any, device: Any) -> None:
        self.search = search
        self._trials, self._steps = trials, steps
        self._group, self._device = group, device
        self._counted = -1
        self._began_s = 0.0

    @property
    def first_bytes(self) -> int:
        """The first size to try, the same on all ranks; collective."""
        return self._agreed(self.search.next_bytes())

    def stepped(self, size_bytes: int) -> int | None:
        """Count a step with ``size_bytes``; return the next size at the end of a trial, else None.

        The end of a trial is collective.
        """
        self._counted += 1
        if self._counted < self._steps:
            if self._counted == 0:
                self._began_s = time.perf_counter()
            return None
        mean_s = (time.perf_counter() - self._began_s) / self._steps
        slowest = torch.tensor([mean_s], dtype=torch.float64, device=self._device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX, group=self._group)
        self.search = self.search.then(size_bytes, float(slowest.item()))
        self._counted = -1
        return self._agreed(self.search.best[0] if self.done else self.search.next_bytes())

    @property
    def done(self) -> bool:
        return self.search.trials >= self._trials

    def _agreed(self, size_bytes: int) -> int:
        agreed = torch.tensor([size_bytes], dtype=torch.int64, device=self._device)
        dist.broadcast(agreed, dist.get_global_rank(self._group, 0), group=self._group)
        return int(agreed.item())
