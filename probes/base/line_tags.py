"""Tags that launchers and log viewers put before lines, such as ``[1,0]<stdout>:`` or a time of day."""

from __future__ import annotations

import re
from itertools import islice

__all__ = ["without_tags"]

# A shape is a regular expression for tags that differ only in their numbers. A launcher writes few shapes;
# the bound keeps the expression that joins them short.
_MOST_SHAPES = 16
_BLANKS = r"[ \t]*"
# Beginnings of shapes whose tags start with [ or <, so that they cannot be part of a number or a name.
_BRACKET = (_BLANKS + r"\[", _BLANKS + "<")


def without_tags(text: str, start: str, *, everywhere: bool = False) -> str:
    """Return the text without the tags that precede ``start``, a regular expression, on lines that match.

    Other lines lose a tag that differs from such a tag only in its numbers, such as ranks or times of day.
    Digits and blanks alone are not a tag, because rows of tables begin with them. With ``everywhere``, tags
    inside lines that begin with a number are removed, too: some launchers write one before each part of a
    row. O(text).
    """
    begins = re.findall(rf"^([^\n]+?)(?={start})", text, re.MULTILINE)
    shapes = dict.fromkeys(_shape(begin) for begin in begins if re.search(r"[^\s0-9]", begin))
    some = "|".join(islice(shapes, _MOST_SHAPES))
    if not some:
        return text
    text = re.sub(rf"^(?:{some})", "", text, flags=re.MULTILINE)
    if not everywhere:
        return text
    inside = re.compile(
        "|".join(shape for shape in islice(shapes, _MOST_SHAPES) if shape.startswith(_BRACKET)) or "$^"
    )
    return re.sub(r"^[ \t]*[0-9].*$", lambda line: inside.sub(" ", line[0]), text, flags=re.MULTILINE)


def _shape(tag: str) -> str:
    """Return a regular expression for tags like this; blanks may pad numbers, or be missing at the end."""
    words = [re.sub(r"[0-9]+", "[0-9]+", re.escape(word)) for word in tag.split()]
    return _BLANKS + r"[ \t]+".join(words) + r"[ \t]?"
