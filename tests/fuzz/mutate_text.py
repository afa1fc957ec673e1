"""Damage to text files: XML by its elements and attributes, others by their lines and words."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from oddities import odd_text

__all__ = ["lines_mutated", "lines_respelled", "xml_mutated", "xml_respelled"]

_ATTRIBUTE = re.compile(r'\s([\w:.-]+)\s*=\s*"([^"]*)"')
_TAG = re.compile(r"<[^!?][^>]*>")
_WORD = re.compile(r"[^\s,;:=\[\](){}\"']+")
_XML_INSERTS = (
    "<!-- x -->", "<![CDATA[x]]>", "<?pi x?>", "<x/>", "<x>", "</x>", "&amp;", "&undefined;", "&#0;",
    "&#x110000;",
    "text", "<a:b/>", "<a xmlns:a='u'/>", "<" * 50, "<x " + "a='1' " * 3 + "/>",
)  # fmt: skip
_XML_HEADS = (
    '<?xml version="1.0" encoding="UTF-7"?>', '<?xml version="1.0" encoding="UTF-16"?>',
    '<?xml version="9.0"?>',
    '<?xml version="1.0" encoding="bogus"?>', '<?xml version="1.0" encoding="latin-1"?>',
    '<?xml encoding="cp037"?>',
    '<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]>', "<!DOCTYPE a SYSTEM 'http://127.0.0.1:9/x.dtd'>",
    '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {letter} "' + f"&{before};" * 10 + '">'
        for before, letter in zip("abcdefgh", "bcdefghi", strict=True)
    ) + "]>", "<!DOCTYPE a [<!ENTITY e '&e;'>]>",
)  # fmt: skip


def xml_mutated(rng: random.Random, text: str) -> str:
    """An XML text with one to three changes to attributes, elements or its head."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice(_XML)(rng, text)
    return text


def xml_respelled(rng: random.Random, text: str) -> str:
    """The same document: comments, white space within tags, attributes in another order."""

    def tag(match: re.Match[str]) -> str:
        found = _ATTRIBUTE.findall(match[0])
        if not found or rng.random() < 0.5 or match[0].startswith("<?"):
            return match[0]
        rng.shuffle(found)
        name = re.match(r"<([\w:.-]+)", match[0])
        assert name is not None
        gap = rng.choice((" ", "  ", "\n", "\t"))
        end = " />" if match[0].endswith("/>") else ">"
        return f"<{name[1]}{gap}" + gap.join(f'{key}="{value}"' for key, value in found) + end

    spelled = _TAG.sub(tag, text)
    return spelled + rng.choice(("", "\n<!-- end -->\n", "\n\n"))


def _attribute(rng: random.Random, text: str) -> str:
    by_name: dict[str, list[re.Match[str]]] = {}
    for match in _ATTRIBUTE.finditer(text):
        by_name.setdefault(match[1], []).append(match)
    if not by_name:
        return text
    match = rng.choice(by_name[rng.choice(list(by_name))])
    value = match[2]
    number = bool(re.fullmatch(r"[-+.\deE]+|0x[\da-fA-F]+", value))
    pick = rng.random()
    if pick < 0.3:
        new = f' {match[1]}="{_escaped(odd_text(rng, number=number))}"'
    elif pick < 0.55 and re.fullmatch(r"-?\d{1,18}", value):
        new = f' {match[1]}="{int(value) + rng.choice((-2, -1, 1, 2, 1000))}"'
    elif pick < 0.65:
        other = rng.choice(by_name[rng.choice((match[1], rng.choice(list(by_name))))])
        new = f' {match[1]}="{other[2]}"'
    elif pick < 0.8:
        new = ""
    elif pick < 0.85:
        new = match[0] + match[0]
    elif pick < 0.9:
        new = f' {match[1]}x="{value}"'
    elif pick < 0.95:
        new = f" {match[1]}={value}"
    else:
        new = f' {match[1]}="{value}{rng.choice((" ", ",", value))}"'
    return text[: match.start()] + new + text[match.end() :]


