"""Reference pages as Markdown, for the site."""

from __future__ import annotations

import posixpath
import re

from ccctl.docs.page import Block, Code, Entries, Mentions, Page, Subsection, Text, Usage

__all__ = ["place", "written"]

_PAGE = re.compile(r"(ccctl(?:-\w+)?)\((\d)\)")


def place(name: str, number: int) -> str:
    """Return the path of the page ``name``(``number``) in the site."""
    if number != 1:
        return f"reference/{name.removeprefix('ccctl-')}.md"
    return f"reference/commands/{name.removeprefix('ccctl').removeprefix('-') or 'index'}.md"


def written(page: Page) -> str:
    """Return the text of the page for the site."""
    here = posixpath.dirname(place(page.name, page.number))
    claim = page.claim[0].upper() + page.claim[1:] + "."
    parts = [f"# {_title(page.name, page.number)}", _plain(claim)]
    for section in page.sections:
        body = [part for block in section.blocks for part in _parts(block, here)]
        parts += [f"## {section.title.capitalize()}", *body] if body else []
    return "\n\n".join(parts) + "\n"


def _parts(block: Block | Subsection, here: str) -> list[str]:
    match block:
        case Subsection(title, blocks):
            return [f"### {_plain(title)}", *(part for inner in blocks for part in _parts(inner, here))]
        case Text(words):
            return [_plain(" ".join(one.split())) for one in words.strip().split("\n\n")] if words else []
        case Entries(rows):
            return [f"{_term(term, here)}\n:   {_plain(meaning or '-')}" for term, meaning in rows]
        case Code(lines):
            return ["\n".join(["```text", *lines, "```"])]
        case Usage(lines):
            return ["\n".join(["```text", *(f"{command} {rest}" for command, rest in lines), "```"])]
        case Mentions(pages, before, after):
            return [
                f"{before} {', '.join(_link(name, number, here) for name, number in pages)}{after}".strip()
            ]


def _title(name: str, number: int) -> str:
    return name.replace("-", " ") if number == 1 else name


def _term(term: str, here: str) -> str:
    found = _PAGE.fullmatch(term)
    return _link(found[1], int(found[2]), here) if found else f"`{term}`"


def _link(name: str, number: int, here: str) -> str:
    return f"[{_title(name, number)}]({posixpath.relpath(place(name, number), here)})"


def _plain(words: str) -> str:
    """Escape the characters that have a meaning in Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>|~^])", r"\\\1", words)
