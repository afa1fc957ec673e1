"""Reports from the output of nccl-tests and rccl-tests: tables, JSON (-J), lines of JSON (-Z).

The environment that -J writes is not read.

The formats are those of https://github.com/NVIDIA/nccl-tests (src/common.cu, src/util.cu) since 2016 and of
https://github.com/ROCm/rccl-tests. Early versions leave out the columns ``redop`` and ``root`` for
collectives that have none. Lines may carry tags of a launcher or a log viewer.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from exec.benchmark import Measurement, Report, Row, Spread
from exec.benchmark.foreign.failures import failure_in, wrong_first
from exec.benchmark.foreign.nccl_rows import (
    MOST_RANKS,
    Factor,
    PlacementCells,
    TableRow,
    factor_of,
    kinds_of,
    ranks_of,
    table_row,
)
from probes.base import DataError, decimal, plural, whole, without_tags
from synth.collective import Kind

__all__ = [
    "is_nccl_json",
    "is_nccl_text",
    "is_rccl_lines",
    "parse_nccl_json",
    "parse_nccl_text",
    "parse_rccl_lines",
]

_NAMED: dict[str, Kind] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "all_to_next",
}
# Tests whose names differ from their collectives.
_TITLES: dict[Kind, str] = {"all_to_next": "sendrecv (all_to_next)"}
# rccl-tests -Z writes the names without underscores.
_RCCL_NAMES: dict[str, Kind] = {name.replace("_", ""): kind for name, kind in _NAMED.items()}
_TYPES = {"float": "float32", "double": "float64", "half": "float16"}
# The # is optional, because Markdown removes it from a line that follows an empty one.
_RANK = re.compile(
    r"^[ \t]*(?:#[ \t]*)?Rank\s+([0-9]+)\s.*?\bon\s+(\S+)"
    r"(?:[ \t]+device[ \t]+[0-9]+[ \t]+\[[^\]\n]*\][ \t]+(\S[^\n]*))?",
    re.MULTILINE,
)
# Header text; what precedes it on a line is a tag.
_TAGGED = r"#[ \t]*(?:nThread|Rank\s|size\s+count)"
_BEGINS = re.compile(r"^(?:.*#)?[ \t]*nThread\b", re.MULTILINE)
# Lines that begin a run, end it, or belong to its header. If the first line of a run is lost, the run begins
# with the first header line after the end of the run before.
_EVENTS = re.compile(
    r"^(?:(?P<begins>(?:.*#)?[ \t]*nThread\b)|#?[ \t]*(?:(?P<ends>Out of bounds values|Avg bus bandwidth)"
    r"|Using devices|rccl-tests:|Rank\s+[0-9]+\s|size\s+count\s))",
    re.MULTILINE,
)
_TEST = re.compile(r"^(?!.*\bconcluded\b).*?\b(\w+?)_perf\b", re.MULTILINE)
_WARMUP = re.compile(r"warmup iters:\s*([0-9]{1,9})\b")
_ITERATIONS = re.compile(r"\biters:\s*([0-9]{1,9})\s")
_OUT_OF_BOUNDS = re.compile(r"^#?[ \t]*Out of bounds values\s*:\s*([0-9]+)\s*(\w*)", re.MULTILINE)
_ENDS = re.compile(r"^#?[ \t]*(?:Out of bounds values|Avg bus bandwidth)", re.MULTILINE)
_ERRORS = re.compile(r"^#?[ \t]*(?:size\s+count\s.*\berror|bytes\s+N\s.*\bres)[ \t\r]*$", re.MULTILINE)
_MILLISECONDS = re.compile(r"^#?[ \t]*bytes\s+N\s+type\b", re.MULTILINE)
_IN_PLACE_ALONE = re.compile(r"^#?[ \t]*in-place[ \t\r]*$", re.MULTILINE)
# The heads that `ccctl bench` prints; nccl-tests writes (B) on a line of its own.
_OF_BENCH = re.compile(r"^.*\bsize \(B\)[ \t].*\btime \(us\)", re.MULTILINE)
_ERROR = re.compile(r"^#[ \t]*error:[ \t]*(\S[^\n]*)$", re.MULTILINE)
# The test failed because the average is below NCCL_TESTS_MIN_BW.
_AVERAGE = re.compile(r"^#?[ \t]*Avg bus bandwidth[ \t]*:[ \t]*(\S+)[ \t]+FAILED\b", re.MULTILINE)
_MOST = 1e15
_MOST_CHARACTERS = 160


def is_nccl_text(text: str) -> bool:
    """Return whether a text has the header of nccl-tests, or rows in which algbw is size / time."""
    text = without_tags(text, _TAGGED)
    if _OF_BENCH.search(text):
        return True
    if "algbw" in text and (_BEGINS.search(text) or _RANK.search(text)):
        return True
    return any(isinstance(table_row(line), TableRow) for line in text.splitlines())


def is_nccl_json(document: object) -> bool:
    """Return whether a JSON document is what ``nccl-tests -J`` writes."""
    return isinstance(document, dict) and "results" in document and "nccl_version" in document


def parse_nccl_text(
    text: str, source: str, ranks: Callable[[], int] | None = None, kind: Kind | None = None
) -> Report:
    """Return the report of a table, or of several runs one after the other.

    ``ranks`` and ``kind`` give the number of ranks and the collective if the text does not. Raises DataError
    if no row can be read, if the number of ranks or the collective is contradictory, or if ``ccctl bench``
    printed the table.
    """
    if _OF_BENCH.search(text):
        raise DataError(
            source,
            ["this is the table that ccctl bench prints, which leaves out columns and rounds numbers"],
            hint="Give the file that ccctl bench -o FILE writes.",
        )
    runs = _runs(without_tags(text, _TAGGED, everywhere=True), source)
    with wrong_first(source, [wrong for run in runs for wrong in _wrong(run)]):
        return _together(runs, source, ranks, kind)


def _together(
    runs: Sequence[_Run], source: str, ranks: Callable[[], int] | None, kind: Kind | None
) -> Report:
    """Return the report of all runs of a log; raises DataError."""
    judged = [run for run in runs if run.rows]
    reports = [_reported(run, source, ranks, kind) for run in judged]
    if not reports:
        raise DataError(source, [_why_empty(runs[0])], hint="The test hung, crashed or was cut off there.")
    first = reports[0]
    others = {(one.ranks, one.hosts) for one in reports} - {(first.ranks, first.hosts)}
    if others:
        lines = ", ".join(f"line {run.line}: {one.ranks}" for run, one in zip(judged, reports, strict=True))
        raise DataError(
            source,
            [f"these are {len(reports)} runs on different ranks ({lines})"],
            hint="Give each run in a file of its own.",
        )
    empty = [_why_empty(run) for run in runs if not run.rows]
    notes = [
        f"line {run.line}: {note}" if len(judged) > 1 else note
        for run, one in zip(judged, reports, strict=True)
        for note in one.notes
    ]
    return replace(
        first,
        rows=tuple(row for one in reports for row in one.rows),
        notes=tuple(notes),
        corrupt="; ".join(one.corrupt for one in reports if one.corrupt),
        interrupted="; ".join([one.interrupted for one in reports if one.interrupted] + empty),
    )


@dataclass(frozen=True)
class _Run:
    """One run of a test: its start, its text, its rows; ``opening`` is the text up to its last row.

    The command line, if the log has it, stands in ``opening`` before the header.
    """

    line: int
    opening: str
    text: str
    rows: tuple[TableRow, ...]
    broken: tuple[str, ...]

    @property
    def named(self) -> list[Kind]:
        """The tests that the run or the command lines before it name, the last one first."""
        names = [_NAMED[name] for name in _TEST.findall(self.opening) if name in _NAMED]
        return list(dict.fromkeys(reversed(names)))

    @property
    def listed(self) -> int | None:
        """The number of ranks that the run lists; None if it lists none, or not all."""
        numbers = sorted(int(rank) for rank, _, _ in _RANK.findall(self.text))
        complete = bool(numbers) and numbers == [*range(len(numbers))] and not _left_out(self.text)
        return len(numbers) if complete else None


def _runs(text: str, source: str) -> list[_Run]:
    """Return the runs of a log, in order; raises DataError for runs that wrote into each other."""
    begins = _begins(text)
    edges = [*begins, len(text)]
    runs = []
    before = text[: begins[0]]
    for start, end in pairwise(edges):
        part = text[start:end]
        line = text.count("\n", 0, start) + 1
        old = bool(_MILLISECONDS.search(part))
        read = [
            (line + at, table_row(words, line + at, milliseconds=old))
            for at, words in enumerate(part.splitlines())
        ]
        rows = [(at, row) for at, row in read if isinstance(row, TableRow)]
        broken = tuple(f"line {at}: {row}" for at, row in read if isinstance(row, str))
        last = rows[-1][0] - line + 1 if rows else 1
        lines = part.splitlines()
        opening = before + "\n".join(lines[:last] if rows else lines)
        runs.append(_Run(line, opening, part, tuple(row for _, row in rows), broken))
        before = "\n".join(lines[last:]) + "\n" if rows else ""
    ranks = [rank for rank, _, _ in _RANK.findall(text)]
    apart = len(runs) > 1 and any(not run.rows for run in runs[:-1]) and runs[-1].rows
    if (apart and _repeats(runs[-1].rows)) or any(_twice(run) for run in runs):
        raise DataError(
            source,
            [f"{len(ranks)} ranks are numbered {', '.join(dict.fromkeys(ranks))}: each process ran alone"],
            hint="nccl-tests needs MPI=1 when it is built.",
        )
    return runs


def _begins(text: str) -> list[int]:
    """Return the offset of each run: its first line, or a header line after another run's end."""
    begins = []
    ended = False
    for event in _EVENTS.finditer(text):
        if event["ends"]:
            ended = True
        elif event["begins"] or ended:
            begins.append(event.start())
            ended = False
    before = text[: begins[0]] if begins else ""
    lost = not begins or any(isinstance(table_row(line), TableRow) for line in before.splitlines())
    return [0, *begins] if lost else begins


