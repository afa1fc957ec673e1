"""The little of roff that a manual page needs: its lines are joined into a page."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["bold", "code", "entries", "heading", "paragraphs", "section", "subsection", "text"]

# A page carries the date of the last change to its template, so that it is the same on every day.
_DATE = "2026-11-20"


def heading(name: str, number: int, version: str) -> list[str]:
    """The first line of the page ``name``(``number``)."""
    return [
        f'.TH {name.upper().replace("-", chr(92) + "-")} {number} {_DATE} "ccctl {version}" "ccctl manual"'
    ]


def section(title: str, body: Iterable[str]) -> list[str]:
    """A section, or nothing where the body is empty."""
    lines = list(body)
    return [f".SH {title}", *lines] if lines else []


def subsection(title: str, body: Iterable[str]) -> list[str]:
    """A part of a section."""
    return [f".SS {text(title)}", *body]


def paragraphs(words: str) -> list[str]:
    """Text in paragraphs that blank lines separate."""
    blocks = [" ".join(block.split()) for block in words.strip().split("\n\n")]
    lines: list[str] = []
    for block in blocks:
        lines += ([".PP"] if lines else []) + [text(block)]
    return lines


def entries(rows: Iterable[tuple[str, str]]) -> list[str]:
    """A list of terms, each with what it means."""
    lines: list[str] = []
    for term, meaning in rows:
        lines += [".TP", bold(term), text(meaning or "-")]
    return lines


def code(lines: Iterable[str]) -> list[str]:
    """Lines shown as they are."""
    return [".nf", *(f"    {text(line)}" for line in lines), ".fi"]


def bold(words: str) -> str:
    """Words in bold type."""
    return rf"\fB{text(words)}\fR"


def text(words: str) -> str:
    """Words with whatever roff would read as its own made plain."""
    plain = words.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{plain}" if plain.startswith((".", "'")) else plain