def _element(rng: random.Random, text: str) -> str:
    found = list(_TAG.finditer(text))
    if not found:
        return text
    match = rng.choice(found)
    pick = rng.randrange(6)
    if pick == 0:
        return text[: match.start()] + text[match.end() :]
    if pick == 1:
        return text[: match.end()] + match[0] + text[match.end() :]
    if pick == 2:
        first, second = sorted((match, rng.choice(found)), key=lambda one: one.start())
        if first is second:
            return text
        middle = text[first.end() : second.start()]
        return text[: first.start()] + second[0] + middle + first[0] + text[second.end() :]
    if pick == 3:
        name = re.sub(
            r"^<(/?)[\w:.-]+",
            rf"<\1{rng.choice(('x', 'gpu', 'tb', 'step', 'pci', 'object', 'nic', 'A'))}",
            match[0],
        )
        return text[: match.start()] + name + text[match.end() :]
    if pick == 4:
        return text[: match.end()] + rng.choice(_XML_INSERTS) + text[match.end() :]
    wrapped = match[0] * rng.choice((2, 30, 3000))
    return text[: match.end()] + wrapped + text[match.end() :]


def _head(rng: random.Random, text: str) -> str:
    bare = re.sub(r"^\s*<\?xml[^>]*\?>", "", text)
    used = re.sub(r'"[^"]*"', '"&i;&e;"', bare, count=1) if rng.random() < 0.3 else bare
    return rng.choice(_XML_HEADS) + used


def _lines(rng: random.Random, text: str) -> str:
    lines = text.splitlines(keepends=True) or [""]
    at = rng.randrange(len(lines))
    pick = rng.randrange(8)
    if pick == 0:
        del lines[at]
    elif pick == 1:
        lines.insert(at, lines[at])
    elif pick == 2:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif pick == 3:
        rng.shuffle(lines)
    elif pick == 4:
        lines = lines[:at]
    elif pick == 5:
        lines[at] = lines[at].rstrip("\n")
    elif pick == 6:
        lines[at] = lines[at] * rng.choice((2, 5, 2000))
    else:
        lines.insert(at, odd_text(rng, number=False) + "\n")
    return "".join(lines)


def _words(rng: random.Random, text: str) -> str:
    found = list(_WORD.finditer(text))
    if not found:
        return odd_text(rng, number=False)
    match = rng.choice(found)
    value = match[0]
    number = value[0].isdigit()
    pick = rng.random()
    if pick < 0.5:
        new = odd_text(rng, number=number)
    elif pick < 0.65 and re.fullmatch(r"\d{1,18}", value):
        new = str(int(value) + rng.choice((-1, 1, 1000)))
    elif pick < 0.75:
        new = rng.choice(found)[0]
    elif pick < 0.85:
        new = ""
    elif pick < 0.92:
        new = value + value
    else:
        new = value[: rng.randrange(len(value))]
    return text[: match.start()] + new + text[match.end() :]


def _delimiters(rng: random.Random, text: str) -> str:
    found = [at for at, letter in enumerate(text) if letter in ",:=[]{}\"'|/ \t()"]
    if not found:
        return text
    at = rng.choice(found)
    return (
        text[:at]
        + rng.choice(("", ",", ":", "=", "[", "]", '"', "'", "  ", "\t", "\n", ";", "}"))
        + text[at + 1 :]
    )


def lines_mutated(rng: random.Random, text: str) -> str:
    """A text with one to three changes to lines, words or what stands between them."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice((_lines, _words, _words, _words, _delimiters))(rng, text)
    return text


def lines_respelled(rng: random.Random, text: str, comment: str) -> str:
    """The same text with empty lines, comments and other line ends."""
    lines: list[str] = []
    for line in text.splitlines():
        if rng.random() < 0.15:
            lines.append(rng.choice(("", "   ", f"{comment} nothing", f"  {comment}é")))
        lines.append(line + rng.choice(("", "", " ", "\t")))
    return rng.choice(("\n", "\r\n")).join(lines) + rng.choice(("", "\n", "\n\n"))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


_XML: tuple[Callable[[random.Random, str], str], ...] = (
    _attribute, _attribute, _attribute, _attribute, _attribute, _element, _element, _head, _lines,
)  # fmt: skip
