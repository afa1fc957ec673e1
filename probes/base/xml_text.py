"""Text as XML may hold it: in NCCL's and MSCCL's files, and in pictures."""

from __future__ import annotations

import re
from html import escape
from xml.sax.saxutils import quoteattr

from probes.base.visible_text import shortened, unsteered

__all__ = ["as_attribute", "as_content"]

# All but the characters of XML 1.0, Sec. 2.2: no control character, no half of a pair.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_content(words: str) -> str:
    """The words as they are read between two tags: not endless, and each hostile character as its escape."""
    return escape(_FORBIDDEN.sub("\ufffd", unsteered(shortened(words))))


def as_attribute(words: str) -> str:
    """The words as the value of an attribute, quotes included; U+FFFD stands for what XML forbids."""
    return unsteered(quoteattr(_FORBIDDEN.sub("\ufffd", words)), lambda one: f"&#{ord(one)};")
