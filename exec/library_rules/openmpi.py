"""Open MPI's dynamic rules of coll/tuned (coll_tuned_dynamic_rules_filename), read, merged and written.

The file nests collectives, sizes of communicators, and sizes of messages. A communicator uses the entry of
the largest size that does not exceed its own, or the first entry if there is none. So rules for n ranks alone
would apply to all sizes of communicators. Entries below and above n prevent that: they select algorithm 0,
the library's own choice. For all collectives here, message sizes are those of nccl-tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from probes.base import DataError
from synth.collective import Kind

__all__ = ["COLLECTIVES", "RuleEntry", "Table", "merged", "read_rules", "with_rules", "write_rules"]

# COLLTYPE in ompi/mca/coll/base/coll_base_functions.h.
COLLECTIVES: dict[Kind, int] = {
    "all_gather": 0,
    "all_reduce": 2,
    "all_to_all": 3,
    "reduce_scatter": 13,
}
_NAMES = {number: kind for kind, number in COLLECTIVES.items()}
# COLLCOUNT in the same header.
_MOST_COLLECTIVE = 22
# The component tuned takes algorithm 0 ("ignore") as its own choice.
_OWN_CHOICE = 0


@dataclass(frozen=True)
class RuleEntry:
    """The algorithm for messages from ``from_bytes`` on, its fan-in or fan-out, and its segment size.

    0 stands for the library's own value.
    """

    from_bytes: int
    algorithm: int
    fan: int = 0
    segment_bytes: int = 0


# Rules by collective, then by the size of the communicator.
Table = dict[int, dict[int, tuple[RuleEntry, ...]]]


def with_rules(kind: Kind, ranks: int, entries: Sequence[RuleEntry]) -> Table:
    """Return a table with one collective, whose rules apply to communicators of ``ranks`` ranks only."""
    untouched = (RuleEntry(0, _OWN_CHOICE),)
    return {COLLECTIVES[kind]: {0: untouched, ranks: tuple(entries), ranks + 1: untouched}}


def merged(old: Table, new: Table) -> Table:
    """Merge two tables: new rules replace old ones for the same collective and size of communicator.

    New rules that select the library's own choice for all messages replace nothing. If ``old`` has no entry
    for their size of communicator, the entry that the library would use for this size is copied.
    """
    found = {number: dict(sizes) for number, sizes in old.items()}
    for number, sizes in new.items():
        here = found.setdefault(number, {})
        known_sizes = sorted(here)
        for ranks, entries in sizes.items():
            if any(entry.algorithm != _OWN_CHOICE for entry in entries):
                here[ranks] = entries
            elif ranks not in here:
                # For ``ranks``, the library uses the old rules of the next smaller number of ranks.
                below = [size for size in known_sizes if size <= ranks]
                here[ranks] = here[below[-1]] if below else entries
    return found


def read_rules(text: str, source: str) -> Table:
    """Return the table of a file; raises DataError if the text is not one."""
    words = [word for line in text.splitlines() for word in line.partition("#")[0].split()]
    numbers = _Numbers(words, source)
    table: Table = {}
    for _ in range(numbers.next(_MOST_COLLECTIVE, "collectives")):
        collective = numbers.next(_MOST_COLLECTIVE - 1, "the number of a collective")
        table[collective] = {}
        for _ in range(numbers.next(1 << 20, "communicator sizes")):
            ranks = numbers.next(1 << 31, "the size of a communicator")
            count = numbers.next(1 << 20, "message sizes")
            table[collective][ranks] = tuple(
                RuleEntry(
                    *(numbers.next(1 << 62, what) for what in ("size", "algorithm", "fan", "segment size"))
                )
                for _ in range(count)
            )
    numbers.end()
    return table


class _Numbers:
    def __init__(self, words: Sequence[str], source: str) -> None:
        self._words, self._source, self._at = words, source, 0

    def next(self, most: int, what: str) -> int:
        word = self._words[self._at] if self._at < len(self._words) else "the end of the file"
        if not word.isascii() or not word.isdecimal() or len(word) > 19 or int(word) > most:
            raise DataError(
                self._source,
                [f"word {self._at + 1}: expected {what}, a number up to {most}, found {word!r}"],
                hint="Expected are dynamic rules of coll/tuned in version 1 of their format.",
            )
        self._at += 1
        return int(word)

    def end(self) -> None:
        if self._at < len(self._words):
            raise DataError(self._source, [f"word {self._at + 1}: expected the end of the file"])


def write_rules(
    table: Table, notes: Sequence[str] = (), names: Mapping[int, Mapping[int, str]] | None = None
) -> str:
    """Return the text of a table; ``notes`` and the ``names`` of algorithms by collective become comments."""
    lines = [*(f"# {note}" for note in notes), f"{len(table)}  # number of collectives"]
    for number, sizes in sorted(table.items()):
        lines += [
            f"{number}  # {_NAMES.get(number, 'collective')}, by its number",
            f"{len(sizes)}  # number of communicator sizes",
        ]
        for ranks, entries in sorted(sizes.items()):
            lines += [
                f"{ranks}  # from so many ranks on",
                f"{len(entries)}  # message sizes: from, algorithm, fan, segment",
            ]
            for entry in entries:
                name = (names or {}).get(number, {}).get(entry.algorithm, "")
                name = "the library's choice" if entry.algorithm == _OWN_CHOICE else name
                row = f"{entry.from_bytes} {entry.algorithm} {entry.fan} {entry.segment_bytes}"
                lines.append(f"{row}  # {name}" if name else row)
    return "\n".join(lines) + "\n"
