"""The links that a user wants measured, one per line: ``SRC DST`` or ``ROUND SRC DST``, ranks or hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from probes.base import DataError, whole
from probes.sampling.rounds import Pair
from probes.sampling.samples import Place

__all__ = ["RequestedPair", "WantedPairs", "parse_pairs", "resolve"]

_FORM = "expected SRC DST or ROUND SRC DST"


@dataclass(frozen=True)
class RequestedPair:
    """One line: ``src`` and ``dst`` are rank numbers, host names or host:n (the n-th rank there)."""

    line: int
    round: int
    src: str
    dst: str


@dataclass(frozen=True)
class WantedPairs:
    """The lines of one file, and the file's name in messages."""

    source: str
    lines: tuple[RequestedPair, ...]


def parse_pairs(text: str, source: str) -> WantedPairs:
    """Parse the pairs of a file; # starts a comment. Raises DataError with every bad line by its number."""
    found: list[RequestedPair] = []
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) == 3 and whole(words[0]) is None:
            problems.append(f"line {number}: {_FORM}; {words[0]!r} is not the number of a round")
        elif len(words) not in (2, 3):
            problems.append(f"line {number}: {_FORM}, found {len(words)} words")
        else:
            found.append(RequestedPair(number, (whole(words[0]) or 0) if len(words) == 3 else 0, *words[-2:]))
    if not found and not problems:
        problems.append(f"{_FORM} in each line, found no pair")
    if problems:
        raise DataError(source, problems)
    return WantedPairs(source, tuple(found))


def resolve(wanted: WantedPairs, places: Sequence[Place]) -> list[list[Pair]]:
    """Return the rounds of links between ranks; raises DataError that lists every bad line."""
    rounds: dict[int, list[Pair]] = {}
    first_line: dict[Pair, int] = {}
    problems: list[str] = []
    for line in wanted.lines:
        ends = [_rank(word, places) for word in (line.src, line.dst)]
        lost = [word for word, rank in zip((line.src, line.dst), ends, strict=True) if rank is None]
        if lost:
            problems.append(f"line {line.line}: there is no rank or host {' nor '.join(map(repr, lost))}")
            continue
        pair = (int(ends[0] or 0), int(ends[1] or 0))
        if pair[0] == pair[1]:
            problems.append(f"line {line.line}: {line.src} and {line.dst} are the same rank")
        elif pair in first_line:
            problems.append(f"line {line.line}: the pair of line {first_line[pair]} again")
        else:
            first_line[pair] = line.line
            rounds.setdefault(line.round, []).append(pair)
    if problems:
        raise DataError(wanted.source, problems)
    return [rounds[number] for number in sorted(rounds)]


def _rank(word: str, places: Sequence[Place]) -> int | None:
    if (number := whole(word)) is not None:
        return number if number < len(places) else None
    host, _, local = word.partition(":")
    ranks = [rank for rank, place in enumerate(places) if place.host == host]
    if not local:
        return ranks[0] if ranks else None
    at = whole(local, 0, len(ranks) - 1)
    return ranks[at] if at is not None else None
