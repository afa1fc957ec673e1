"""Reports of collectives from the output of the OSU micro-benchmarks (OMB).

The tables come from ``osu_allreduce`` and its like, over MPI, NCCL or RCCL, with and without the columns of
the option ``-f``. They give neither the number of ranks nor their hosts. The command line before a table may
give the number; otherwise the caller must. Tables of other benchmarks are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from exec.benchmark import Report, Row
from exec.benchmark.foreign.failures import failure_in, wrong_first
from exec.benchmark.foreign.nccl_rows import row_of_time
from probes.base import DataError, decimal, some, whole, without_tags
from synth.collective import REDUCING, Kind

__all__ = ["is_osu_text", "parse_osu_text"]

_TAGGED = r"#[ \t]*OSU"
# Markdown writes a # at the beginning of a line as \#.
_TITLE = re.compile(r"^[ \t]*\\?# (OSU \S[^\n]{0,200}?)(?: v([0-9]\S*))?[ \t\r]*$", re.MULTILINE)
_COLLECTIVE = re.compile(r"OSU (\S+) (.+?) Latency Test")
_TYPE = re.compile(r"^[ \t]*\\?# Datatype: (\w+)\.?\s*$", re.MULTILINE)
_ROW = re.compile(r"\s*[0-9]+\s+[0-9]+\.[0-9]+\b")
_LAUNCHERS = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "srun"})
_COUNT = re.compile(r"-{1,2}np?|-{2}ntasks")
_ERROR = re.compile(r"^.*\bDATA VALIDATION ERROR\b.*$", re.MULTILINE)
# Collectives by their titles. For those in _OF_EACH_RANK the printed size is what one rank contributes, or
# sends to each single rank.
_NAMED: dict[str, Kind] = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all-to-all personalized exchange": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
_OF_EACH_RANK = frozenset({"all_gather", "all_to_all", "gather", "scatter"})
# Before version 7 the type was not printed: reductions were of floats, all else of characters.
_TYPES = {"MPI_FLOAT": "float32", "MPI_INT": "int32", "MPI_CHAR": "int8"}
_MOST_S = 1e9
_MOST_NAMED = 4


@dataclass(frozen=True)
class _Table:
    """A table of results; ``line`` is the line of its title.

    ``started`` is the number of ranks in the command line above the table, None if there is none.
    """

    line: int
    title: str
    library: str
    kind: Kind | None
    version: str
    started: int | None
    text: str

    @property
    def rows(self) -> list[tuple[int, str]]:
        """The rows with the numbers of their lines."""
        lines = enumerate(self.text.splitlines(), self.line)
        return [(number, line) for number, line in lines if _ROW.match(line)]


def is_osu_text(text: str) -> bool:
    """Return whether a text has the title of one of these benchmarks."""
    return any(" Test" in title[1] for title in _TITLE.finditer(without_tags(text, _TAGGED)))


def parse_osu_text(text: str, source: str, ranks: Callable[[], int] | None = None) -> Report:
    """Return the report of a table, or of several one after the other.

    ``ranks`` returns the number of ranks. It has to agree with the number in a command line, if there is one.
    Sizes become those of nccl-tests: for ``all_gather`` the final bytes of a rank. Raises DataError if no
    table is of a collective that ccctl knows, or a row cannot be read. Raises WrongResultsError if such an
    error would hide a failed validation.
    """
    text = without_tags(text, _TAGGED)
    every = _tables(text)
    tables = [one for one in every if one.kind is not None and one.rows]
    failed = _failed(tables)
    with wrong_first(source, [failed] if failed else []):
        return _report(every, tables, failed, source, ranks)


def _report(
    every: Sequence[_Table],
    tables: Sequence[_Table],
    failed: str,
    source: str,
    ranks: Callable[[], int] | None,
) -> Report:
    if not tables:
        raise DataError(source, [_why_none(every)])
    count = _ranks(tables, source, ranks)
    others = [one.title for one in every if one.kind is None and one.rows]
    return Report(
        ranks=count,
        hosts=(),
        executor="osu",
        library=" ".join(["OSU", tables[0].library, *sorted({one.version for one in tables if one.version})]),
        warmup=0,
        iterations=0,
        rows=tuple(_row(line, number, one, count, source) for one in tables for number, line in one.rows),
        average="average",
        notes=(f"left out, no collectives that ccctl knows: {_names(others)}",) if others else (),
        corrupt=failed,
        interrupted=_interrupted(every),
    )


def _names(titles: Sequence[str]) -> str:
    return some(list(dict.fromkeys(titles)), _MOST_NAMED)


def _tables(text: str) -> list[_Table]:
    """Return all tables in their order; each ends before the title of the next one."""
    titles = [title for title in _TITLE.finditer(text) if " Test" in title[1]]
    edges = [*(title.start() for title in titles), len(text)]
    found = []
    before = text[: edges[0]]
    for title, (start, end) in zip(titles, pairwise(edges), strict=True):
        named = _COLLECTIVE.fullmatch(title[1])
        part = text[start:end]
        found.append(
            _Table(
                line=text.count("\n", 0, start) + 1,
                title=title[1],
                library=named[1] if named else "",
                kind=_NAMED.get(named[2].lower()) if named else None,
                version=title[2] or "",
                started=_started(before),
                text=part,
            )
        )
        before = part
    return found


def _started(text: str) -> int | None:
    """Return the number of ranks that the last command in a text started; None if it gives none."""
    for line in reversed(text.splitlines()):
        words = line.split() if "osu_" in line else []
        names = [word.rpartition("/")[2] for word in words]
        if not any(name.startswith("osu_") for name in names) or _LAUNCHERS.isdisjoint(names):
            continue
        for option, count in pairwise(line.replace("=", " ").split()):
            if _COUNT.fullmatch(option) and (found := whole(count[:20], 1)):
                return found
        return None
    return None


def _why_none(every: Sequence[_Table]) -> str:
    """Return why no table can be judged."""
    empty = next((one for one in every if one.kind is not None), None)
    if empty is None:
        known = ", ".join(name.title() for name in _NAMED)
        return f"{_names([one.title for one in every])}: expected a collective, one of {known}"
    why = failure_in(empty.text)
    return f"line {empty.line}: the header of {empty.title}, and no row" + (f": {why}" if why else "")


def _ranks(tables: Sequence[_Table], source: str, given_ranks: Callable[[], int] | None) -> int:
    """Return the number of ranks by ``given_ranks``, or else by the command lines; raises DataError."""
    started = {one.started: one.line for one in tables if one.started is not None}
    if len(started) > 1:
        lines = ", ".join(f"line {line}: {count}" for count, line in started.items())
        raise DataError(
            source,
            [f"these are runs on different numbers of ranks ({lines})"],
            hint="Give each run in a file of its own.",
        )
    if given_ranks is None and not started:
        raise DataError(
            source,
            ["the OSU benchmarks do not say how many ranks ran"],
            hint="Name the network on which they ran, with as many ranks: dgx-a100:2, switch:8 … "
            "ccctl tune takes -n.",
        )
    count = next(iter(started), None)
    if given_ranks is not None:
        stated = given_ranks()
        if count not in (None, stated):
            raise DataError(
                source,
                [f"line {started[count]}: {count} ranks were started, and the network has {stated}"],
                hint="Name the network on which they ran, with as many ranks.",
            )
        return stated
    assert count is not None
    return count


def _failed(tables: Sequence[_Table]) -> str:
    """Describe the wrong results, "" if there are none; with ``-c`` a wrong row ends in Fail."""
    found = [
        f"line {number}, size {line.split()[0]}"
        for one in tables
        for number, line in one.rows
        if line.split()[-1].lower().startswith("fail")
    ]
    found += [error[0].strip() for one in tables for error in _ERROR.finditer(one.text)]
    return f"validation failed: {some(found, _MOST_NAMED)}" if found else ""


def _interrupted(every: Sequence[_Table]) -> str:
    """Return why rows are missing; empty if no line says why."""
    for one in every:
        if one.kind is None:
            continue
        if why := failure_in(one.text):
            return f"line {one.line}: {one.title} ended with {why!r}"
        if not one.rows:
            return f"line {one.line}: the header of {one.title}, and no row"
    return ""


def _row(line: str, number: int, table: _Table, ranks: int, source: str) -> Row:
    cells = line.split()
    kind = table.kind
    assert kind is not None
    printed, time_us = whole(cells[0][:40], 0), decimal(cells[1][:40], 0.0, _MOST_S)
    if printed is None or time_us is None:
        raise DataError(
            source, [f"line {number}: expected a size and microseconds, found {line.strip()[:80]!r}"]
        )
    named = _TYPE.search(table.text)
    size_bytes, time_s = printed * (ranks if kind in _OF_EACH_RANK else 1), time_us * 1e-6
    dtype = _TYPES.get(named[1], named[1]) if named else "float32" if kind in REDUCING else "int8"
    return row_of_time(kind, size_bytes, time_s, ranks, dtype, "osu")
