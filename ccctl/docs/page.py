"""A reference page as data: written as roff for the manual, as Markdown for the site."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Block", "Code", "Entries", "Mentions", "Page", "Section", "Subsection", "Text", "Usage"]


@dataclass(frozen=True)
class Text:
    """Paragraphs, which blank lines separate."""

    words: str


@dataclass(frozen=True)
class Entries:
    """Terms, each with what it means."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Code:
    """Lines shown as they are."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Usage:
    """Command lines: what is typed, and what may follow it."""

    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Mentions:
    """Other pages, each by its name and number, and the words around them."""

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
    """A part of a page; one whose blocks hold nothing is left out."""

    title: str
    blocks: tuple[Block | Subsection, ...]


@dataclass(frozen=True)
class Page:
    """The page ``name``(``number``), and what it says of itself in one line."""

    name: str
    number: int
    claim: str
    sections: tuple[Section, ...]
