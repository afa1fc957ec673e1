"""The sizes that `--counts` gives to the blocks of an uneven collective."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ccctl.errors import DataError, UsageError
from probes.base import parse_size
from probes.files import read_text

if TYPE_CHECKING:
    from synth.portfolio import CollectiveRequest

__all__ = ["uneven_collective"]

# A value of a list, whatever separates it: commas, blanks, the brackets and quotes of JSON.
_VALUE = re.compile(r"[^\s,;\[\]\"']+")
# A matrix of pairs of 4,096 ranks in digits; more is another file given by mistake.
_MOST_BYTES = 1 << 28


def uneven_collective(
    asked: tuple[CollectiveRequest, ...], counts: str, ranks: int, chunk_bytes: int | None
) -> tuple[tuple[CollectiveRequest, ...], int]:
    """Return the collective of ``asked`` with the sizes of `--counts`, and the size of its largest buffer.

    ``counts`` is a list of sizes, or a file that holds them. Raises UsageError, DataError or
    MissingInputError.
    """
    from synth.portfolio import uneven_request

    [one] = asked if len(asked) == 1 else [None]
    if one is None or one.members or one.sets is not None:
        raise UsageError("--counts: expected one collective on all ranks of the network")
    try:
        request, size_bytes = uneven_request(
            one.kind, ranks, _sizes(counts), root=one.root, chunk_bytes=chunk_bytes
        )
    except UsageError as error:
        if one.kind == "all_to_all":
            error.hint = "One row for each source rank, with a size for each target: 0,4M,1M …"
        raise
    return (request,), size_bytes


def _sizes(counts: str) -> list[int]:
    """Return the sizes of a list such as 4M,0,1M, or of a file that holds them."""
    if re.fullmatch(r"[0-9.,;\s]*([KMGTiB]|[0-9.,;\s])*", counts, re.IGNORECASE):
        return [_size(value, "--counts") for value in _VALUE.findall(counts)]
    lines = read_text(counts, _MOST_BYTES).splitlines()
    found: list[int] = []
    for number, line in enumerate(lines, start=1):
        for value in _VALUE.findall(line.partition("#")[0]):
            try:
                found.append(_size(value, f"line {number}"))
            except UsageError as error:
                raise DataError(counts, [error.message], hint=error.hint) from error
    return found


def _size(value: str, name: str) -> int:
    return 0 if re.fullmatch("0+", value) else parse_size(value, name)
