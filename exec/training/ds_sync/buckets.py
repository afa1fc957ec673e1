"""Parameters averaged in one message: of one large layer, or of several small neighbouring layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from exec.training import Watch

__all__ = ["AveragedBucket", "Layer", "buckets_of", "layers_of"]

# The type of the moving average of half-precision tensors: half precision would lose its small changes.
_PRECISE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


@dataclass(eq=False)
class Layer:
    """The parameters of a module, without those of its submodules, and the buffers averaged with them."""

    parameters: list[Any]
    buffers: list[Any] = field(default_factory=list)


def layers_of(model: Any, trained: Iterable[Any], buffers: Iterable[Any] = ()) -> list[Layer]:
    """Return the layers of ``model`` in the order of the backward pass, estimated from the modules' order.

    Layers contain only ``trained`` parameters; a shared parameter belongs to the first module that has it. A
    module that has only ``buffers`` is a layer too.
    """
    left, averaged = {id(tensor) for tensor in trained}, {id(tensor) for tensor in buffers}
    found = []
    for module in model.modules():
        parameters = [tensor for tensor in module.parameters(recurse=False) if id(tensor) in left]
        kept = [tensor for tensor in module.buffers(recurse=False) if id(tensor) in averaged]
        left -= set(map(id, parameters))
        averaged -= set(map(id, kept))
        if parameters or kept:
            found.append(Layer(parameters, kept))
    return found[::-1]


def buckets_of(layers: Sequence[Layer], least_bytes: int) -> list[AveragedBucket]:
    """Return buckets in the order of ``layers``; a bucket takes layers until it has ``least_bytes``.

    All tensors of a bucket have one type and device. Every rank gets the same buckets.
    """
    open_: dict[tuple[Any, Any], tuple[list[Any], list[Any]]] = {}
    found = []
    for layer in layers:
        for at, tensors in enumerate((layer.parameters, layer.buffers)):
            for tensor in tensors:
                open_.setdefault((tensor.dtype, tensor.device), ([], []))[at].append(tensor)
        for key, (parameters, buffers) in list(open_.items()):
            size_bytes = sum(each.numel() * each.element_size() for each in (*parameters, *buffers))
            if size_bytes >= least_bytes:
                found.append(AveragedBucket(parameters, buffers))
                del open_[key]
    return found + [AveragedBucket(*both) for both in open_.values()]


class AveragedBucket:
    """Tensors that are averaged together, and their progress in this iteration.

    ``left`` is the number of parameters without a gradient yet. ``averages`` is the moving average of the
    tensors as a flat tensor (stochastic weight averaging, SWA), or None.
    """

    def __init__(self, parameters: Sequence[Any], buffers: Sequence[Any]) -> None:
        self.parameters, self.buffers = list(parameters), list(buffers)
        self.tensors = self.parameters + self.buffers
        first = self.tensors[0]
        self._sizes = [tensor.numel() for tensor in self.tensors]
        self._row = torch.empty(sum(self._sizes), dtype=first.dtype, device=first.device)
        self.averages: Any = None
        self.left = len(self.parameters)
        self.stepped = False
        self.launched = False
        self._arrived: Callable[[], None] | None = None
        self._factor: float | None = None

    @property
    def under_way(self) -> bool:
        """Whether the tensors still wait for their average."""
        return self._arrived is not None

    @property
    def size_bytes(self) -> int:
        return int(self._row.numel() * self._row.element_size())

    def begin(self) -> None:
        """Reset the progress for the next iteration."""
        self.left, self.stepped, self.launched = len(self.parameters), False, False

    def launch(
        self, ranks: int, reduce: Callable[[Any], Callable[[], None]], factor: float | None = None
    ) -> None:
        """Start the average over ``ranks`` ranks.

        ``reduce`` starts the sum of a flat tensor over the ranks, and returns a function that waits for it.
        `settle` writes the average to the tensors, and moves the moving average towards it by the share
        1 − ``factor``; None leaves the moving average unchanged.
        """
        self.launched, self._factor = True, factor
        with torch.no_grad():
            torch.cat([tensor.detach().reshape(-1) for tensor in self.tensors], out=self._row)
            if ranks > 1:
                # Divide before the sum, because the sum could overflow in half precision.
                self._row.div_(ranks)
        self._arrived = reduce(self._row) if ranks > 1 else _nothing

    def settle(self) -> None:
        """Wait for the average and write it to the tensors; do nothing if none is under way."""
        if self._arrived is None:
            return
        arrived, self._arrived = self._arrived, None
        arrived()
        Watch.disarm(self.tensors)
        with torch.no_grad():
            if arrived is not _nothing:
                for tensor, part in zip(self.tensors, self.split(self._row), strict=True):
                    tensor.detach().copy_(part)
            if self._factor is not None:
                self._move(self._factor)

    def split(self, row: Any) -> list[Any]:
        """Split ``row``, a flat tensor of the bucket's size, into views of the tensors' shapes."""
        parts = row.split(self._sizes)
        return [part.view(tensor.shape) for part, tensor in zip(parts, self.tensors, strict=True)]

    def put_averages(self, known: dict[int, Any]) -> None:
        """Set the moving average from ``known``, keyed by tensor id, if it holds all tensors."""
        if all(id(tensor) in known for tensor in self.tensors):
            precise = _PRECISE.get(self._row.dtype, self._row.dtype)
            self.averages = torch.cat([known[id(tensor)].reshape(-1).to(precise) for tensor in self.tensors])

    def _move(self, factor: float) -> None:
        precise = self._row.to(_PRECISE.get(self._row.dtype, self._row.dtype))
        if self.averages is None:
            self.averages = precise.clone()
        else:
            self.averages.lerp_(precise, 1 - factor)


def _nothing() -> None:
    """Return at once: the wait of a rank that is alone in its group."""