def _twice(run: _Run) -> bool:
    """Return whether a rank is listed more than once."""
    ranks = [rank for rank, _, _ in _RANK.findall(run.text)]
    return len({*ranks}) < len(ranks)


def _repeats(rows: Sequence[TableRow]) -> bool:
    """Return whether every size occurs more than once."""
    sizes = Counter((row.size_bytes, row.dtype, row.redop, row.root) for row in rows)
    return bool(sizes) and min(sizes.values()) > 1


def _why_empty(run: _Run) -> str:
    if run.broken:
        return f"no row can be read: {run.broken[0]}"
    ranks = len(_RANK.findall(run.text))
    why = f": {failed}" if (failed := failure_in(run.text)) else ""
    return f"line {run.line}: the header of a run on {plural(ranks, 'rank')}, and no row{why}"


def _wrong(run: _Run) -> list[str]:
    placements = [
        (row, where, cells)
        for row in run.rows
        for where, cells in (("out of place", row.out_of_place), ("in place", row.in_place))
        if cells is not None and cells.checked
    ]
    counted = [] if _ERRORS.search(run.text) else [(row, where, _elements(c)) for row, where, c in placements]
    found = [
        f"line {row.line}: {plural(count, 'wrong element')} of {row.size_bytes} bytes {where}"
        for row, where, count in counted
        if count
    ]
    return found + _beyond(run)


