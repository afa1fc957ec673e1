"""Text escaped for XML: for NCCL's and MSCCL's files, and for pictures."""

from __future__ import annotations

import re
from html import escape
from xml.sax.saxutils import quoteattr

from probes.base.visible_text import shortened, unsteered

__all__ = ["as_attribute", "as_content"]

# Everything but the characters of XML 1.0, Sec. 2.2: control characters and surrogates.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_content(words: str) -> str:
    """Return the words as text between two tags, shortened and with each hostile character escaped."""
    return escape(_FORBIDDEN.sub("\ufffd", unsteered(shortened(words))))


def as_attribute(words: str) -> str:
    """Return the words as a quoted attribute value; U+FFFD replaces each character that XML forbids."""
    return unsteered(quoteattr(_FORBIDDEN.sub("\ufffd", words)), lambda one: f"&#{ord(one)};")
