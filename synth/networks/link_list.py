"""Networks from lists of links, one a line: ``src,dst,alpha,bandwidth[,port…]``.

| what            | written                                                                      |
|-----------------|------------------------------------------------------------------------------|
| a rank          | a number from 0, or ``host:name``; names are numbered as they first appear   |
| alpha           | with its unit (``0.5us``), or bare where the header has it: ``Latency (ns)`` |
| bandwidth       | with its unit (``50GB/s``), or bare where the header has it                  |
| ports           | one word for each port, in further columns or separated by ``;`` in one;     |
|                 | links with the same word share that port                                     |

A header may name the columns in any order. Empty lines and lines that begin with # are ignored. If the first
line is a single number, it is the number of ranks.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from probes.base import CcctlError, DataError, parse_rate, parse_seconds, whole
from probes.files import read_text
from synth.collective import MOST_RANKS
from synth.network import Link, Network, build

__all__ = ["read_link_list"]

# Longer lists are refused before they fill the memory.
_MOST_BYTES = 128 << 20
_MOST_LINKS = 1 << 20
# A file in another format has a problem in every line; the first ones show what is wrong.
_MOST_PROBLEMS = 20
_DIGITS = re.compile(r"[0-9]+")
_COLUMNS = {
    "src": ("src", "source", "from"),
    "dst": ("dst", "dest", "destination", "target", "to"),
    "alpha": ("alpha", "latency", "delay"),
    "bandwidth": ("bandwidth", "bw", "rate"),
}


@dataclass(frozen=True)
class _Header:
    """The column of each field, and the units of bare numbers; ``ports`` are all other columns."""

    at: dict[str, int]
    units: dict[str, str]
    ports: tuple[int, ...] | None


_PLAIN = _Header({"src": 0, "dst": 1, "alpha": 2, "bandwidth": 3}, {}, None)


def read_link_list(path: str, *, hold_alpha: bool = False) -> Network:
    """Return the network in the file ``path``; raise DataError with every problem, each with its line."""
    reader = _Reader(path)
    reader.read(read_text(path, _MOST_BYTES))
    return build(Path(path).name, reader.hosts(), reader.links(), hold_alpha=hold_alpha)


class _Reader:
    """Collects rows and problems."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.problems: list[str] = []
        self.rows: list[tuple[str, str, float, float, tuple[str, ...]]] = []
        self.stated = 0

    def read(self, text: str) -> None:
        try:
            self._collect(text)
        except csv.Error as error:
            self.problems.append(f"expected lines with commas: {error}")
        if not self.rows and not self.problems:
            self.problems.append("no links; expected lines such as 0,1,0.5us,50GB/s")
        if len(self.rows) > _MOST_LINKS:
            self.problems.append(f"expected at most {_MOST_LINKS} links")
        self.numbered = all(_DIGITS.fullmatch(name) for row in self.rows for name in row[:2])
        if self.numbered and any(
            whole(name, 0, MOST_RANKS - 1) is None for row in self.rows for name in row[:2]
        ):
            self.problems.append(f"rank numbers: expected less than {MOST_RANKS}")
        if self.problems:
            more = len(self.problems) - _MOST_PROBLEMS
            rest = ["… and more problems"] if more > 0 else []
            hint = "A line is src,dst,alpha,bandwidth and ports: 0,1,0.5us,50GB/s,nic0."
            raise DataError(self.path, self.problems[:_MOST_PROBLEMS] + rest, hint=hint)

    def _collect(self, text: str) -> None:
        header = _PLAIN
        for line, fields in _lines(text):
            if len(self.problems) > _MOST_PROBLEMS or len(self.rows) > _MOST_LINKS:
                return
            if not self.rows and not self.problems and header is _PLAIN:
                if len(fields) == 1 and (stated := whole(fields[0], 1, MOST_RANKS)) and not self.stated:
                    self.stated = stated
                    continue
                if (found := _header(fields)) is not None:
                    header = found
                    continue
            self._row(line, fields, header)

    def _row(self, line: int, fields: Sequence[str], header: _Header) -> None:
        if len(fields) <= max(header.at.values()):
            needed = max(header.at.values()) + 1
            self.problems.append(f"line {line}: expected {needed} columns or more, found {len(fields)}")
            return
        src, dst, alpha, bandwidth = (fields[header.at[name]] for name in _COLUMNS)
        at_ports = range(4, len(fields)) if header.ports is None else header.ports
        named = (port.strip() for at in at_ports if at < len(fields) for port in fields[at].split(";"))
        ports = tuple(port for port in named if port)
        try:
            alpha_s = parse_seconds(_with_unit(alpha, header.units.get("alpha", "")), "alpha")
            rate = parse_rate(_with_unit(bandwidth, header.units.get("bandwidth", "")), "bandwidth")
        except CcctlError as error:
            self.problems.append(f"line {line}: {error.message}")
            return
        for name, rank in (("src", src), ("dst", dst)):
            if not re.fullmatch(r"[0-9]+|[^\s:]+:[^\s:]+", rank):
                self.problems.append(
                    f"line {line}: {name}: expected a rank such as 3 or n0:3, found {rank!r}"
                )
                return
        if src == dst:
            self.problems.append(f"line {line}: the link leads from rank {src} to itself")
            return
        self.rows.append((src, dst, alpha_s, 1.0 / rate, ports))

    def _numbers(self) -> dict[str, int]:
        names = dict.fromkeys(name for row in self.rows for name in row[:2])
        if self.numbered:
            return {name: int(name) for name in names}
        return {name: number for number, name in enumerate(names)}

    def hosts(self) -> list[str]:
        numbers = self._numbers()
        ranks = max(self.stated, max(numbers.values()) + 1)
        named = {number: name.partition(":")[0] for name, number in numbers.items() if ":" in name}
        return [named.get(rank, f"n{rank}") for rank in range(ranks)]

    def links(self) -> Iterator[Link]:
        numbers = self._numbers()
        for src, dst, alpha_s, beta_s_per_byte, ports in self.rows:
            yield Link(numbers[src], numbers[dst], alpha_s, beta_s_per_byte, ports)


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    for line, fields in enumerate(csv.reader(io.StringIO(text), skipinitialspace=True), start=1):
        stripped = [field.strip() for field in fields]
        if any(stripped) and not stripped[0].startswith("#"):
            yield line, stripped


def _header(fields: Sequence[str]) -> _Header | None:
    """Return the header in these fields; None if they do not name all four columns."""
    at: dict[str, int] = {}
    units: dict[str, str] = {}
    for place, field in enumerate(fields):
        word, _, unit = field.replace("[", "(").replace("]", ")").partition("(")
        name = next((key for key, words in _COLUMNS.items() if word.strip().lower() in words), None)
        if name is not None and name not in at:
            at[name], units[name] = place, unit.strip(" )")
    if set(at) != set(_COLUMNS):
        return None
    ports = tuple(place for place in range(len(fields)) if place not in at.values())
    return _Header(at, units, ports)


def _with_unit(text: str, unit: str) -> str:
    return text + unit if re.fullmatch(r"[0-9.eE+-]+", text) and unit else text
