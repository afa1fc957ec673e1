"""Documents in JSON and TOML that are not trusted: parsed whole, or refused with the reason."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from probes.base import DataError

__all__ = ["parse_document"]

# The largest number of parts of a dotted key in TOML. No document here needs more than a few. The time to
# parse a key grows with the square of the number of its parts (github.com/python/cpython/issues/149231).
_MOST_KEY_PARTS = 64
# Strings and comments of TOML, the forms of several lines first: a dot in them is no dot of a key.
_STRING_OR_COMMENT = re.compile(
    r'"""(?:\\.|[^\\])*?"""' r"|'''.*?'''" r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'" r"|#[^\n]*", re.DOTALL
)


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
    bare = _STRING_OR_COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(bare.split("\n"), start=1):
        if max(word.count(".") for word in re.split(r"[,=\[\]{}]", line)) >= _MOST_KEY_PARTS:
            raise DataError(source, [f"line {number}: expected a key of up to {_MOST_KEY_PARTS} parts"])