def _beyond(run: _Run) -> list[str]:
    """Return the signs of wrong results in marks of rows and in the last line of a run."""
    found = [
        f"line {row.line}: {row.size_bytes} bytes {where}: an error beyond the threshold ({cells.wrong})"
        for row in run.rows
        for where, cells in (("out of place", row.out_of_place), ("in place", row.in_place))
        if cells is not None and cells.marked
    ]
    bounds = [(int(count), word) for count, word in _OUT_OF_BOUNDS.findall(run.text)]
    failed = sum(max(count, word.upper().startswith("FAIL")) for count, word in bounds)
    return found + ([f"{plural(failed, 'value')} out of bounds"] if failed else [])


def _elements(cells: PlacementCells) -> int:
    """Return how many elements were wrong."""
    return int(_value(cells.wrong.removesuffix("*")))


def _reported(
    run: _Run, source: str, given_ranks: Callable[[], int] | None, given_kind: Kind | None
) -> Report:
    """Return the report of one run that has rows."""
    listed = run.listed
    factor = factor_of(run.rows)
    fitting = [kind for kind in run.named if factor is None or _admits(kind, factor, listed)]
    # A script may name several tests: take the last one that fits the rows. If no collective fits them and
    # none was given, take the last name.
    stands = run.named[:1] if not given_kind and not kinds_of(run.rows, factor, listed) else []
    known = next(iter([*fitting, *stands]), given_kind)
    ranks = _ranks(run, source, listed, factor, known, given_ranks)
    kind, notes = (known, []) if known else _inferred(run, source, factor, ranks)
    if run.named and kind not in run.named:
        notes = [
            f"{_title(run.named[0])} is named, but busbw / algbw is that of {_title(kind)}: read as this"
        ]
    if listed is None:
        notes = [*notes, f"not all ranks are listed; their number, {ranks}, is that of the network"]
    if average := _AVERAGE.search(run.text):
        notes = [*notes, _below(average[1])]
    every = _RANK.findall(run.text)
    hosts = dict.fromkeys(host for _, host, _ in every) if listed == ranks else {}
    plain = re.sub(_WARMUP, "", run.text)
    warmup, iterations = _WARMUP.search(run.text), _ITERATIONS.search(plain)
    corrupt = _beyond(run)
    right = bool(_OUT_OF_BOUNDS.search(run.text)) and not corrupt
    rows = [_row(row, kind, errors=bool(_ERRORS.search(run.text)), right=right) for row in run.rows]
    if _IN_PLACE_ALONE.search(run.text):
        rows = [replace(row, out_of_place=None, in_place=row.out_of_place) for row in rows]
    return replace(
        _report(
            list(hosts),
            rows,
            "RCCL" if "rccl" in (run.opening + run.text).lower() else "NCCL",
            int(warmup[1]) if warmup else 0,
            int(iterations[1]) if iterations else 0,
            [gpu for _, _, gpu in every],
        ),
        ranks=ranks,
        notes=tuple(notes),
        corrupt="; ".join(corrupt),
        interrupted=_interrupted(run),
    )


