"""Sets of hosts as operators write them: ``gpu[01-08]:4,login1:2``, or the hostfile of a launcher.

A name may hold several brackets: ``a[1-3,7]-b[0-1]`` is eight hosts, with the last bracket varying fastest.
Numbers keep their leading zeros. The slots of a host follow a colon or Slurm's ``*``; one by default. IPv6
addresses are refused, because ``mpirun`` reads their colons as slots.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from probes.base import DataError, UsageError, quoted
from probes.files import read_text

__all__ = ["MOST_RANKS", "HostSlots", "expand", "fold", "parse", "read_hostfile"]

# The most slots of a list. Every host has at least one, so this also bounds the hosts.
MOST_RANKS = 65_536
_MOST_LETTERS = 253
_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{_MOST_LETTERS - 1}}}")
_SPAN = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_COUNT = re.compile(r"[0-9]{1,9}")
# Keywords of Open MPI, Torque and LAM for the slots of a host and for their maximum.
_SLOTS = re.compile(r"(slots|count|cpus?|np|max[_-]slots|slots[_-]max)=([0-9]{1,9})")
_EQUALS = re.compile(r"\s*=\s*")
_SIGN = re.compile("[:*]")
_LINES = "Each line reads: name, name:4, name slots=4 or name 4."
# Longer digit sequences than a range allows count as letters.
_DIGITS = re.compile(r"(?<![0-9])([0-9]{1,18})(?![0-9])")
# The texts between the numbers of a name, and for each number the values found there.
_Pattern = tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]


@dataclass(frozen=True)
class HostSlots:
    """One host and how many ranks may run on it."""

    host: str
    slots: int

    @property
    def is_here(self) -> bool:
        """Whether this process runs on that host."""
        return self.host in (socket.gethostname(), "localhost")


def parse(text: str, most: int = MOST_RANKS, slots: int = 1) -> tuple[HostSlots, ...]:
    """Return the hosts of a node set in order; repeated hosts have their slots added up.

    A host without a count has ``slots``. Raises UsageError that quotes the unreadable part, or for more than
    ``most`` slots.
    """
    found: list[HostSlots] = []
    total = 0
    for part in _split(text):
        _refuse_addresses(part.strip())
        names, sign, count = _parted(part.strip())
        if sign and not (_COUNT.fullmatch(count) and int(count) > 0):
            raise UsageError(
                f"expected a positive number of slots after {quoted(names)}{sign}, found {quoted(count)}"
            )
        entries = [HostSlots(name, int(count or slots)) for name in expand(names, most)]
        found += entries
        total += sum(entry.slots for entry in entries)
        if total > most:
            raise UsageError(f"expected at most {most} slots in all, found {quoted(text)}")
    return _merged(found)


def _parted(part: str) -> tuple[str, str, str]:
    """Return the names of a part, the sign after them ("" for none) and the text of their slots."""
    sign = _SIGN.search(part)
    return (part[: sign.start()], sign[0], part[sign.end() :]) if sign else (part, "", "")


def expand(pattern: str, most: int = MOST_RANKS) -> list[str]:
    """Return the names of one pattern: ``gpu[01-03]`` is gpu01, gpu02, gpu03.

    Raises UsageError for more than ``most`` names or an invalid one.
    """
    choices: list[list[str]] = []
    size, letters = 1, 0
    for literal, bracket in _pieces(pattern):
        choices.append(_span_names(bracket, pattern, most) if bracket is not None else [literal])
        size *= len(choices[-1])
        letters += min(map(len, choices[-1]))
        if size > most:
            raise _too_many(pattern, most)
        if letters > _MOST_LETTERS:
            raise UsageError(f"expected names of up to {_MOST_LETTERS} letters, found {quoted(pattern)}")
    names = ["".join(parts) for parts in product(*choices)]
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{quoted(name)} is not a host name", hint="An example: gpu[01-08]:4,login1:2")
    return names


def fold(names: Iterable[str]) -> str:
    """Return the node set of these names, each once: gpu01, gpu02 and gpu04 are ``gpu[01-02,04]``.

    Names are in the order of their numbers; ``parse`` expands the result again.
    """
    patterns: set[_Pattern] = set()
    for name in names:
        pieces = _DIGITS.split(name)
        patterns.add((tuple(pieces[::2]), tuple((number,) for number in pieces[1::2])))
    for at in reversed(range(max((len(numbers) for _, numbers in patterns), default=0))):
        patterns = _joined(patterns, at)
    return ",".join(map(_rendered, sorted(patterns, key=_by_number)))


def read_hostfile(path: str) -> tuple[HostSlots, ...]:
    """Return the hosts of a file with one per line, as for Open MPI, MPICH, Slurm, Torque and LSF.

    A line reads ``name``, ``name:4``, ``name slots=4 max-slots=8``, ``name np=4`` or ``name 4``; ``#`` starts
    a comment. The slots of a host on several lines add up. Raises DataError with every unreadable line.
    """
    lines = read_text(path).splitlines()
    found: list[HostSlots] = []
    problems: list[str] = []
    slots = 0
    for number, line in enumerate(lines, start=1):
        content = _EQUALS.sub("=", line.partition("#")[0]).split()
        if not content:
            continue
        try:
            entries = _hostfile_line(content)
        except UsageError as error:
            problems.append(f"line {number}: {error.message}")
            continue
        found += entries
        slots += sum(entry.slots for entry in entries)
        if slots > MOST_RANKS:
            problems.append(f"line {number}: expected at most {MOST_RANKS} slots up to here, found {slots}")
            break
    if not found and not problems:
        problems.append("expected one host a line, found none")
    if problems:
        raise DataError(path, problems, hint=_LINES)
    return _merged(found)


def _hostfile_line(words: list[str]) -> tuple[HostSlots, ...]:
    entries = parse(words[0])
    counts, limits = _counts(words)
    if _SIGN.search(words[0]):
        counts.append(entries[0].slots)
    if len(set(counts)) > 1:
        raise UsageError(f"{quoted(words[0])} has {' and '.join(map(str, counts))} slots: say one of them")
    slots = min([*counts, *limits], default=1)
    if counts and slots < counts[0]:
        raise UsageError(f"{quoted(words[0])} has {counts[0]} slots, and at most {slots}")
    return tuple(HostSlots(entry.host, slots) for entry in entries)


def _counts(words: list[str]) -> tuple[list[int], list[int]]:
    """Return (slots, most slots) from the words after the name of a host."""
    counts: list[int] = []
    limits: list[int] = []
    for word in words[1:]:
        named = _SLOTS.fullmatch(word)
        alone = _COUNT.fullmatch(word) if len(words) == 2 else None
        count = int(named[2] if named else alone[0] if alone else 0)
        if count < 1:
            raise UsageError(f"expected slots=N after {quoted(words[0])}, found {quoted(word)}")
        (limits if named and "max" in named[1] else counts).append(count)
    return counts, limits


def _refuse_addresses(part: str) -> None:
    """Raise UsageError for an IPv6 address or a user's name, with an alternative as hint."""
    inside = part[1:].partition("]")[0] if part.startswith("[") else part
    try:
        ipaddress.IPv6Address(inside)
    except ValueError:
        if "@" in part:
            raise UsageError(
                f"expected a host alone, found {quoted(part)}",
                hint="Name the user of a host in ~/.ssh/config: Host gpu*, User name.",
            ) from None
        return
    raise UsageError(
        f"expected the name of a host, found the IPv6 address {quoted(inside)}",
        hint="Give the address a name in /etc/hosts or the DNS, and write that.",
    )


