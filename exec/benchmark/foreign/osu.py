"""What the OSU micro-benchmarks (OMB) printed of a collective, as a report.

The tables are those of ``osu_allreduce`` and its like, of MPI and of NCCL or RCCL, with and without the
columns of the option ``-f``. They say neither how many ranks ran nor where: the caller has to.
"""

from __future__ import annotations

import re

from exec.benchmark.report import Measurement, Report, Row
from exec.benchmark.runner import busbw_factor
from probes.errors import DataError
from probes.line_tags import without_tags
from probes.numbers import decimal, whole
from synth.collective import Kind

__all__ = ["is_osu_text", "parse_osu_text"]

_TAGGED = r"#[ \t]*OSU"
_TITLE = re.compile(r"^[ \t]*# OSU (\S+) (.+?) Latency Test(?: v(\S+))?\s*$", re.MULTILINE)
_TYPE = re.compile(r"^[ \t]*# Datatype: (\w+)\.?\s*$", re.MULTILINE)
_ROW = re.compile(r"\s*[0-9]+\s+[0-9]+\.[0-9]+\b")
# Collectives by their titles. Of some a size is what each rank contributes, or sends to each other.
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
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
# Before version 7 the type was not printed: reductions were of floats, all else of characters.
_TYPES = {"MPI_FLOAT": "float32", "MPI_INT": "int32", "MPI_CHAR": "int8"}
_MOST_S = 1e9
_MOST_NAMED = 4


def is_osu_text(text: str) -> bool:
    """Whether a text has the title of a collective of these benchmarks, and rows."""
    text = without_tags(text, _TAGGED)
    title = _TITLE.search(text)
    return title is not None and any(_ROW.match(line) for line in text[title.end() :].splitlines())


def parse_osu_text(text: str, source: str, ranks: int) -> Report:
    """The report of a table, or of several one after the other; ``ranks`` ran.

    Sizes become those of nccl-tests: of ``all_gather`` what a rank has in the end. Raises DataError where a
    table is not of a collective that ccctl knows, or a row cannot be read.
    """
    text = without_tags(text, _TAGGED)
    titles = list(_TITLE.finditer(text))
    ends = [*(title.start() for title in titles[1:]), len(text)]
    rows: list[Row] = []
    for title, end in zip(titles, ends, strict=True):
        kind = _NAMED.get(title[2].lower())
        if kind is None:
            raise DataError(
                source,
                [f"{title[0].strip()!r}: expected one of {', '.join(name.title() for name in _NAMED)}"],
            )
        table = text[title.end() : end]
        named = _TYPE.search(table)
        dtype = _TYPES.get(named[1], named[1]) if named else _usual_type(kind)
        rows += [_row(line, kind, dtype, ranks, source) for line in table.splitlines() if _ROW.match(line)]
    failed = _failed(text)
    versions = {title[3] for title in titles if title[3]}
    return Report(
        ranks=ranks,
        hosts=(),
        executor="osu",
        library=" ".join(["OSU", titles[0][1], *sorted(versions)]),
        warmup=0,
        iterations=0,
        rows=tuple(rows),
        average="average",
        corrupt=f"validation failed: {', '.join(failed[:_MOST_NAMED])}" if failed else "",
    )


def _failed(text: str) -> list[str]:
    """The rows whose results were wrong: with ``-c`` their last column says Fail."""
    return [
        f"line {number}, size {line.split()[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        if _ROW.match(line) and line.split()[-1].lower().startswith("fail")
    ]


def _usual_type(kind: Kind) -> str:
    return "float32" if kind in ("all_reduce", "reduce", "reduce_scatter") else "int8"


def _row(line: str, kind: Kind, dtype: str, ranks: int, source: str) -> Row:
    cells = line.split()
    printed, time_us = whole(cells[0][:40], 0), decimal(cells[1][:40], 0.0, _MOST_S)
    if printed is None or time_us is None:
        raise DataError(source, [f"row {line.strip()!r}: expected a size and microseconds"])
    size_bytes, time_s = printed * (ranks if kind in _OF_EACH_RANK else 1), time_us * 1e-6
    algbw_gbs = size_bytes / time_s / 1e9 if time_s else 0.0
    measured = Measurement(
        time_s, time_s, time_s, -1, algbw_gbs, algbw_gbs * busbw_factor(kind, ranks), wrong=None
    )
    return Row(
        collective=kind,
        size_bytes=size_bytes,
        count=size_bytes,
        dtype=dtype,
        redop="sum" if kind in ("all_reduce", "reduce", "reduce_scatter") else "none",
        root=0 if kind in _ROOTED else -1,
        program="osu",
        predicted_s=None,
        out_of_place=measured,
        in_place=None,
        peers={},
    )
