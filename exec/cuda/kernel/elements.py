"""The kernels' names of element types and operators."""

from __future__ import annotations

from exec.program import dtype_name, dtype_of, ufunc_of
from probes.base import UsageError

__all__ = ["ELEMENTS", "OPERATORS", "SWITCH_ELEMENTS", "element_of", "operator_of", "require_switch_sum"]

ELEMENTS: dict[str, str] = {
    "float16": "Half",
    "bfloat16": "Bfloat",
    "float32": "float",
    "float64": "double",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
}
# The types that the kernel lets switches sum.
SWITCH_ELEMENTS = ("float32", "float16", "bfloat16", "int32")
# An average is a sum that the last kernel divides.
OPERATORS = {"sum": "Sum", "prod": "Prod", "min": "Min", "max": "Max", "avg": "Sum"}


def element_of(dtype: str) -> str:
    """Return the kernel's name of an element type; raises UsageError if the kernel lacks the type."""
    return ELEMENTS[dtype_name(dtype_of(dtype))]


def operator_of(redop: str) -> str:
    """Return the kernel's name of an operator; raises UsageError if the kernel lacks the operator."""
    ufunc_of(redop)
    return OPERATORS[redop]


def require_switch_sum(dtype: str, redop: str) -> None:
    """Raise UsageError unless switches sum such elements, as the kernel needs for ``glre`` and ``gstore``."""
    name = dtype_name(dtype_of(dtype))
    if OPERATORS[redop] != "Sum":
        raise UsageError(f"switches only sum (NVLink SHARP), they have no {redop}")
    if name not in SWITCH_ELEMENTS:
        raise UsageError(f"the kernel lets switches sum {', '.join(SWITCH_ELEMENTS)}, not {name}")