def _below(average: str) -> str:
    """Return a note that the average was below the demanded one."""
    return f"the test failed: its average bus bandwidth, {average[:20]} GB/s, is below NCCL_TESTS_MIN_BW"


def _admits(kind: Kind, factor: Factor, ranks: int | None) -> bool:
    """Return whether the factor fits the collective on ``ranks`` ranks; if None, on some number."""
    return bool(ranks_of(kind, factor)) if ranks is None else factor.fits(kind, ranks)


def _left_out(text: str) -> bool:
    """Return whether lines of the list of ranks are missing."""
    return bool(re.search(r"^#?[ \t]*(?:\.{3,}|…)[ \t]*$", text, re.MULTILINE))


def _interrupted(run: _Run) -> str:
    """Return why rows are missing or were not read; empty if the run is complete."""
    found = list(run.broken[:1])
    if error := _ERROR.search(run.text):
        found.append(f"the library's last error: {error[1].strip()[:_MOST_CHARACTERS]}")
    if not _ENDS.search(run.text) and (failed := failure_in(run.text)):
        found.append(f"the run ended with {failed!r}")
    if len(run.broken) > 1:
        found.append(f"{plural(len(run.broken) - 1, 'more row')} alike")
    return "; ".join(found)


def _ranks(
    run: _Run,
    source: str,
    listed: int | None,
    factor: Factor | None,
    known: Kind | None,
    given_ranks: Callable[[], int] | None,
) -> int:
    """Return the number of ranks that fits the factor, listed or else given; raises DataError."""

    def fits(ranks: int) -> bool:
        if factor is None:
            return True
        return factor.fits(known, ranks) if known else bool(kinds_of(run.rows, factor, ranks))

    if listed is not None and fits(listed):
        return listed
    if given_ranks is not None and fits(ranks := given_ranks()):
        return ranks
    stated = "the number of ranks is unknown: the log does not list them all"
    if listed is not None:
        stated = f"it lists {plural(listed, 'rank')}"
    contradiction = ""
    if factor is not None:
        ratio = (factor.least + factor.most) / 2
        admitted = _admitted(run, factor, known)
        means = f"means {admitted}" if admitted else "fits no collective with these columns"
        contradiction = f", and busbw / algbw of {ratio:.4g} {means}"
    raise DataError(
        source,
        [f"line {run.line}: {stated}{contradiction}"],
        hint="Name the network on which they ran, with as many ranks: dgx-a100:16, switch:128 …",
    )


