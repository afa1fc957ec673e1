"""XML from untrusted sources: no unexpected document type, no entities, bounded size."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from probes.base import DataError

__all__ = ["XmlElement", "parse_xml"]

# A larger document describes no machine, and is refused before it fills memory or stack.
_MOST_BYTES = 16 << 20
_DEEPEST = 64
_MOST_ELEMENTS = 200_000
_OTHERS = {"topology": "an hwloc topology (lstopo)", "nvidia_smi_log": "the output of nvidia-smi -q -x"}


@dataclass
class XmlElement:
    """One element: its tag and attributes, the line it starts on, its children and its joined text."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[XmlElement] = field(default_factory=list)
    text: str = ""

    def get(self, name: str) -> str:
        """Return an attribute without surrounding space; "" if it is missing."""
        return self.attributes.get(name, "").strip()


class _Refused(Exception):  # noqa: N818 - leaves the parser's callbacks, never this module
    """The reason why a file is refused."""


class _Builder:
    def __init__(self, parser: expat.XMLParserType, doctype: str) -> None:
        self._parser = parser
        self._allowed = doctype
        self._open: list[XmlElement] = []
        self._count = 0
        self.root: XmlElement | None = None
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = self._doctype

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._open) >= _DEEPEST or self._count > _MOST_ELEMENTS:
            raise _Refused(f"more than {_DEEPEST} levels or {_MOST_ELEMENTS} elements: no machine looks so")
        element = XmlElement(tag, attributes, self._parser.CurrentLineNumber)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def _text(self, text: str) -> None:
        self._open[-1].text += text

    def _end(self, tag: str) -> None:
        self._open.pop()

    def _doctype(self, name: str, system: str | None, public: str | None, internal: bool) -> None:
        if name == self._allowed and not internal:
            return
        what = _OTHERS.get(name, f"a document of type {name!r}")
        raise _Refused(f"expected a file without a document type, found {what}")


def parse_xml(content: bytes, source: str, doctype: str = "") -> XmlElement:
    """Return the root element of a document; raises DataError if it is not valid.

    The document may name only the type ``doctype``; external definitions are never fetched.
    """
    if not content.strip():
        raise DataError(source, ["the file is empty"])
    if len(content) > _MOST_BYTES:
        raise DataError(source, [f"expected at most {_MOST_BYTES >> 20} MiB, found {len(content)} bytes"])
    parser = expat.ParserCreate()
    builder = _Builder(parser, doctype)
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        message = expat.ErrorString(error.code)
        raise DataError(source, [f"not whole XML: {message} (line {error.lineno})"]) from error
    except _Refused as error:
        raise DataError(source, [str(error)]) from error
    except Exception as error:
        # To learn an unknown encoding, expat decodes all 256 byte values with a Python codec, which may raise
        # anything.
        raise DataError(source, [f"expected XML in UTF-8 or UTF-16: {error}"]) from error
    if builder.root is None:
        raise DataError(source, ["not XML: it has no element"])
    return builder.root
