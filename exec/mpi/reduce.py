"""Reductions of elements at addresses: one compiled loop for each element type.

Loops that move data call it by its address, so they are compiled once for all types.
16-bit floats are widened to float32 for each operation and rounded back, as in NumPy, but in vectorized
loops.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined] # numba has it, and does not list it
from numba.extending import overload, register_jitable

from exec.intrinsics import compiled_in, pointer
from synth.kernels import compiled_always, machine_address

__all__ = ["MAX", "MIN", "PROD", "REDOP_CODES", "SUM", "call_combine", "combine_address"]

SUM, PROD, MIN, MAX = range(4)
REDOP_CODES = {"sum": SUM, "prod": PROD, "min": MIN, "max": MAX, "avg": SUM}
_FLOAT16 = np.dtype([("float16", np.uint16)])
# The types of the arguments of `combine`, except the element type.
_WORDS = (types.int64,) * 5


def combine_address(dtype: np.dtype[Any]) -> int:
    """Return the address of the machine code of `combine` for a type, compiled at the first call."""
    # Numba has no type for 16-bit floats, so a float16 is a record of a uint16.
    return machine_address(combine, 0, 0, 0, 0, 0, _FLOAT16 if dtype == np.float16 else dtype)


@compiled_in
def call_combine(
    context: Any, address: Any, redop: Any, out: Any, first: Any, second: Any, count: Any
) -> Any:
    """Call the machine code of `combine` at ``address``, which `combine_address` returned."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # Machine code does not read the element type, so any serves.
        called = (*_WORDS, types.DType(types.uint8))
        function = target.call_conv.get_function_type(types.none, called).as_pointer()
        nothing = ir.Constant(target.get_value_type(called[-1]), None)
        code = builder.inttoptr(arguments[0], function)
        target.call_conv.call_function(builder, code, types.none, called, [*arguments[1:], nothing])
        return target.get_dummy_value()

    return types.void(types.int64, *_WORDS), generate


@compiled_always
def combine(redop: int, out: int, first: int, second: int, count: int, dtype: np.dtype[Any]) -> None:
    """Set ``out[i]`` to ``first[i] (redop) second[i]`` for ``count`` elements of ``dtype``.

    The operands and the result are given by their addresses.
    """
    _combine_elements(redop, out, first, second, count, dtype)


def _combine_elements(
    redop: int, out: int, first: int, second: int, count: int, dtype: np.dtype[Any]
) -> None:
    raise NotImplementedError("only compiled code calls this")


# ``a != a`` holds only for NaN: a NaN is the result, as in NumPy.
@register_jitable
def _least(a: Any, b: Any) -> Any:
    return a if a < b or a != a else b


@register_jitable
def _most(a: Any, b: Any) -> Any:
    return a if a > b or a != a else b


# strict=False: the annotations differ because numba passes types here and numbers to the function.
@overload(_combine_elements, strict=False)
def _loop_of(redop: Any, out: Any, first: Any, second: Any, count: Any, dtype: Any) -> Any:
    if isinstance(dtype.dtype, types.Record):
        brain = "bfloat16" in dtype.dtype.fields
        return _narrow(*((_widen_bfloat16, _round_bfloat16) if brain else (_widen_half, _round_half)))
    return _native


def _native(redop: int, out: int, first: int, second: int, count: int, dtype: np.dtype[Any]) -> None:
    a = carray(pointer(first), count, dtype)
    b = carray(pointer(second), count, dtype)
    to = carray(pointer(out), count, dtype)
    if redop == SUM:
        for i in range(count):
            to[i] = a[i] + b[i]
    elif redop == PROD:
        for i in range(count):
            to[i] = a[i] * b[i]
    elif redop == MIN:
        for i in range(count):
            to[i] = _least(a[i], b[i])
    else:
        for i in range(count):
            to[i] = _most(a[i], b[i])


def _narrow(widened: Any, rounded: Any) -> Any:
    def loop(redop: int, out: int, first: int, second: int, count: int, dtype: np.dtype[Any]) -> None:
        a = carray(pointer(first), count, np.uint16)
        b = carray(pointer(second), count, np.uint16)
        to = carray(pointer(out), count, np.uint16)
        if redop == SUM:
            for i in range(count):
                to[i] = rounded(widened(a[i]) + widened(b[i]))
        elif redop == PROD:
            for i in range(count):
                to[i] = rounded(widened(a[i]) * widened(b[i]))
        elif redop == MIN:
            for i in range(count):
                to[i] = rounded(_least(widened(a[i]), widened(b[i])))
        else:
            for i in range(count):
                to[i] = rounded(_most(widened(a[i]), widened(b[i])))

    return loop


@compiled_in
def _widen_half(context: Any, bits: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


@compiled_in
def _round_half(context: Any, value: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.fptrunc(arguments[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), generate


@compiled_in
def _bits_of(context: Any, value: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), generate


@compiled_in
def _float_of(context: Any, bits: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), generate


@register_jitable
def _widen_bfloat16(bits: Any) -> Any:
    return _float_of(np.uint32(np.uint32(bits) << np.uint32(16)))


@register_jitable
def _round_bfloat16(value: Any) -> Any:
    """Round to nearest, ties to even; a NaN stays a NaN."""
    bits: Any = _bits_of(np.float32(value))
    if value != value:
        return np.uint16((bits >> np.uint32(16)) | np.uint32(64))
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return np.uint16((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))
