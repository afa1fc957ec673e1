"""The kernels' names of element types and operators."""

from __future__ import annotations

from exec.program import dtype_name, dtype_of, ufunc_of

__all__ = ["ELEMENTS", "OPERATORS", "element_of", "operator_of"]

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
# An average is a sum that the last kernel divides.
OPERATORS = {"sum": "Sum", "prod": "Prod", "min": "Min", "max": "Max", "avg": "Sum"}


def element_of(dtype: str) -> str:
    """Return the kernel's name of an element type; raises UsageError if the kernel lacks the type."""
    return ELEMENTS[dtype_name(dtype_of(dtype))]


def operator_of(redop: str) -> str:
    """Return the kernel's name of an operator; raises UsageError if the kernel lacks the operator."""
    ufunc_of(redop)
    return OPERATORS[redop]
