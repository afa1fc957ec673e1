"""Copies between arrays in compiled loops, because numba takes seconds to compile ``a[:] = b``."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from synth.kernels.compiled_loop import compiled

__all__ = ["copy_into"]


@compiled
def copy_into(target: NDArray[Any], values: NDArray[Any]) -> None:
    """Copy ``values`` to the first elements of ``target``; both have one dimension."""
    for at in range(len(values)):
        target[at] = values[at]
