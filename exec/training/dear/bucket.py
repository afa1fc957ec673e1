"""Gradients that are communicated together, in one flat tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from exec.training.dear.decoupled_all_reduce import Halves
from probes.base import UsageError

__all__ = ["GradientBucket"]


class GradientBucket:
    """The gradients of ``parameters``, of one type on one device, followed by a flag for each.

    A flag is 1 if this rank has a gradient for the parameter. A parameter whose flags add up to 0 was used by
    no rank: it gets no gradient, and optimizers leave it unchanged, as with DistributedDataParallel.
    ``reduced`` is set after the reduce_scatter, ``gathering`` once the all_gather has started, and
    ``pending`` while the parameters wait for their update.
    """

    def __init__(self, parameters: Sequence[Any], group: Any) -> None:
        first = parameters[0]
        self.parameters = list(parameters)
        self.count = sum(parameter.numel() for parameter in parameters)
        self._halves = Halves(group, first.device)
        lengths = self._halves.lengths(self.count + len(parameters), first.element_size())
        row = torch.zeros(sum(lengths), dtype=first.dtype, device=first.device)
        self.exchange = self._halves.exchange(row)
        parts = row[: self.count].split([parameter.numel() for parameter in parameters])
        self.views = [part.view(each.shape) for part, each in zip(parts, parameters, strict=True)]
        self._flags = row[self.count : self.count + len(parameters)]
        self._sent: list[tuple[Any, int]] = []
        self.missing = len(self.parameters)
        self.reduced = self.gathering = self.pending = False

    @property
    def size_bytes(self) -> int:
        """The bytes of the gradients."""
        return int(self.count * self.exchange.row.element_size())

    @property
    def shards(self) -> list[Any]:
        """This rank's part of the reduced gradients, without flags."""
        pairs = zip(self.exchange.shards, self.exchange.blocks, strict=True)
        return [shard[: max(0, self.count - first)] for shard, (first, _) in pairs]

    def launch(self) -> None:
        """Start the reduce_scatter of the current gradients, divided by the number of ranks as in DDP."""
        self._sent, scale = [], 1.0 / self._halves.size
        with torch.no_grad():
            for parameter, view in zip(self.parameters, self.views, strict=True):
                gradient = parameter.grad
                if gradient is None:
                    view.zero_()
                elif gradient.layout != torch.strided:
                    raise UsageError(
                        "a gradient is sparse, and buckets hold dense ones",
                        hint="Make the embedding with sparse=False.",
                    )
                else:
                    torch.mul(gradient, scale, out=view)
                self._sent.append((gradient, -1 if gradient is None else gradient._version))
            self._flags.copy_(torch.tensor([float(sent is not None) for sent, _ in self._sent]))
        self.reduced = self.gathering = False
        self.exchange.reduce_scatter()

    def finish_reducing(self) -> None:
        """Wait for the reduce_scatter."""
        if not self.reduced:
            self.exchange.reduced()
            self.reduced = True

    def unchanged(self) -> bool:
        """Return whether the parameters still have the gradients that were sent."""
        return all(
            _is_still(parameter, sent, version)
            for parameter, (sent, version) in zip(self.parameters, self._sent, strict=True)
        )

    def show(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Copy the averages in ``pairs``, from `finish_gathering`, into ``.grad``.

        A gradient that the script has dropped or replaced since it was sent stays as it is.
        """
        known = dict(zip(self.parameters, self._sent, strict=True)) if self._sent else {}
        with torch.no_grad():
            for parameter, average in pairs:
                if parameter not in known or not _is_still(parameter, *known[parameter]):
                    continue
                if parameter.grad is None:
                    parameter.grad = average.clone()
                else:
                    parameter.grad.copy_(average)

    def forget(self) -> None:
        """Stop writing averages into ``.grad``, because the script has dropped the gradients."""
        self._sent = []

    def gather(self) -> None:
        """Start the all_gather, unless it has started."""
        if not self.gathering:
            self.exchange.all_gather()
            self.gathering = True

    def finish_gathering(self) -> list[tuple[Any, Any]]:
        """Wait for the all_gather; return (parameter, averaged gradient) of those that any rank used."""
        self.exchange.gathered()
        flags = self._flags.tolist()
        return [
            pair
            for pair, flag in zip(zip(self.parameters, self.views, strict=True), flags, strict=True)
            if flag
        ]


def _is_still(parameter: Any, gradient: Any, version: int) -> bool:
    """Return whether a parameter has this gradient, unchanged since ``version``."""
    return parameter.grad is gradient and (gradient is None or gradient._version == version)
