"""Files that the command line names: ``-`` is stdin, all else is read by ``probes.files.bounded_read``."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from typing import Any

from ccctl.errors import DataError, MissingInputError
from probes.files import read_bytes, read_stream, read_text

__all__ = ["exists", "is_folder", "parse_document", "read_document", "read_input"]

# The time to parse a key grows with the square of its parts, so longer ones are refused.
_MOST_KEY_PARTS = 64


def read_input(path: str) -> tuple[bytes, str]:
    """Return (content, name of the source for messages).

    Raises MissingInputError, and DataError where it is too long.
    """
    if path != "-":
        return read_bytes(path), path
    # Python sets sys.stdin to None if descriptor 0 is closed.
    if sys.stdin is None:
        raise MissingInputError("stdin: it is closed")
    return read_stream(sys.stdin.buffer, "stdin"), "stdin"


def read_document(path: str) -> dict[str, Any]:
    """Return the table of a JSON file if its name ends in .json, otherwise of a TOML file.

    Raises MissingInputError, DataError.
    """
    return parse_document(read_text(path), path, "JSON" if path.endswith(".json") else "TOML")


def parse_document(text: str, source: str, form: str) -> dict[str, Any]:
    """Return the table in a text in ``form``, JSON or TOML; raises DataError."""
    if form == "TOML":
        _refuse_long_keys(text, source)
    try:
        found = json.loads(text) if form == "JSON" else tomllib.loads(text)
    except RecursionError as error:
        raise DataError(source, [f"expected {form}: it is nested too deep"]) from error
    # Besides its own errors, each parser passes on the ValueError of int() for too many digits.
    except ValueError as error:
        raise DataError(source, [f"expected {form}: {error}"]) from error
    if not isinstance(found, dict):
        raise DataError(source, ["expected a table with names"])
    return found


def _refuse_long_keys(text: str, source: str) -> None:
    """Raise DataError for a key of very many parts: the time to read one grows with their square."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.count(".") >= _MOST_KEY_PARTS:
            bare = re.sub(r'"[^"]*"|\'[^\']*\'|[ \t]+', "", line).partition("#")[0]
            if max(word.count(".") for word in re.split(r"[,=\[\]{}]", bare)) >= _MOST_KEY_PARTS:
                raise DataError(source, [f"line {number}: expected a key of up to {_MOST_KEY_PARTS} parts"])


def exists(path: str) -> bool:
    """Return whether there is something of that name.

    False for what cannot be a name, such as a very long text.
    """
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises where a name is too long


def is_folder(path: str) -> bool:
    """Return whether a folder has that name; False for what cannot be a name."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises where a name is too long
