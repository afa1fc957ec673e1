"""The reduction operators and element types that the executors know."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from probes.base import UsageError, meant

__all__ = [
    "BFLOAT16",
    "DTYPES",
    "REDOPS",
    "Array",
    "Redop",
    "combine_of",
    "decoded",
    "divided",
    "dtype_name",
    "dtype_of",
    "encoded",
    "neutral_of",
    "ufunc_of",
]

Redop = Literal["sum", "prod", "min", "max", "avg"]
Array: TypeAlias = np.ndarray[Any, Any]
REDOPS: tuple[str, ...] = get_args(Redop)
DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")
# NumPy has no bfloat16. A record of one field holds its bits, so that no integer type is mistaken for it.
BFLOAT16 = np.dtype([("bfloat16", np.uint16)])
_SHORT = {
    **{"half": "float16", "float": "float32", "double": "float64", "int": "int32", "char": "int8"},
    **{"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"},
}
# ``f8`` without a suffix is NumPy's name of a type of 8 bytes, not 8 bits.
_EIGHT_BITS = re.compile(r"(?!f8$)(float|fp|f)_?8([-_]?e[45]m[23](fn|fnuz|b11fnuz)?)?|e4m3|e5m2")
_MEANT = {"add": "sum", "mul": "prod", "product": "prod", "mean": "avg", "average": "avg"}
_UFUNCS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum, "avg": np.add}


def ufunc_of(redop: str) -> Callable[..., Any]:
    """Return the NumPy function of an operator.

    The function of ``avg`` is addition; ``divided`` divides the sum at the end. Raises UsageError for an
    unknown operator.
    """
    if redop not in _UFUNCS:
        raise UsageError(
            f": expected one of {', '.join(REDOPS)}, found {redop!r}",
            hint=meant(_MEANT.get(redop, redop), REDOPS),
            argument="op",
        )
    return _UFUNCS[redop]


def _refuse_eight_bits(name: str) -> None:
    """Raise UsageError for a floating-point type of 8 bits: fp8e4m3, f8_e5m2, float8_e4m3fn …"""
    if _EIGHT_BITS.fullmatch(name.lower()):
        raise UsageError(
            f": {name!r}: no executor adds floating-point numbers of 8 bits",
            hint="Use uint8 to move such data, and float16 or bfloat16 to sum it.",
            argument="dtype",
        )


def dtype_of(name: str) -> np.dtype[Any]:
    """Return an element type by NumPy's, nccl-tests' (half, float …) or PyTorch's name (bf16 …).

    Raises UsageError for any other.
    """
    full = _SHORT.get(name.lower(), name.lower())
    _refuse_eight_bits(name)
    if full not in DTYPES:
        raise UsageError(
            f": expected one of {', '.join(DTYPES)}, found {name!r}",
            hint=meant(name, (*DTYPES, *_SHORT)),
            argument="dtype",
        )
    return BFLOAT16 if full == "bfloat16" else np.dtype(full)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of an element type; raises UsageError for one that the executors do not know."""
    name = "bfloat16" if dtype == BFLOAT16 else dtype.name
    dtype_of(name)
    return name


def combine_of(redop: str, dtype: np.dtype[Any]) -> Callable[[Array, Array], Array]:
    """Return the operator on two arrays of one element type; bfloat16 is computed in float32."""
    ufunc = ufunc_of(redop)
    return partial(_through_float32, ufunc) if dtype == BFLOAT16 else ufunc


def neutral_of(redop: str, dtype: np.dtype[Any]) -> Array:
    """Return the operator's neutral element, as an array of length 1.

    Combining the neutral element with x gives x bit for bit. For floating-point sums it is -0.0, because 0.0
    + -0.0 is 0.0 and -0.0 + -0.0 is -0.0.
    """
    ufunc_of(redop)
    real = dtype == BFLOAT16 or dtype.kind == "f"
    value: float
    if redop == "prod":
        value = 1
    elif redop in ("sum", "avg"):
        value = -0.0 if real else 0
    elif real:
        value = np.inf if redop == "min" else -np.inf
    else:
        limits = np.iinfo(dtype)
        value = limits.max if redop == "min" else limits.min
    return encoded(np.array([value], dtype=np.float64 if real else np.int64), dtype)


def encoded(values: Array, dtype: np.dtype[Any]) -> Array:
    """Convert ``values`` to an element type: floats are rounded to nearest, integers keep their low bits."""
    if dtype != BFLOAT16:
        return values.astype(dtype)
    # Adding half of the last place kept, and one if that place is odd, rounds ties to even.
    bits = values.astype(np.float32).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)
    # A NaN stays one: the highest bit of its fraction is set, which also makes it quiet.
    quiet = (bits >> np.uint32(16)).astype(np.uint16) | np.uint16(64)
    return np.where(np.isnan(values.astype(np.float32)), quiet, rounded).view(BFLOAT16)


def decoded(values: Array) -> Array:
    """Convert bfloat16 to float32, which NumPy can calculate with; return other types unchanged."""
    if values.dtype != BFLOAT16:
        return values
    return (values.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def divided(values: Array, by: int) -> Array:
    """Divide sums by ``by``, keeping their type; integers round towards zero."""
    dtype = values.dtype
    if dtype == BFLOAT16 or dtype == np.float16:
        return encoded(decoded(values).astype(np.float32) / np.float32(by), dtype)
    if dtype.kind == "f":
        return np.asarray(values / dtype.type(by))
    wide = values.astype(np.int64)
    below, rest = np.divmod(wide, by)
    return np.asarray((below + ((wide < 0) & (rest != 0))).astype(dtype))


def _through_float32(ufunc: Callable[..., Any], first: Array, second: Array) -> Array:
    return encoded(ufunc(decoded(first), decoded(second)), BFLOAT16)
