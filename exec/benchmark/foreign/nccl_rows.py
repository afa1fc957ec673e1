"""Rows of the tables of nccl-tests: their cells, and the collectives and numbers of ranks that fit them.

A blank cell shifts all later columns, so columns are found by arithmetic: time and algbw are the first two
neighbouring cells for which size / time equals algbw within the printed digits. busbw / algbw is a factor of
the collective and the number of ranks (nccl-tests, doc/PERFORMANCE.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor

from exec.benchmark import Measurement, Row, busbw_factor
from probes.base import decimal, whole
from synth.collective import REDUCING, ROOTED, Kind

__all__ = [
    "MOST_RANKS",
    "Factor",
    "PlacementCells",
    "TableRow",
    "factor_of",
    "kinds_of",
    "ranks_of",
    "row_of_time",
    "table_row",
]

# The factor nears a limit as ranks grow, so the range of possible ranks needs an end.
MOST_RANKS = 65_536
_ELEMENT_BYTES = {"double": 8, "int64": 8, "uint64": 8, "float": 4, "int32": 4, "uint32": 4}
_ELEMENT_BYTES |= {"half": 2, "bfloat16": 2, "int8": 1, "uint8": 1}
# nccl-tests counts the elements of one rank for these collectives.
_OF_ONE_RANK = frozenset({"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"})
_MOST = 1e15
# The number of columns of one placement, without and with the option -I.
_ALONE, _DETAILED = 4, 8
_MILLISECONDS = re.compile(r"^([0-9]+)\.([0-9]{3})$")
_BEGIN = re.compile(r"\s*[0-9]+\s+[0-9]+\s+[a-z]\w*(\s|$)")
# (collective, reduces, has a root, is checked in place by nccl-tests), the likeliest first.
_TESTS: tuple[tuple[Kind, bool, bool, bool], ...] = (
    ("all_reduce", True, False, True),
    ("reduce_scatter", True, False, True),
    ("all_to_next", True, False, False),
    ("all_gather", False, False, True),
    ("all_to_all", False, False, False),
    ("broadcast", False, True, True),
    ("reduce", True, True, True),
    ("gather", False, True, True),
    ("scatter", False, True, True),
)


@dataclass(frozen=True)
class PlacementCells:
    """One placement of a row as it was printed: microseconds, GB/s, and wrong elements.

    ``wrong`` is "N/A" if the results were not checked. Early versions of rccl-tests print the largest error
    instead of a count, with a * if it is too large.
    """

    time: str
    algbw: str
    busbw: str
    wrong: str

    @property
    def checked(self) -> bool:
        return self.wrong.upper() != "N/A"

    @property
    def marked(self) -> bool:
        """Whether rccl-tests marked the difference as too large."""
        return self.wrong.endswith("*")


@dataclass(frozen=True)
class TableRow:
    """A row of a table, at ``line``; ``in_place`` is None if the row ends before it."""

    size_bytes: int
    count: int
    dtype: str
    redop: str
    root: int
    out_of_place: PlacementCells
    in_place: PlacementCells | None
    line: int = 0


@dataclass(frozen=True)
class Factor:
    """The range of busbw / algbw that the printed digits allow."""

    least: float
    most: float

    def fits(self, kind: Kind, ranks: int) -> bool:
        return self.least <= busbw_factor(kind, ranks) <= self.most


def row_of_time(
    kind: Kind,
    size_bytes: int,
    time_s: float,
    ranks: int,
    dtype: str,
    program: str,
    rank_s: tuple[float, ...] = (),
) -> Row:
    """Return a report's row for a time: bandwidths follow from it, and the results are not checked."""
    algbw_gbs = size_bytes / time_s / 1e9 if time_s else 0.0
    busbw_gbs = algbw_gbs * busbw_factor(kind, ranks)
    return Row(
        collective=kind,
        size_bytes=size_bytes,
        count=size_bytes,
        dtype=dtype,
        redop="sum" if kind in REDUCING else "none",
        root=0 if kind in ROOTED else -1,
        program=program,
        predicted_s=None,
        out_of_place=Measurement(time_s, time_s, time_s, -1, algbw_gbs, busbw_gbs, None, rank_s=rank_s),
        in_place=None,
        peers={},
    )


def table_row(line: str, number: int = 0, *, milliseconds: bool = False) -> TableRow | str | None:
    """Return the row of a line, what is wrong if it only begins like a row, or None for other lines.

    ``milliseconds``: times are in ms with three decimals, as nccl-tests printed them until 2018.
    """
    if not _BEGIN.match(line):
        return None
    cells = line.split()
    if milliseconds:
        cells[3:] = [_MILLISECONDS.sub(r"\1\2", cell) for cell in cells[3:]]
    size, count = whole(cells[0][:40], 0), whole(cells[1][:40], 0)
    if size is None or count is None:
        return "expected a size and a count"
    if len(cells) < 3 + _ALONE - 1:
        return "the row is cut off"
    for at in range(3, min(6, len(cells))):
        if len(cells) < at + _ALONE - 1 or not _fits(size, cells[at], cells[at + 1]):
            continue
        between = _between(cells[3:at])
        if between is None:
            continue
        rest = cells[at:]
        # With -I each placement is followed by four columns on how its iterations differ.
        width = _DETAILED if len(rest) >= 2 * _DETAILED else _ALONE
        out = _cells(rest[:_ALONE])
        if out is None:
            return "the row is cut off"
        return TableRow(size, count, cells[2], *between, out, _cells(rest[width : width + _ALONE]), number)
    if len(cells) < 3 + 2 + _ALONE:
        return "the row is cut off"
    return "size / time is not its algbw"