def _split(text: str) -> Iterator[str]:
    """Yield the parts between commas outside brackets."""
    depth, start = 0, 0
    for index, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            yield text[start:index]
            start = index + 1
    yield text[start:]


def _pieces(pattern: str) -> Iterator[tuple[str, str | None]]:
    """Yield (literal, None) and ("", bracket content) in the order of the pattern."""
    rest = pattern
    while rest:
        literal, opening, tail = rest.partition("[")
        if "]" in literal:
            raise UsageError(f"a ] without its [ in {quoted(pattern)}")
        if literal:
            yield literal, None
        if not opening:
            return
        inside, closing, rest = tail.partition("]")
        if not closing or "[" in inside:
            raise UsageError(f"a [ without its ] in {quoted(pattern)}")
        yield "", inside


def _span_names(inside: str, pattern: str, most: int) -> list[str]:
    names: list[str] = []
    for part in inside.split(","):
        span = _SPAN.fullmatch(part.strip())
        if span is None:
            raise UsageError(
                f"expected numbers like 01-08, of up to 18 digits, in the brackets of "
                f"{quoted(pattern)}, found {quoted(part)}"
            )
        first, last = span[1], span[2] or span[1]
        if int(last) < int(first):
            raise UsageError(f"the range {part} of {quoted(pattern)} runs backwards")
        if last.startswith("0") and len(last) > len(first):
            raise UsageError(
                f"the ends of the range {part} of {quoted(pattern)} have {len(first)} and {len(last)} digits"
            )
        if len(names) + int(last) - int(first) >= most:
            raise _too_many(pattern, most)
        width = len(first) if first.startswith("0") else 0
        names += [str(number).zfill(width) for number in range(int(first), int(last) + 1)]
    return names


def _too_many(pattern: str, most: int) -> UsageError:
    return UsageError(f"{quoted(pattern)} stands for more than {most} hosts")


def _merged(entries: Iterable[HostSlots]) -> tuple[HostSlots, ...]:
    slots: dict[str, int] = {}
    for entry in entries:
        slots[entry.host] = slots.get(entry.host, 0) + entry.slots
    return tuple(HostSlots(host, count) for host, count in slots.items())


def _joined(patterns: Iterable[_Pattern], at: int) -> set[_Pattern]:
    """Merge the patterns that differ only in the number at place ``at``."""
    values: dict[_Pattern, set[str]] = {}
    for letters, numbers in patterns:
        rest = (letters, (*numbers[:at], (), *numbers[at + 1 :]) if at < len(numbers) else numbers)
        values.setdefault(rest, set()).update(numbers[at] if at < len(numbers) else ())
    return {
        (letters, (*numbers[:at], tuple(sorted(found, key=_size)), *numbers[at + 1 :]) if found else numbers)
        for (letters, numbers), found in values.items()
    }


def _size(number: str) -> tuple[int, int]:
    return int(number), len(number)


def _by_number(pattern: _Pattern) -> tuple[object, ...]:
    letters, numbers = pattern
    sizes = [_size(values[0]) for values in numbers]
    return tuple(zip(letters, [*sizes, (-1, 0)], strict=True))


def _rendered(pattern: _Pattern) -> str:
    letters, numbers = pattern
    words = (values[0] if len(values) == 1 else f"[{','.join(_runs(values))}]" for values in numbers)
    return "".join(piece for pair in zip(letters, [*words, ""], strict=True) for piece in pair)


def _runs(numbers: Iterable[str]) -> Iterator[str]:
    left = dict.fromkeys(numbers)
    while left:
        first = last = next(iter(left))
        del left[first]
        width = len(first) if first.startswith("0") else 0
        while (following := str(int(last) + 1).zfill(width)) in left:
            del left[following]
            last = following
        yield first if first == last else f"{first}-{last}"
