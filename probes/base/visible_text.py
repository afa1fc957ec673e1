"""Foreign text made safe to show: no character can control a terminal or reorder the text beside it.

Names and findings come from files, hosts and programs. `visible` puts them on one line. `unsteered` and
`unsteered_json` escape hostile characters in text and JSON but keep line breaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["MOST_SHOWN", "shortened", "unsteered", "unsteered_json", "visible"]

# Longer text from elsewhere is shortened, so that it cannot flood a terminal or a report.
MOST_SHOWN = 1000
# Control characters (C0, DEL, C1), soft hyphen, direction marks and overrides, zero-width characters, line
# and paragraph separators, invisible operators, surrogates, annotations and tags.
_CLASS = (
    "\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_HOSTILE = re.compile(f"[{_CLASS}]")
_HOSTILE_BUT_LAYOUT = re.compile(f"(?![\t\n])[{_CLASS}]")
# Most text is printable ASCII and needs no escaping.
_PLAIN = re.compile(r"[ -~]*", re.ASCII)


def visible(text: str, most: int = MOST_SHOWN) -> str:
    r"""Return the text on one line of at most about ``most`` characters, with hostile characters escaped.

    >>> visible("gpu01\x1b[31m\nfinding: all is well")
    'gpu01\\x1b[31m\\nfinding: all is well'
    """
    text = shortened(text, most)
    return text if _PLAIN.fullmatch(text) else _HOSTILE.sub(lambda found: _escape(found[0]), text)


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    """Return the text, or the beginning, length and end of a text longer than ``most``."""
    if len(text) <= most:
        return text
    return f"{text[: most * 2 // 3]}… ({len(text)} characters) …{text[-(most // 6) :]}"


def _escape(character: str) -> str:
    return ascii(character)[1:-1]


def unsteered(text: str, written: Callable[[str], str] = _escape) -> str:
    """Return the text with ``written(c)`` for each hostile character c; newlines and tabs stay."""
    return _HOSTILE_BUT_LAYOUT.sub(lambda found: written(found[0]), text)


def unsteered_json(text: str) -> str:
    r"""Return JSON with the same values, in which each hostile character is written as ``\uXXXX``."""
    if text.isascii() and "\x7f" not in text:
        return text
    return unsteered(text, _json_escape)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
