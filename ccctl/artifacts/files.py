"""Files that the command line names: ``-`` is stdin, all else is read by ``probes.files.bounded_read``."""

from __future__ import annotations

import os
import sys
from typing import Any

from ccctl.errors import MissingInputError
from probes.files import parse_document, read_bytes, read_stream, read_text

__all__ = ["exists", "is_folder", "read_document", "read_input"]


def read_input(path: str) -> tuple[bytes, str]:
    """Return (content, name of the source for messages).

    Raises MissingInputError, and DataError if the input is too long.
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


def exists(path: str) -> bool:
    """Return whether a file or folder has that name; False for what cannot be a name."""
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises where a name is too long


def is_folder(path: str) -> bool:
    """Return whether a folder has that name; False for what cannot be a name."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises where a name is too long
