"""A manual page as plain text, for machines without man.

Only the requests that `ccctl.docs.roff` writes are supported.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

__all__ = ["lines"]

# man(1) takes 80 columns where it does not know the terminal's width.
_WIDTH = 80
_INDENT, _DEEPER = " " * 7, " " * 14
_FONTS = re.compile(r"\\f[BRIP]|\\&")


def lines(page: str) -> Iterator[str]:
    """Yield the lines of the text, at most 80 wide except for preformatted text and long words."""
    filling, indent, term, below = True, _INDENT, False, False
    for line in page.splitlines():
        request, _, rest = line.partition(" ")
        if request == ".TH":
            yield re.sub(r'"[^"]*"', lambda found: found[0].strip('"'), _plain(rest)).split(" ")[0].lower()
        elif request in (".SH", ".SS"):
            yield from ("", _plain(rest) if request == ".SH" else f"   {_plain(rest)}")
            indent, below = _INDENT, True
            continue
        elif request in (".PP", ".TP"):
            yield from () if below else ("",)
            term = request == ".TP"
            indent = _INDENT
        elif request in (".nf", ".fi"):
            filling = request == ".fi"
        elif request != ".br":
            yield from _filled(_plain(line), indent) if filling else (f"{_INDENT}{_plain(line)}",)
            # The description of a term is indented below it.
            indent = _DEEPER if term else indent
            term = False
        below = False


def _filled(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _plain(text: str) -> str:
    return _FONTS.sub("", text).replace(r"\-", "-").replace(r"\e", "\\")
