"""The element types and operators of the kernels, and what of an average is left to the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from exec.layout import Layout
from probes.errors import UsageError
from synth.program import OUTPUT

__all__ = ["ELEMENTS", "OPERATORS", "average_parts", "element_of", "itemsize_of", "operator_of"]

# NumPy has no bfloat16: its bits travel as uint16.
ELEMENTS: dict[str, tuple[str, str]] = {
    "float16": ("Half", "float16"),
    "bfloat16": ("Bfloat", "uint16"),
    "float32": ("float", "float32"),
    "float64": ("double", "float64"),
    "int8": ("signed char", "int8"),
    "uint8": ("unsigned char", "uint8"),
    "int16": ("short", "int16"),
    "int32": ("int", "int32"),
    "int64": ("long long", "int64"),
}
# An average is a sum that the last kernel divides.
OPERATORS = {"sum": "Sum", "prod": "Prod", "min": "Min", "max": "Max", "avg": "Sum"}


def element_of(dtype: str) -> str:
    """The kernel's name of an element type; raises UsageError for one that it does not have."""
    if dtype not in ELEMENTS:
        raise UsageError(f"element type: expected one of {', '.join(ELEMENTS)}, found {dtype!r}")
    return ELEMENTS[dtype][0]


def itemsize_of(dtype: str) -> int:
    """Bytes of one element."""
    element_of(dtype)
    storage: np.dtype[Any] = np.dtype(ELEMENTS[dtype][1])
    return storage.itemsize


def operator_of(redop: str) -> str:
    """The kernel's name of an operator; raises UsageError for one that it does not have."""
    if redop not in OPERATORS:
        raise UsageError(f"operator: expected one of {', '.join(OPERATORS)}, found {redop!r}")
    return OPERATORS[redop]


def average_parts(layout: Layout, rank: int) -> list[tuple[int, int, int]]:
    """(first element, elements, ranks added up) of each run of ``rank``'s output to be divided; O(slots)."""
    collective = layout.program.collective
    sizes = collective.sources.sizes()
    found: list[tuple[int, int, int]] = []
    for slot, chunk in enumerate(layout.slots.output_chunks(rank).tolist()):
        if not collective.reduced[chunk]:
            continue
        start, length, added = layout.start(OUTPUT, slot), layout.length(slot), int(sizes[chunk])
        if found and sum(found[-1][:2]) == start and found[-1][2] == added:
            first, before, _ = found.pop()
            start, length = first, before + length
        if length:
            found.append((start, length, added))
    return found
