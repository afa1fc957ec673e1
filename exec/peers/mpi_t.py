"""The control variables of the MPI library, set while it runs (MPI 4.1, Sec. 15.3).

mpi4py has no interface to them, so this module calls the MPI library that mpi4py has loaded.
"""

from __future__ import annotations

import ctypes
import re
from ctypes import byref, c_char_p, c_int, c_void_p
from functools import lru_cache
from pathlib import Path

from probes.base import UnavailableError

__all__ = ["Variables", "choices_of", "library_path"]

# Bytes of the buffer into which MPI_T copies a text; it cuts off what does not fit. MPICH's longest
# description of a collective's variable has about 1,000 characters (src/mpi/coll/cvars.txt).
_LONGEST = 8192
# MPICH lists the values of a variable only in its description, in order, in lines such as "ring  - Force ring
# algorithm".
_IN_WORDS = re.compile(r"^(\w+)\s+- ", re.MULTILINE)


class Variables:
    """Reads and writes integer control variables by name; keeps a handle for each name."""

    def __init__(self) -> None:
        self._library = _loaded_library()
        self._call("MPI_T_init_thread", 0, byref(c_int()))
        self._handles: dict[str, c_void_p] = {}

    def write(self, name: str, value: int) -> None:
        """Set a variable on this rank; raises UnavailableError if that is impossible."""
        self._call("MPI_T_cvar_write", self._handle(name), byref(c_int(value)), name=name)

    def read(self, name: str) -> int:
        value = c_int()
        self._call("MPI_T_cvar_read", self._handle(name), byref(value), name=name)
        return value.value

    def choices(self, name: str) -> dict[str, int]:
        """Return {name: number} of the values that a variable may have, in the library's order."""
        text, words = ctypes.create_string_buffer(_LONGEST), c_int(_LONGEST)
        kind, short = c_void_p(), c_int(0)
        unused = [byref(c_int()) for _ in range(2)]
        self._call(
            "MPI_T_cvar_get_info",
            self._index(name),
            None,
            byref(short),
            byref(c_int()),
            byref(c_void_p()),
            byref(kind),
            text,
            byref(words),
            *unused,
            name=name,
        )
        return self._members(kind) if kind.value else choices_of(text.value.decode(errors="replace"))

    def _members(self, kind: c_void_p) -> dict[str, int]:
        count = c_int()
        self._call("MPI_T_enum_get_info", kind, byref(count), None, byref(c_int(0)))
        found = {}
        for number in range(count.value):
            value, text = c_int(), ctypes.create_string_buffer(_LONGEST)
            self._call("MPI_T_enum_get_item", kind, number, byref(value), text, byref(c_int(_LONGEST)))
            found[text.value.decode()] = value.value
        return found

    def _index(self, name: str) -> c_int:
        index = c_int()
        self._call("MPI_T_cvar_get_index", c_char_p(name.encode()), byref(index), name=name)
        return index

    def _handle(self, name: str) -> c_void_p:
        if name not in self._handles:
            handle = c_void_p()
            self._call(
                "MPI_T_cvar_handle_alloc", self._index(name), None, byref(handle), byref(c_int()), name=name
            )
            self._handles[name] = handle
        return self._handles[name]

    def _call(self, function: str, *arguments: object, name: str = "") -> None:
        status = getattr(self._library, function)(*arguments)
        if status:
            raise UnavailableError(
                f"the MPI library refuses {function}{f' for {name}' if name else ''} (error {status})",
                hint="Ask for mpi instead of mpi:ALGORITHM; then the library chooses the algorithm.",
            )


def choices_of(description: str) -> dict[str, int]:
    """Return the values that a variable's description lists, as {name: number}, numbered from 0."""
    return {name: value for value, name in enumerate(_IN_WORDS.findall(description))}


@lru_cache(maxsize=1)
def _loaded_library() -> ctypes.CDLL:
    return ctypes.CDLL(str(library_path()))


def library_path() -> Path:
    """Return the file of the libmpi that this process has loaded.

    Raises UnavailableError where there is none.
    """
    words = Path("/proc/self/maps").read_text().split()
    found = sorted({word for word in words if re.match(r"libmpi(ch)?\.so", Path(word).name)})
    if not found:
        raise UnavailableError("the MPI library of mpi4py is not among the files of this process")
    return Path(found[0])
