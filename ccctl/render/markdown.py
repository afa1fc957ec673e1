"""Tables in GitHub's Markdown, for pull requests and job summaries."""

from __future__ import annotations

from collections.abc import Sequence

from probes.base import visible

__all__ = ["cell", "markdown_table"]

# The ampersand comes first: entities would make any other character.
_ESCAPES = (
    *(("&", "&amp;"), ("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), (">", "&gt;")),
    *(("`", "\\`"), ("[", "\\["), ("*", "\\*")),
)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[int]) -> str:
    """Return the table; the columns numbered in ``right`` are set to the right."""
    rule = ["---:" if at in right else "---" for at in range(len(columns))]
    lines = [list(columns), rule, *([cell(one) for one in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def cell(value: object) -> str:
    """Return a value as it stands in a cell: on one line, and with no column or element of its own."""
    text = visible(" ".join(str(value).split()))
    for old, new in _ESCAPES:
        text = text.replace(old, new)
    return text
