"""Reading of files that users name: regular files and our own pipes, up to a bound on their size.

A path is a regular file, or one of this process's own descriptors (``/dev/stdin``, and the ``/dev/fd/63`` of
a shell's ``<(…)``). Named pipes, devices and folders are refused at once, without waiting. A larger file is
not read at all; an endless stream or a compressed file is read up to the bound.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import zlib
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from probes.base import DataError, MissingInputError

__all__ = [
    "MOST_BYTES",
    "MOST_TEXT_BYTES",
    "decoded",
    "inflated",
    "open_input",
    "read_bytes",
    "read_stream",
    "read_text",
]

# Larger files are refused before they fill the memory. The bound of text is lower, because the objects that
# are parsed from it take more memory than the text.
MOST_BYTES = 256 << 20
MOST_TEXT_BYTES = 16 << 20
# An endless stream or a compressed file exceeds its bound by at most one step.
_STEP_BYTES = 1 << 20
# Comparing more names takes too long in a folder of many thousands.
_MOST_COMPARED = 1000
# The least similarity (difflib's ratio) of a name that is suggested: "abcde.json" and "abcdf.json" have 0.9.
_ALIKE = 0.89
_GZIP = b"\x1f\x8b"


def open_input(path: str | Path) -> io.FileIO:
    """Open a regular file, or a descriptor of our own, for reading; raises MissingInputError."""
    name = str(path)
    try:
        # Without O_NONBLOCK, opening a named pipe waits for somebody to write into it.
        handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError as error:
        raise MissingInputError(f"{name or repr(name)}: there is no such file", hint=_like(name)) from error
    except (OSError, ValueError) as error:
        raise MissingInputError(f"{name}: {_reason(error)}") from error
    try:
        _require_readable(handle, name)
        os.set_blocking(handle, True)
    except BaseException:
        os.close(handle)
        raise
    # _require_readable has refused folders: FileIO would do it with a bare OSError, outside this block.
    return io.FileIO(handle)


def _like(name: str) -> str:
    """Return a hint at the file of the same folder whose name is most like ``name``; "" if none is close."""
    from difflib import get_close_matches

    path = Path(name)
    with suppress(OSError, ValueError):
        there = [one.name for one in islice(path.parent.iterdir(), _MOST_COMPARED)]
        close = get_close_matches(path.name, there, n=1, cutoff=_ALIKE)
        return f"did you mean {str(path.with_name(close[0]))!r}?" if close else ""
    return ""


def read_bytes(path: str | Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a file.

    Raises MissingInputError if there is no file to read, and DataError beyond ``most_bytes``.
    """
    with open_input(path) as stream:
        if (size := os.fstat(stream.fileno()).st_size) > most_bytes:
            raise _too_long(str(path), most_bytes, f"found {size} bytes")
        return read_stream(stream, str(path), most_bytes)


def read_text(path: str | Path, most_bytes: int = MOST_TEXT_BYTES) -> str:
    """Return the content of a text file in UTF-8, with or without a byte order mark.

    Raises the errors of ``read_bytes``, and DataError for other encodings.
    """
    return decoded(read_bytes(path, most_bytes), str(path))


def decoded(content: bytes, source: str) -> str:
    """Decode UTF-8, with or without a byte order mark; raises DataError for anything else."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
        found = "UTF-16" if wide else f"{error.reason} at byte {error.start}"
        raise DataError(source, [f"expected text in UTF-8, found {found}"]) from error


def read_stream(stream: BinaryIO | io.RawIOBase, source: str, most_bytes: int = MOST_BYTES) -> bytes:
    """Read a stream to its end; raises DataError beyond ``most_bytes``, MissingInputError on failure."""
    try:
        return _up_to(lambda: stream.read(_STEP_BYTES), source, most_bytes)
    except OSError as error:
        raise MissingInputError(f"{source}: {_reason(error)}") from error


def inflated(content: bytes, source: str, most_bytes: int = MOST_BYTES) -> bytes:
    """Decompress a gzip file; return other content unchanged. Raises DataError beyond ``most_bytes``."""
    if not content.startswith(_GZIP):
        return content
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            return _up_to(lambda: stream.read(_STEP_BYTES), source, most_bytes, "decompressed")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(source, [f"not a whole gzip file: {error}"], hint="was it cut off?") from error


def _up_to(step: Callable[[], bytes | None], source: str, most_bytes: int, how: str = "") -> bytes:
    found = bytearray()
    while piece := step():
        found += piece
        if len(found) > most_bytes:
            raise _too_long(source, most_bytes, f"found more{' when ' + how if how else ''}")
    return bytes(found)


def _too_long(source: str, most_bytes: int, found: str) -> DataError:
    bound = f"{most_bytes >> 20} MiB" if most_bytes >= 1 << 20 else f"{most_bytes} bytes"
    return DataError(source, [f"expected at most {bound}, {found}"])


def _require_readable(handle: int, name: str) -> None:
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise MissingInputError(f"{name}: expected a file, found a folder")
    own = os.path.realpath(name).startswith(f"/proc/{os.getpid()}/fd/")
    if (stat.S_ISFIFO(mode) and own) or os.isatty(handle):
        return
    kind = "a named pipe" if stat.S_ISFIFO(mode) else "a device"
    raise MissingInputError(
        f"{name}: expected a file, found {kind}",
        hint="Give it to the command as its standard input: - < FILE",
    )


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
