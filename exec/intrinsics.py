"""Memory access and system calls for compiled loops: shared counters, copies, sockets, clocks, yields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = [
    "compiled_in",
    "copy_bytes",
    "error_number",
    "load",
    "pointer",
    "poll_descriptors",
    "read_clock",
    "read_process",
    "receive_bytes",
    "send_bytes",
    "sleep_us",
    "store",
    "yield_core",
]

# Numba adds the typing context as the first argument, which annotations cannot express.
compiled_in: Callable[[Callable[..., Any]], Any] = intrinsic
# Symbols of the C library, which every Python process has loaded.
copy_bytes: Any = types.ExternalFunction("memcpy", types.voidptr(types.voidptr, types.voidptr, types.intp))
yield_core: Any = types.ExternalFunction("sched_yield", types.int32())
read_clock: Any = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.voidptr))
read_process: Any = types.ExternalFunction(
    "process_vm_readv",
    types.intp(types.int32, types.voidptr, types.uint64, types.voidptr, types.uint64, types.uint64),
)
# Return the address of errno.
error_number: Any = types.ExternalFunction("__errno_location", types.voidptr())
send_bytes: Any = types.ExternalFunction(
    "send", types.intp(types.int32, types.voidptr, types.uintp, types.int32)
)
receive_bytes: Any = types.ExternalFunction(
    "recv", types.intp(types.int32, types.voidptr, types.uintp, types.int32)
)
poll_descriptors: Any = types.ExternalFunction("poll", types.int32(types.voidptr, types.uintp, types.int32))
sleep_us: Any = types.ExternalFunction("usleep", types.int32(types.uint32))


@compiled_in
def load(context: Any, address: Any) -> Any:
    """Return the counter at ``address`` with acquire order: all that its writer wrote before is visible."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load_atomic(place, "acquire", 8)

    return types.int64(types.int64), generate


@compiled_in
def store(context: Any, address: Any, value: Any) -> Any:
    """Set the counter at ``address`` with release order: readers of it see all earlier writes."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        builder.store_atomic(arguments[1], place, "release", 8)
        return target.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@compiled_in
def pointer(context: Any, address: Any) -> Any:
    """Return ``address`` as a pointer."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate
