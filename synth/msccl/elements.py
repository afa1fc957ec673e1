"""The elements of an MSCCL XML file as columns, read in one pass with little memory."""

from __future__ import annotations

from collections.abc import Sequence
from xml.parsers import expat

import numpy as np

from probes.base import DataError, Indices, whole

__all__ = ["ElementTable", "Elements", "parse"]

# Elements in a batch. Their attributes become numbers together, because strings take far more memory.
_BATCH = 1 << 14
# Bytes parsed at a time. Limits are checked after each such piece, before the next can fill the memory.
_PIECE = 1 << 16
# Most bytes of a tag, levels of nesting, and elements. A larger file is refused before it fills the memory.
_LONGEST_TAG = 1 << 20
_DEEPEST = 64
_MOST_ELEMENTS = 1 << 23
# The largest C int. MSCCL's parser reads attributes as C ints (xmlGetAttrInt).
_LARGEST = (1 << 31) - 1
# The number that stands for a value that is missing or unreadable.
_UNREADABLE = np.iinfo(np.int64).min
# The attributes that are kept as text; all others are numbers.
_TEXT = {"type", "srcbuf", "dstbuf", "name", "bid"}


class ElementTable:
    """All elements of one name as columns; ``parent`` is the row of each element's parent."""

    def __init__(self, name: str, above: ElementTable | None) -> None:
        self.name, self.above = name, above
        self.rows = 0
        self._parents: list[int] = []
        self._batch: list[list[str]] = []
        self._columns: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
        self._numbers: dict[str, list[tuple[int, Indices]]] = {}

    def add(self, parent: int, attributes: list[str]) -> None:
        """Add an element; ``attributes`` alternates names and values."""
        self._parents.append(parent)
        self._batch.append(attributes)
        self.rows += 1
        if len(self._batch) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Convert the elements added since the last flush into columns."""
        first = self.rows - len(self._batch)
        same_names: list[list[str]] = []
        names: list[str] = []
        for attributes in self._batch:
            if attributes[::2] != names and same_names:
                self._store(first, names, same_names)
                first += len(same_names)
                same_names = []
            names = names if same_names else attributes[::2]
            same_names.append(attributes)
        if same_names:
            self._store(first, names, same_names)
        self._batch = []

    def _store(self, first: int, names: list[str], rows: list[list[str]]) -> None:
        values = list(zip(*rows, strict=True))[1::2]
        for name, column in zip(names, values, strict=True):
            if name in _TEXT:
                self._columns.setdefault(name, []).append((first, column))
            else:
                self._numbers.setdefault(name, []).append((first, _numbers(column)))

    @property
    def parent(self) -> Indices:
        return np.array(self._parents, dtype=np.int64)

    def numbers(self, name: str, found: list[str], default: int | None = None) -> Indices:
        """Return an attribute as numbers.

        An unreadable value, or a missing one without ``default``, is added to the problems ``found``.
        """
        column = np.full(self.rows, _UNREADABLE if default is None else default, dtype=np.int64)
        for first, values in self._numbers.get(name, ()):
            column[first : first + len(values)] = values
        for row in np.flatnonzero(column == _UNREADABLE)[:5].tolist():
            found.append(f"{self.place(row)}: {name}: expected a whole number")
        return column

    def choices(
        self, name: str, known: Sequence[str], found: list[str], default: str | None = None
    ) -> Indices:
        """Return an attribute as indices into ``known``; report any other value in ``found``."""
        number = {value: at for at, value in enumerate(known)}
        column = np.full(self.rows, -1 if default is None else number[default], dtype=np.int64)
        for first, values in self._columns.get(name, ()):
            column[first : first + len(values)] = [number.get(value, -1) for value in values]
        for row in np.flatnonzero(column < 0)[:5].tolist():
            found.append(f"{self.place(row)}: {name}: expected one of {' '.join(known)}")
        column[column < 0] = 0
        return column

    def place(self, row: int) -> str:
        """Return the position of an element in the file, counted within its parent: ``gpu 2 tb 0 step 7``."""
        parent = self._parents[row]
        number = row - self._parents.index(parent)
        above = "" if self.above is None else f"{self.above.place(parent)} "
        return f"{above}{self.name} {number}"


class Elements:
    """The attributes of ``<algo>``, and the tables of gpus, threadblocks and steps."""

    def __init__(self) -> None:
        self.algo: dict[str, str] = {}
        self.gpus = ElementTable("gpu", None)
        self.blocks = ElementTable("tb", self.gpus)
        self.steps = ElementTable("step", self.blocks)


def parse(content: bytes, source: str) -> Elements:
    """Return the elements of an MSCCL file; raise DataError if it is malformed or too large."""
    reader = _Reader(source)
    parser = expat.ParserCreate()
    parser.ordered_attributes = True
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.EntityDeclHandler = reader.entity
    try:
        _feed(parser, content, reader)
    except expat.ExpatError as error:
        hint = "was it cut off?" if "no element found" in str(error) else ""
        raise DataError(source, [f"expected XML: {error}"], hint=hint) from error
    except DataError:
        raise
    except Exception as error:
        # If Expat does not know the encoding, a Python codec decodes all 256 byte values, and may raise
        # anything.
        raise DataError(source, [f"expected XML in UTF-8 or UTF-16: {error}"]) from error
    for table in (reader.elements.gpus, reader.elements.blocks, reader.elements.steps):
        table.flush()
    return reader.elements


def _feed(parser: expat.XMLParserType, content: bytes, reader: _Reader) -> None:
    """Parse piece by piece, so that a tag or table that is too long is refused before it fills memory."""
    tables = (reader.elements.gpus, reader.elements.blocks, reader.elements.steps)
    for start in range(0, len(content), _PIECE):
        parser.Parse(content[start : start + _PIECE], False)
        if start + _PIECE - max(0, parser.CurrentByteIndex) > _LONGEST_TAG:
            problem = f"line {parser.CurrentLineNumber}: a tag of more than {_LONGEST_TAG} bytes"
            raise DataError(reader.source, [problem])
        if sum(table.rows for table in tables) > _MOST_ELEMENTS:
            raise DataError(reader.source, [f"expected at most {_MOST_ELEMENTS} elements, found more"])
    parser.Parse(b"", True)


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.elements = Elements()
        self._path: list[str] = []
        self._steps, self._blocks = self.elements.steps, self.elements.blocks
        self._gpus = self.elements.gpus

    def start(self, name: str, attributes: list[str]) -> None:
        depth = len(self._path)
        if depth >= _DEEPEST:
            raise DataError(self.source, [f"nested deeper than {_DEEPEST} elements"])
        self._path.append(name)
        # Skip elements that no executor reads, and everything inside them.
        if depth == 3 and name == "step" and self._path[2] == "tb":
            self._steps.add(self._blocks.rows - 1, attributes)
        elif depth == 2 and name == "tb" and self._path[1] == "gpu":
            self._blocks.add(self._gpus.rows - 1, attributes)
        elif depth == 1 and name == "gpu":
            self._gpus.add(0, attributes)
        elif depth == 0:
            if name != "algo":
                raise DataError(self.source, [f"expected an <algo> element, found <{name}>"])
            self.elements.algo = dict(zip(attributes[::2], attributes[1::2], strict=True))

    def end(self, name: str) -> None:
        self._path.pop()

    def entity(self, *declaration: object) -> None:
        raise DataError(self.source, ["declares entities, which no program needs"])


def _numbers(values: Sequence[str]) -> Indices:
    joined = "".join(values)
    # int() is twice as fast as `whole`. Both agree on short ASCII numbers without underscores.
    if joined.isascii() and "_" not in joined and max(map(len, values)) < 10:
        try:
            return np.fromiter(map(int, values), dtype=np.int64, count=len(values))
        except ValueError:
            pass
    found = [whole(value.strip(), -_LARGEST, _LARGEST) for value in values]
    return np.array([_UNREADABLE if value is None else value for value in found], dtype=np.int64)
