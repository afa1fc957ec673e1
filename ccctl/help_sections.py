"""The sections in which help and manual pages list the arguments and options of a command.

An option's ``rich_help_panel`` names its section. Options without a section are listed under ``Options``;
options common to all commands are listed last.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = [
    "COLLECTIVE",
    "COMPARISON",
    "GENERAL",
    "MEASUREMENT",
    "NETWORK",
    "RANKS",
    "SEARCH",
    "claim",
    "sections",
]

COLLECTIVE = "Collective"
COMPARISON = "Comparison"
GENERAL = "General"
MEASUREMENT = "Measurement"
NETWORK = "Network"
RANKS = "Ranks"
SEARCH = "Search"

_ARGUMENTS, _OPTIONS = "Arguments", "Options"
# Sections with at most this many options are merged into ``Options``.
_FEW = 2
# The range that click appends to a help text. It is removed: few users come near it, and the error message
# states it.
_RANGE = re.compile(r"\s*(?:;|\[)\s*(?:[-\d.e+]+<=?)?x(?:[<>]=?[-\d.e+]+)?(?=\])")


def claim(command: Any) -> str:
    """Return the first paragraph of a command's help, as one line."""
    return " ".join(command.help.split("\n\n")[0].split())


def sections(command: Any, context: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the parameters of a command by section, each as (name, meaning)."""
    found: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        if record := parameter.get_help_record(context):
            name, meaning = record
            found.setdefault(_section(parameter), []).append((name, _without_range(meaning)))
    if _OPTIONS in found:
        own = [title for title in found if title not in (_ARGUMENTS, _OPTIONS, GENERAL)]
        for title in own:
            if len(found[title]) <= _FEW:
                found[_OPTIONS] += found.pop(title)
    if set(found) <= {_ARGUMENTS, _OPTIONS, GENERAL}:
        found[_OPTIONS] = found.pop(_OPTIONS, []) + found.pop(GENERAL, [])
    elif GENERAL in found:
        found[GENERAL] = found.pop(GENERAL)
    return {title: rows for title, rows in found.items() if rows}


def _section(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return _ARGUMENTS
    return GENERAL if parameter.name == "help" else parameter.rich_help_panel or _OPTIONS


def _without_range(meaning: str) -> str:
    found = _RANGE.search(meaning)
    if found is None:
        return meaning
    # If the range is alone in its brackets, remove the closing bracket, too.
    end = found.end() + 1 if "[" in found[0] else found.end()
    return (meaning[: found.start()] + meaning[end:]).rstrip()
