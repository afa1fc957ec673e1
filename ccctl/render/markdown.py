"""Tables in GitHub's Markdown, for pull requests and job summaries."""

from __future__ import annotations

from collections.abc import Sequence

from probes.base import visible

__all__ = ["cell", "markdown_table"]

# Replace the ampersand first, as the other replacements contain it.
_ESCAPES = (
    *(("&", "&amp;"), ("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), (">", "&gt;")),
    *(("`", "\\`"), ("[", "\\["), ("*", "\\*")),
)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[int]) -> str:
    """Return the table; the columns numbered in ``right`` are right-aligned."""
    rule = ["---:" if at in right else "---" for at in range(len(columns))]
    lines = [list(columns), rule, *([cell(one) for one in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def cell(value: object) -> str:
    """Return a value as the text of a cell, on one line, with Markdown and HTML escaped."""
    text = visible(" ".join(str(value).split()))
    for old, new in _ESCAPES:
        text = text.replace(old, new)
    return text
