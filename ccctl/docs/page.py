"""A reference page as data, from which the manual (roff) and the site (Markdown) are written."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Block", "Code", "Entries", "Mentions", "Page", "Section", "Subsection", "Text", "Usage"]


@dataclass(frozen=True)
class Text:
    """Paragraphs, separated by blank lines."""

    words: str


@dataclass(frozen=True)
class Entries:
    """Terms and their meanings."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Code:
    """Lines shown verbatim."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Usage:
    """Command lines: the command, and the arguments that may follow."""

    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Mentions:
    """References to other pages, as (name, section number), and the words around them."""

    pages: tuple[tuple[str, int], ...]
    before: str = ""
    after: str = ""


Block = Text | Entries | Code | Usage | Mentions


@dataclass(frozen=True)
class Subsection:
    """A part of a section."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Section:
    """A part of a page; it is left out if its blocks are empty."""

    title: str
    blocks: tuple[Block | Subsection, ...]


@dataclass(frozen=True)
class Page:
    """The page ``name``(``number``); ``claim`` is its one-line description."""

    name: str
    number: int
    claim: str
    sections: tuple[Section, ...]