def _admitted(run: _Run, factor: Factor, known: Kind | None) -> str:
    """Return the numbers of ranks that a factor admits, by collective; "" if there are none."""
    found = []
    for kind in [known] if known else kinds_of(run.rows, factor, None):
        admitted = ranks_of(kind, factor)
        if not admitted:
            continue
        span = f"{admitted[0]}" if len(admitted) == 1 else f"{admitted[0]} to {admitted[-1]}"
        found.append(
            f"{span} ranks for {_title(kind)}"
            if len(admitted) < MOST_RANKS - 2
            else f"any number for {_title(kind)}"
        )
    return " or ".join(found)


def _inferred(run: _Run, source: str, factor: Factor | None, ranks: int) -> tuple[Kind, list[str]]:
    """Return the collective that the columns admit, and a note that none was named.

    Raises DataError if they admit none or several.
    """
    found = kinds_of(run.rows, factor, ranks)
    if not found:
        raise DataError(
            source,
            [f"line {run.line}: on {plural(ranks, 'rank')} no collective has these columns and bandwidths"],
            hint="Name the collective of the test.",
        )
    if len(found) > 1:
        raise DataError(
            source,
            [
                f"line {run.line}: no test is named, and the columns are those of "
                f"{' or '.join(map(_title, found))}"
            ],
            hint="Name the collective, or leave the line that started it (all_gather_perf …) in the file.",
        )
    return found[0], [f"no test is named: its columns are those of {_title(found[0])}"]


def _title(kind: Kind) -> str:
    """Return the name of a collective's test, with the collective if the names differ."""
    return _TITLES.get(kind, kind)


def parse_nccl_json(document: Mapping[str, Any], source: str, kind: Kind | None = None) -> Report:
    """Return the report of a JSON document of version 2 or 3.

    ``kind`` is the collective where the document names none. Raises DataError naming the entry that is wrong.
    """
    at = "config"
    try:
        config = document["config"]
        hosts = [str(device["hostname"]) for device in config["devices"]]
        gpus = [str(device.get("device_info", "")) for device in config["devices"]]
        known = _named(document) or kind
        rows, placements = [], []
        for number, entry in enumerate(document["results"]):
            at = f"results[{number}]"
            row, measured = _json_row(entry)
            rows.append(row)
            placements.append(measured)
        at = "config"
        library = _version(_count(document["nccl_version"]))
        iterations, warmup = (_count(config.get(name, 0)) for name in ("iterations", "warmup_iters"))
        bounds, average = (document.get(name) or {} for name in ("out_of_bounds", "average_bus_bandwidth"))
        failed = max(_count(bounds.get("count", 0)), bounds.get("okay") is False)
        below = [_below(str(average["bandwidth"]))] if average.get("okay") is False else []
        errors = [str(one)[:_MOST_CHARACTERS] for one in document.get("errors") or () if one]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            source, [f"{at}: expected what nccl-tests -J writes: {_wrong_value(error)}"]
        ) from error
    corrupt = [f"{plural(failed, 'value')} out of bounds"] if failed else []
    run = _Run(1, "", "", tuple(rows), ())
    with wrong_first(source, [*_wrong(run), *corrupt]):
        named, notes = (known, []) if known else _inferred(run, source, factor_of(rows), len(hosts))
    made = [
        _made(named, (row.size_bytes, row.count, row.dtype, row.redop, row.root), *measured)
        for row, measured in zip(rows, placements, strict=True)
    ]
    report = _report(hosts, made, library, warmup, iterations, gpus)
    return replace(
        report,
        notes=(*notes, *below),
        corrupt="; ".join(corrupt),
        interrupted=f"the library's last error: {errors[0]}" if errors else "",
    )


def is_rccl_lines(text: str) -> bool:
    """Return whether a text has lines of ``rccl-tests -Z json``."""
    return any(_line_entry(line) for line in text.splitlines()[:1000])


