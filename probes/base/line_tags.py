"""Tags that launchers and viewers of logs put before lines, such as ``[1,0]<stdout>:`` or a time of day."""

from __future__ import annotations

import re
from itertools import islice

__all__ = ["without_tags"]

_MOST_SHAPES = 16
_BLANKS = r"[ \t]*"
# Only such tags cannot be part of a number or a name.
_BRACKET = (_BLANKS + r"\[", _BLANKS + "<")


def without_tags(text: str, start: str, *, everywhere: bool = False) -> str:
    """Return the text without what stands before ``start``, a regular expression, in the lines that have it.

    Other lines lose a tag that differs in its numbers alone: ranks, times of day. Digits and blanks are no
    tag by themselves, because rows begin like that. ``everywhere``: tags inside lines that begin with a
    number go, too, as where a launcher writes one before each part of a row. O(text).
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
    """Tags like this one as a regular expression; blanks may pad a number, or be missing at the end."""
    words = [re.sub(r"[0-9]+", "[0-9]+", re.escape(word)) for word in tag.split()]
    return _BLANKS + r"[ \t]+".join(words) + r"[ \t]?"
