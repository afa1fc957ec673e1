"""The reduction operators and element types that the executors know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from probes.errors import UsageError

__all__ = ["DTYPES", "REDOPS", "Array", "Redop", "dtype_of", "ufunc_of"]

Redop = Literal["sum", "prod", "min", "max"]
Array: TypeAlias = np.ndarray[Any, Any]
REDOPS: tuple[str, ...] = get_args(Redop)
DTYPES = ("float32", "float64", "int32", "int64")
_SHORT = {"float": "float32", "double": "float64", "int": "int32"}
_UFUNCS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def ufunc_of(redop: str) -> Callable[..., Any]:
    """The NumPy function of an operator; raises UsageError for one that is not known."""
    if redop not in _UFUNCS:
        raise UsageError(f"operator: expected one of {', '.join(REDOPS)}, found {redop!r}")
    return _UFUNCS[redop]


def dtype_of(name: str) -> np.dtype[Any]:
    """An element type by NumPy's or nccl-tests' name (float, double, int); raises UsageError."""
    full = _SHORT.get(name, name)
    if full not in DTYPES:
        raise UsageError(f"element type: expected one of {', '.join(DTYPES)}, found {name!r}")
    return np.dtype(full)
