"""Parameters or gradients of a model as one tensor, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

__all__ = ["put", "trainable", "values"]


def trainable(model: torch.nn.Module) -> list[Any]:
    """Return the parameters that require gradients, in the model's order; a shared one appears once."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def values(tensors: Iterable[Any]) -> Any:
    """Return a copy of all elements of the tensors, one after the other."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def put(row: Any, tensors: Iterable[Any]) -> None:
    """Copy the elements of ``row`` into the tensors."""
    first = 0
    for tensor in tensors:
        tensor.detach().copy_(row[first : first + tensor.numel()].view_as(tensor))
        first += tensor.numel()
