"""Pages as roff, the format of man."""

from __future__ import annotations

from collections.abc import Iterable

from ccctl import __version__
from ccctl.docs.page import Block, Code, Entries, Mentions, Page, Subsection, Text, Usage

__all__ = ["written"]

# The date of the last change to this template, not today's, so that generated pages do not change daily.
_DATE = "2026-11-20"


def written(page: Page) -> str:
    """Return the text of the page for the manual."""
    name = page.name.upper().replace("-", r"\-")
    lines = [
        f'.TH {name} {page.number} {_DATE} "ccctl {__version__}" "ccctl manual"',
        ".SH NAME",
        rf"{_text(page.name)} \- {_text(page.claim)}",
    ]
    for section in page.sections:
        body = [line for block in section.blocks for line in _lines(block)]
        lines += [f".SH {section.title}", *body] if body else []
    return "\n".join(lines) + "\n"


def _lines(block: Block | Subsection) -> list[str]:
    match block:
        case Subsection(title, blocks):
            return [f".SS {_text(title)}", *(line for inner in blocks for line in _lines(inner))]
        case Text(words):
            return _paragraphs(words)
        case Entries(rows):
            return [
                line
                for term, meaning in rows
                for line in (".TP", rf"\fB{_text(term)}\fR", _text(meaning or "-"))
            ]
        case Code(shown):
            return [".nf", *(f"    {_text(line)}" for line in shown), ".fi"]
        case Usage(usages):
            typed = [rf"\fB{_text(command)}\fR {_text(rest)}" for command, rest in usages]
            return [line for number, one in enumerate(typed) for line in ([".br", one] if number else [one])]
        case Mentions(pages, before, after):
            named = [rf"\fB{_text(name)}\fR({number})" for name, number in pages]
            ends = [","] * (len(named) - 1) + [after]
            return [_text(before)] * bool(before) + [a + b for a, b in zip(named, ends, strict=True)]


def _paragraphs(words: str) -> list[str]:
    blocks: Iterable[str] = (" ".join(block.split()) for block in words.strip().split("\n\n"))
    lines: list[str] = []
    for block in blocks:
        lines += ([".PP"] if lines else []) + [_text(block)]
    return lines


def _text(words: str) -> str:
    """Escape the characters that have a meaning in roff."""
    plain = words.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{plain}" if plain.startswith((".", "'")) else plain
