"""Documents in JSON and TOML that are not trusted: parsed whole, or refused with the reason."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from probes.base import DataError

__all__ = ["parse_document"]

# Most parts of a dotted key in TOML. The time to parse a key grows with the square of the number of its
# parts, so keys with more are refused.
_MOST_KEY_PARTS = 64


def parse_document(text: str, source: str, form: str) -> dict[str, Any]:
    """Return the table that ``text`` holds in JSON or TOML; raises DataError for other text."""
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
    """Raise DataError if a TOML key has more than 64 parts."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.count(".") >= _MOST_KEY_PARTS:
            bare = re.sub(r'"[^"]*"|\'[^\']*\'|[ \t]+', "", line).partition("#")[0]
            if max(word.count(".") for word in re.split(r"[,=\[\]{}]", bare)) >= _MOST_KEY_PARTS:
                raise DataError(source, [f"line {number}: expected a key of up to {_MOST_KEY_PARTS} parts"])