def parse_rccl_lines(text: str, source: str, ranks: Callable[[], int] | None = None) -> Report:
    """Return the report of lines of JSON, one for each size and placement; raises DataError naming the line.

    The lines do not say on which hosts the ranks were, so ``ranks`` must return the number that they state.
    """
    found: dict[tuple[Kind, tuple[int, int, str, str, int]], dict[bool, Measurement]] = {}
    gpus: set[int] = set()
    for number, line in enumerate(text.splitlines(), 1):
        if (entry := _line_entry(line)) is None:
            continue
        try:
            if (kind := _RCCL_NAMES.get(name := str(entry["name"]).lower())) is None:
                raise ValueError(f"expected a collective, found {name[:40]!r}")
            head = (_count(entry["size"]), 0, str(entry["type"]), str(entry.get("redop", "none")), -1)
            cells = PlacementCells(*(str(entry[name]) for name in ("time", "algBw", "busBw", "#wrong")))
            gpus.add(_count(entry["gpus"] if "gpus" in entry else entry["ranks"], 1))
            found.setdefault((kind, head), {})[bool(_count(entry["inPlace"]))] = _measured(cells)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                source, [f"line {number}: expected a row of rccl-tests -Z json: {_wrong_value(error)}"]
            ) from error
    rows = [_made(kind, head, both.get(False), both.get(True)) for (kind, head), both in found.items()]
    counts = " and ".join(map(str, sorted(gpus)))
    with wrong_first(
        source,
        [
            f"{row.collective} of {row.size_bytes} bytes: {row.wrong_results}"
            for row in rows
            if row.wrong_results
        ],
    ):
        if len(gpus) != 1 or ranks is None or ranks() not in gpus:
            raise DataError(
                source,
                [f"rows of rccl-tests -Z json do not say on which hosts their {counts} GPUs are"],
                hint=f"Name the network of {counts} GPUs, for example switch:{counts}.",
            )
    return replace(_report([], rows, "RCCL", 0, 0, []), ranks=gpus.pop())


def _line_entry(line: str) -> dict[str, Any] | None:
    """Return a line of ``rccl-tests -Z json`` as a dictionary; None for any other."""
    if len(line) > 4096 or not line.lstrip().startswith("{") or '"busBw"' not in line:
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and "inPlace" in entry else None


def _report(
    hosts: Sequence[str],
    rows: Sequence[Row],
    library: str,
    warmup: int,
    iterations: int,
    gpus: Sequence[str],
) -> Report:
    models = dict.fromkeys(gpu.strip() for gpu in gpus if gpu.strip())
    return Report(
        ranks=len(hosts),
        hosts=tuple(dict.fromkeys(hosts)),
        executor="nccl-tests",
        library=library,
        warmup=warmup,
        iterations=iterations,
        rows=tuple(rows),
        average="average",
        machine={"gpu": " | ".join(models)} if models else {},
    )


def _row(row: TableRow, kind: Kind, *, errors: bool, right: bool) -> Row:
    """Return a row of a report.

    ``errors`` says that the last column holds differences instead of counts; ``right`` says that all of them
    are within bounds.
    """

    def measured(cells: PlacementCells | None) -> Measurement | None:
        if cells is None:
            return None
        found = _measured(cells)
        # Differences do not count wrong elements: only the whole run is known to be right or not.
        return replace(found, wrong=0 if right else None) if errors and found.wrong is not None else found

    head = (row.size_bytes, row.count, row.dtype, row.redop, row.root)
    return _made(kind, head, measured(row.out_of_place), measured(row.in_place))


def _measured(cells: PlacementCells) -> Measurement:
    """Return one placement as numbers; raises ValueError."""
    time_s = _value(cells.time) * 1e-6
    wrong = _elements(cells) if cells.checked else None
    return Measurement(time_s, time_s, time_s, -1, _value(cells.algbw), _value(cells.busbw), wrong)


def _made(
    kind: Kind,
    head: tuple[int, int, str, str, int],
    out_of_place: Measurement | None,
    in_place: Measurement | None,
) -> Row:
    size, count, dtype, redop, root = head
    return Row(
        collective=kind,
        size_bytes=size,
        count=count,
        dtype=_TYPES.get(dtype, dtype),
        redop=redop,
        root=root,
        program="nccl",
        predicted_s=None,
        out_of_place=out_of_place,
        in_place=in_place,
        peers={},
    )