def _between(words: Sequence[str]) -> tuple[str, int] | None:
    """Return (operator, root) of the cells between type and time; None where they are neither."""
    redop, root = "none", -1
    for at, word in enumerate(words):
        number = whole(word[:20], -1)
        if number is not None and at == len(words) - 1:
            root = number
        elif number is None and at == 0 and not re.match(r"[-+.0-9]", word):
            redop = word
        else:
            return None
    return redop, root


def _cells(words: Sequence[str]) -> PlacementCells | None:
    """Return one placement; None if its words are missing or are no numbers."""
    if len(words) < _ALONE or any(decimal(word[:40], 0.0, _MOST) is None for word in words[:3]):
        return None
    if words[3].upper() != "N/A" and decimal(words[3][:40].removesuffix("*"), 0.0, _MOST) is None:
        return None
    return PlacementCells(*words[:_ALONE])


def _fits(size_bytes: int, time: str, algbw: str) -> bool:
    """Return whether size / time is algbw, as far as the printed digits tell."""
    time_us, rate_gbs = decimal(time[:40], 0.0, _MOST), decimal(algbw[:40], 0.0, _MOST)
    if time_us is None or rate_gbs is None:
        return False
    if not size_bytes or not time_us:
        return not rate_gbs
    slack_us, slack_gbs = _digit(time), _digit(algbw)
    most = size_bytes / max(time_us - slack_us, 1e-9) / 1e3
    least = size_bytes / (time_us + slack_us) / 1e3
    return least - slack_gbs <= rate_gbs <= most + slack_gbs


def _digit(printed: str) -> float:
    """Return the value of one unit of the last printed digit."""
    mantissa, _, exponent = printed.lower().partition("e")
    scale = 10.0 ** max(-30, min(30, int(exponent))) if re.fullmatch(r"[-+]?[0-9]{1,3}", exponent) else 1.0
    return float(10.0 ** -len(mantissa.partition(".")[2][:30])) * scale


def factor_of(rows: Iterable[TableRow]) -> Factor | None:
    """Return the factor that the rows share, from the rows with most digits; None if all have too few."""
    ranges = [
        Factor(max(0.0, bus - bus_digit) / (alg + alg_digit), (bus + bus_digit) / (alg - alg_digit))
        for row in rows
        for one in (row.out_of_place, row.in_place)
        if one is not None
        for alg, bus in [(float(one.algbw), float(one.busbw))]
        for alg_digit, bus_digit in [(_digit(one.algbw), _digit(one.busbw))]
        if alg > 20 * alg_digit
    ]
    if not ranges:
        return None
    narrow = min(ranges, key=lambda one: one.most - one.least)
    least, most = narrow.least, narrow.most
    for one in ranges:
        if one.least <= most and one.most >= least:
            least, most = max(least, one.least), min(most, one.most)
    return Factor(least, most)


def kinds_of(rows: Sequence[TableRow], factor: Factor | None, ranks: int | None) -> list[Kind]:
    """Return the collectives that fit the rows on ``ranks`` ranks (None: any), the likeliest first.

    nccl-tests does not check all_to_all and sendrecv in place. The missing check tells them from other
    collectives with the same columns. The count tells them apart, too: it has the elements of one rank or
    of all ranks.
    """
    counted = [kind for kind in _kinds(rows, factor, ranks) if _counts(rows, kind, ranks)]
    return counted or _kinds(rows, factor, ranks)


def _counts(rows: Sequence[TableRow], kind: Kind, ranks: int | None) -> bool:
    """Return whether the sizes are possible with this number of ranks."""
    for row in rows:
        own = row.count * _ELEMENT_BYTES.get(row.dtype, 0)
        parts = (ranks or max(2, row.size_bytes // own)) if own and kind in _OF_ONE_RANK else 1
        if own and row.size_bytes != own * parts:
            return False
    return True


def _kinds(rows: Sequence[TableRow], factor: Factor | None, ranks: int | None) -> list[Kind]:
    """Return the collectives that have these columns and bandwidths."""
    reduces = any(row.redop != "none" for row in rows)
    rooted = any(row.root >= 0 for row in rows)
    checked = [row for row in rows if row.out_of_place.checked and row.in_place is not None]
    in_place = {row.in_place.checked for row in checked if row.in_place is not None}
    return [
        kind
        for kind, adds, has_root, checks in _TESTS
        if (adds, has_root) == (reduces, rooted)
        and (not in_place or checks in in_place)
        and (factor is None or (factor.fits(kind, ranks) if ranks else bool(ranks_of(kind, factor))))
    ]


def ranks_of(kind: Kind, factor: Factor) -> range:
    """Return the numbers of ranks on which a collective has this factor; all if the factor is always 1."""
    if busbw_factor(kind, 2) == busbw_factor(kind, 3):
        return range(2, MOST_RANKS + 1) if factor.fits(kind, 2) else range(0)
    # The factor is c (n - 1) / n, which grows with n.
    whole_factor = 2 * busbw_factor(kind, 2)
    least, most = (
        min(MOST_RANKS + 1.0, whole_factor / (whole_factor - edge))
        if edge < whole_factor
        else MOST_RANKS + 1.0
        for edge in (factor.least, factor.most)
    )
    return range(max(2, ceil(least - 1e-9)), min(MOST_RANKS, floor(most + 1e-9)) + 1)
