"""Tensors of torch as arrays on the same memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from exec.program import BFLOAT16, Array

__all__ = ["REDUCIBLE", "array_of", "bytes_of", "flat"]

# The element types that executors reduce, and the executors' names for them.
REDUCIBLE: dict[Any, str] = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.uint8: "uint8",
}


@contextlib.contextmanager
def flat(tensor: Any) -> Iterator[Any]:
    """Yield the elements of ``tensor`` as a flat tensor: its own memory, or a copy that is written back."""
    row = tensor.detach()
    if row.is_contiguous():
        yield row.view(-1)
        return
    copied = row.contiguous()
    yield copied.view(-1)
    row.copy_(copied)


def array_of(row: Any) -> Array:
    """Return a flat CPU tensor as an array on the same memory; `BFLOAT16` for bfloat16, which NumPy lacks."""
    if row.dtype == torch.bfloat16:
        bits: Array = row.view(torch.int16).numpy()
        return bits.view(BFLOAT16)
    array: Array = row.numpy()
    return array


def bytes_of(row: Any) -> Array:
    """Return the bytes of a flat CPU tensor of any type."""
    array: Array = row.view(torch.uint8).numpy()
    return array
