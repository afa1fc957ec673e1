"""Sums in the order of the aligned tree, straight from its definition, and programs that must give them."""

from __future__ import annotations

from typing import Any

import numpy as np

from exec.program.dtypes import Array, combine_of, dtype_of, encoded
from synth import Request
from synth.compiler.lowering import lower
from synth.network import Network
from synth.networks import failures_of
from synth.portfolio.plain import fastest_plain
from synth.program import Program

__all__ = ["drawn_inputs", "fixed_sum", "nodes", "reproducible_program"]


def nodes(first: int, leaves: int) -> list[frozenset[int]]:
    """Return the sets of leaves below each node of the aligned tree over ``leaves`` leaves from ``first``."""
    whole = [frozenset(range(first, first + leaves))]
    if leaves == 1:
        return whole
    left = _left(leaves)
    return [*whole, *nodes(first, left), *nodes(first + left, leaves - left)]


def fixed_sum(inputs: list[Array]) -> Array:
    """Return the sum of all inputs in the order of the aligned tree, rounded at each addition."""
    if len(inputs) == 1:
        return inputs[0]
    left = _left(len(inputs))
    added: Array = combine_of("sum", inputs[0].dtype)(fixed_sum(inputs[:left]), fixed_sum(inputs[left:]))
    return added


def drawn_inputs(ranks: int, elements: int, dtype: str, seed: int = 0) -> list[Array]:
    """Return inputs whose sums differ in another order: numbers of many magnitudes.

    Element n is the same for any number of ``elements``.
    """
    random = np.random.default_rng(seed)
    exact = random.standard_normal((elements, ranks)) * 2.0 ** random.integers(-6, 7, (elements, ranks))
    return [encoded(column.astype(np.float32), dtype_of(dtype)) for column in np.ascontiguousarray(exact.T)]


def reproducible_program(
    network: Network, size_bytes: int | None = 1 << 14, *, without: str = "", **options: Any
) -> Program:
    """Return the program of the all_reduce with a fixed order of sums that `synthesize` finds.

    `synthesize` also searches in any order, only to tell what the fixed one costs: this does not.
    """
    failures = failures_of(without, network) if without else None
    asked = Request(network, "all_reduce", size_bytes, without=failures, reproducible=True, jobs=0, **options)
    return lower(fastest_plain(asked.surviving()).listed)


def _left(leaves: int) -> int:
    """Return the largest power of two below ``leaves``."""
    return 1 << (leaves - 1).bit_length() - 1