def _json_row(
    entry: Mapping[str, Any],
) -> tuple[TableRow, tuple[Measurement | None, Measurement | None]]:
    """Return an entry as a row of a table, and its measurements out of place and in place."""
    measured = _json_measurement(entry, "out_of_place"), _json_measurement(entry, "in_place")
    out, inner = (_json_cells(entry.get(name)) for name in ("out_of_place", "in_place"))
    shown = out or inner
    if shown is None:
        raise ValueError("neither out_of_place nor in_place")
    root = _count(entry["root"], -1)
    head = _count(entry["size"]), _count(entry["count"]), str(entry["type"]), str(entry["redop"]), root
    return TableRow(*head, shown, inner), measured


def _json_cells(found: Mapping[str, Any] | None) -> PlacementCells | None:
    if found is None:
        return None
    wrong = "N/A" if found["nwrong"] is None else str(found["nwrong"])
    time = found["time"] if "time" in found else found["cpu_time"]
    return PlacementCells(str(time), str(found["alg_bw"]), str(found["bus_bw"]), wrong)


def _json_measurement(entry: Mapping[str, Any], name: str) -> Measurement | None:
    cells, detail = _json_cells(entry.get(name)), entry.get(f"{name}_per_iter")
    if cells is None or detail is None:
        return None if cells is None else _measured(cells)
    found = _measured(cells)
    p50_s, p99_s = (_value(detail[key]) * 1e-6 for key in ("p50_us", "p99_us"))
    # nccl-tests computes the bandwidths from the mean time; a report uses the median if known.
    faster = found.time_s / p50_s if p50_s else 1.0
    return replace(
        found,
        time_s=p50_s,
        p50_s=p50_s,
        p99_s=p99_s,
        algbw_gbs=found.algbw_gbs * faster,
        busbw_gbs=found.busbw_gbs * faster,
        spread=_spread(detail),
        mean_s=found.time_s,
    )


def _spread(detail: Mapping[str, Any]) -> Spread | None:
    times_s = sorted(_value(time_us) * 1e-6 for time_us in detail["times_us"])
    if not times_s:
        return None
    last = len(times_s) - 1
    lower, upper = times_s[round(0.25 * last)], times_s[round(0.75 * last)]
    deviation_s = _value(detail["stdev_us"]) * 1e-6
    return Spread(times_s[0], lower, upper, times_s[-1], deviation_s, len(times_s), tuple(times_s))


def _count(found: object, low: int = 0) -> int:
    """Return a whole number, as it stands or as text; raises ValueError."""
    value = whole(str(found).strip()[:40], low)
    if value is None:
        raise ValueError(f"expected a whole number, found {str(found)[:40]!r}")
    return value


def _value(found: object) -> float:
    """Return a number from 0 to ``_MOST``, as it stands or as text; raises ValueError."""
    value = decimal(str(found).strip()[:40], 0.0, _MOST)
    if value is None:
        raise ValueError(f"expected a number from 0 to {_MOST:g}, found {str(found)[:40]!r}")
    return value


def _named(document: Mapping[str, Any]) -> Kind | None:
    """Return the collective that the command line or an entry names."""
    words = [
        *map(str, document.get("args", [])),
        *(str(e.get("experiment_name")) for e in document["results"]),
    ]
    for word in words:
        name = word.rsplit("/", 1)[-1].removesuffix("_perf").lower()
        if name in _NAMED:
            return _NAMED[name]
    return None


def _wrong_value(error: Exception) -> str:
    """Return what is wrong with an entry: a missing field, or an impossible value."""
    if isinstance(error, KeyError):
        return f"{str(error.args[0])[:40]} is missing"
    return str(error) if isinstance(error, ValueError) else "a value of another kind"


def _version(number: int) -> str:
    """Return a version from NCCL's number: 21903 is 2.19.3; before 2.9, 2804 is 2.8.4."""
    major = 10000 if number >= 10000 else 1000
    return f"NCCL {number // major}.{number % major // 100}.{number % 100}"
