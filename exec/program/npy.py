"""The ranks' data in .npy files: one file with a row for each rank, or one file for each rank."""

from __future__ import annotations

import io
import os
import stat
import warnings
from collections.abc import Sequence
from tokenize import TokenError
from typing import BinaryIO

import numpy as np

from exec.program.dtypes import Array
from probes.base import DataError, MissingInputError, UsageError
from probes.files import open_input, read_stream
from synth.collective import Collective

__all__ = ["npy_files", "read_ranks"]


def read_ranks(name: str, collective: Collective) -> tuple[Array, ...]:
    """Return the input of every rank. ``{rank}`` in ``name`` stands for the rank's number.

    If only one rank has an input, such as the root of a broadcast, the file may hold just that input. Raises
    MissingInputError, DataError or UsageError.
    """
    holders = [rank for rank, sources in enumerate(collective.sources.per_rank(collective.ranks)) if sources]
    if "{rank}" in name:
        rows = {rank: _load(name.replace("{rank}", str(rank))).reshape(-1) for rank in holders}
    else:
        whole = _load(name)
        if whole.ndim == 1 and len(holders) == 1:
            whole = whole[None, :].repeat(collective.ranks, axis=0)
        if whole.ndim < 2 or len(whole) != collective.ranks:
            raise UsageError(
                f"{name}: expected {collective.ranks} rows, one for each rank, found shape {whole.shape}",
                hint="Or one file for each rank: 'x{rank}.npy'.",
            )
        rows = {rank: whole[rank].reshape(-1) for rank in holders}
    nothing = next(iter(rows.values()))[:0]
    return tuple(rows.get(rank, nothing) for rank in range(collective.ranks))


def npy_files(name: str, outputs: Sequence[Array]) -> dict[str, bytes]:
    """Return one file with a row for each rank, or a file for each if ``name`` has ``{rank}``."""
    filled = {rank: found for rank, found in enumerate(outputs) if found.size}
    if "{rank}" in name:
        return {name.replace("{rank}", str(rank)): _npy(found) for rank, found in filled.items()}
    return {name: _npy(np.stack(list(filled.values())))}


# All versions of the format that numpy defines.
_VERSIONS = ((1, 0), (2, 0), (3, 0))
# The most bytes of a header: all that version 1.0 can state. Later versions can state more, and numpy would
# allocate it.
_MOST_HEADER_BYTES = 1 << 16
# The header is a Python expression, and numpy does not catch what Python's parser raises.
_UNREADABLE = (ValueError, EOFError, TypeError, SyntaxError, TokenError, OverflowError, RecursionError)


def _load(name: str) -> Array:
    with open_input(name) as file:
        regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        stream: BinaryIO = io.BufferedReader(file) if regular else io.BytesIO(read_stream(file, name))
        try:
            # numpy warns that a header written by Python 2 is slow to read, which does not matter here.
            with warnings.catch_warnings(action="ignore", category=UserWarning):
                _require_whole(stream)
                found: Array = np.load(stream, allow_pickle=False)
        except _UNREADABLE as error:
            raise DataError(name, [f"expected a .npy file: {error}"]) from error
        except OSError as error:
            raise MissingInputError(f"{name}: {error.strerror or error}") from error
    if found.ndim == 0:
        raise DataError(name, ["expected a .npy file with one array of at least one dimension"])
    return found


def _require_whole(stream: BinaryIO) -> None:
    """Raise ValueError if a file is shorter than its header says; numpy would allocate all of it."""
    from math import prod

    from numpy.lib import format as npy

    version = npy.read_magic(stream)
    if version not in _VERSIONS:
        raise ValueError(f"expected version 1.0, 2.0 or 3.0, found {version[0]}.{version[1]}")
    size = 2 if version == (1, 0) else 4
    length = int.from_bytes(stream.read(size), "little")
    if length > _MOST_HEADER_BYTES:
        raise ValueError(f"expected a header of at most {_MOST_HEADER_BYTES} bytes, found {length}")
    stream.seek(-size, io.SEEK_CUR)
    header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = header(stream)
    start, end = stream.tell(), stream.seek(0, io.SEEK_END)
    expected = prod(shape) * dtype.itemsize
    if end - start < expected:
        raise ValueError(f"its header says {expected} bytes, it has {end - start}")
    stream.seek(0)


def _npy(found: Array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, found)
    return stream.getvalue()
