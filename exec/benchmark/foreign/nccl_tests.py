"""What nccl-tests or rccl-tests wrote, as a report: the table, or the JSON (-J; its environment is not read).

The formats are those of https://github.com/NVIDIA/nccl-tests (src/common.cu, src/util.cu) since 2016, which
at first had no columns ``redop`` and ``root`` where a collective has none, and of
https://github.com/ROCm/rccl-tests. Lines may carry tags of a launcher or a log viewer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from exec.benchmark.foreign.line_tags import without_tags
from exec.benchmark.report import Measurement, Report, Row, Spread
from probes.errors import DataError
from probes.numbers import decimal, whole
from synth.collective import Kind

__all__ = ["is_nccl_json", "is_nccl_text", "parse_nccl_json", "parse_nccl_text"]

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
_TYPES = {"float": "float32", "double": "float64", "half": "float16"}
_RANK = re.compile(r"#\s+Rank\s+([0-9]+)\s.*?\bon\s+(\S+)(?:\s+device\s+[0-9]+\s+\[[^\]]*\]\s+([^\n]+))?")
_COMMENT = r"nThread|Rank\s|size\s+count"
_NAMES = re.compile(r"^#?\s*(size\s+count\s.*?)\btime\b.*algbw", re.MULTILINE)
_TEST = re.compile(r"\b(\w+?)_perf\b")
_ROW = re.compile(r"\s*[0-9]+\s+[0-9]+\s+[a-z]\w*\s+[\w.]+\s+-?[0-9.]+\s+[0-9.]")
_WARMUP = re.compile(r"warmup iters:\s*([0-9]{1,9})\b")
_ITERATIONS = re.compile(r"\biters:\s*([0-9]{1,9})\s")
_MOST = 1e15
_ALONE, _DETAILED = 4, 8
_HEAD = ("size", "count", "type", "redop", "root")


def is_nccl_text(text: str) -> bool:
    """Whether a text has rows of nccl-tests below its header."""
    return "algbw" in text and any(_ROW.match(line) for line in without_tags(text, _COMMENT).splitlines())


def is_nccl_json(document: object) -> bool:
    """Whether a JSON document is what ``nccl-tests -J`` writes."""
    return isinstance(document, dict) and "results" in document and "nccl_version" in document


def parse_nccl_text(text: str, source: str) -> Report:
    """The report of a table; the collective is the one named in it, else what its columns admit.

    Raises DataError where it names no ranks or no row can be read.
    """
    text = without_tags(text, _COMMENT)
    named_ranks = _RANK.findall(text)
    hosts = {rank: host for rank, host, _ in named_ranks}
    if len(hosts) < len(named_ranks):
        raise DataError(
            source,
            [f"{len(named_ranks)} ranks call themselves {', '.join(hosts)}: these are runs apart"],
            hint="nccl-tests needs MPI=1 when it is built.",
        )
    lines = [line.split() for line in text.splitlines() if _ROW.match(line)]
    if not hosts or not lines:
        raise DataError(source, ["expected the ranks (# Rank …) and rows of nccl-tests"])
    named = next((_NAMED[name] for name in _TEST.findall(text) if name in _NAMED), None)
    header = _NAMES.search(text)
    head = tuple(header[1].split()) if header else _HEAD
    if not {*_HEAD[:3]} <= {*head} <= {*_HEAD}:
        raise DataError(source, [f"header: expected columns of {' '.join(_HEAD)}, found {' '.join(head)}"])
    rows = [_row(cells, head, named, len(hosts), source) for cells in lines]
    warmup = re.search(_WARMUP, text)
    iterations = re.search(_ITERATIONS, re.sub(_WARMUP, "", text))
    return _report(
        list(hosts.values()),
        rows,
        "RCCL" if "rccl" in text.lower() else "NCCL",
        int(warmup[1]) if warmup else 0,
        int(iterations[1]) if iterations else 0,
        [gpu for _, _, gpu in named_ranks],
    )


def parse_nccl_json(document: Mapping[str, Any], source: str) -> Report:
    """The report of a JSON document of version 2 or 3; raises DataError naming the entry that is wrong."""
    at = "config"
    try:
        config = document["config"]
        hosts = [str(device["hostname"]) for device in config["devices"]]
        gpus = [str(device.get("device_info", "")) for device in config["devices"]]
        named = _named(document)
        rows = []
        for number, entry in enumerate(document["results"]):
            at = f"results[{number}]"
            rows.append(_json_row(entry, named, len(hosts)))
        at = "config"
        library = _version(_count(document["nccl_version"]))
        iterations, warmup = (_count(config.get(name, 0)) for name in ("iterations", "warmup_iters"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(source, [f"{at}: expected what nccl-tests -J writes: {error!r}"]) from error
    return _report(hosts, rows, library, warmup, iterations, gpus)


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


def _row(cells: Sequence[str], head: Sequence[str], named: Kind | None, ranks: int, source: str) -> Row:
    try:
        told = dict(zip(head, cells, strict=False))
        size, count, dtype, redop = (
            _count(told["size"]),
            _count(told["count"]),
            told["type"],
            told.get("redop", "none"),
        )
        root = _count(told.get("root", "-1"), -1)
        rest = cells[len(head) :]
        # With -I each placement is followed by four columns on how its iterations differ.
        width = _DETAILED if len(rest) >= 2 * _DETAILED else _ALONE
        out = _measurement(rest[:_ALONE])
        in_place = _measurement(rest[width : width + _ALONE]) if len(rest) >= width + _ALONE else None
    except (ValueError, IndexError, KeyError) as error:
        raise DataError(source, [f"row {' '.join(cells)!r}: {error}"]) from error
    kind = named or _guessed(redop, root, out, ranks)
    return _made(kind, (size, count, dtype, redop, root), out, in_place)


def _measurement(cells: Sequence[str]) -> Measurement:
    time_s = _value(cells[0]) * 1e-6
    wrong = None if cells[3] == "N/A" else int(_value(cells[3]))
    return Measurement(time_s, time_s, time_s, -1, _value(cells[1]), _value(cells[2]), wrong)


def _guessed(redop: str, root: int, found: Measurement, ranks: int) -> Kind:
    """The collective that columns admit: older versions of nccl-tests do not say which was measured."""
    if root >= 0:
        return "broadcast" if redop == "none" else "reduce"
    if redop == "none":
        return "all_gather"
    factor = found.busbw_gbs / found.algbw_gbs if found.algbw_gbs else 2.0
    # Of all_reduce 2 (n - 1) / n, of reduce_scatter half that: below their mean it is the latter.
    return "reduce_scatter" if factor < 1.5 * (ranks - 1) / ranks else "all_reduce"


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


def _json_row(entry: Mapping[str, Any], named: Kind | None, ranks: int) -> Row:
    placements = [_json_measurement(entry, name) for name in ("out_of_place", "in_place")]
    shown = placements[0] or placements[1]
    if shown is None:
        raise ValueError("neither out_of_place nor in_place")
    redop, root = str(entry["redop"]), _count(entry["root"], -1)
    kind = named or _guessed(redop, root, shown, ranks)
    head = (_count(entry["size"]), _count(entry["count"]), str(entry["type"]), redop, root)
    return _made(kind, head, *placements)


def _json_measurement(entry: Mapping[str, Any], name: str) -> Measurement | None:
    found = entry.get(name)
    if found is None:
        return None
    time_s = _value(found["time"] if "time" in found else found["cpu_time"]) * 1e-6
    wrong = None if found["nwrong"] is None else int(_value(found["nwrong"]))
    detail = entry.get(f"{name}_per_iter")
    bandwidths = (_value(found["alg_bw"]), _value(found["bus_bw"]))
    if detail is None:
        return Measurement(time_s, time_s, time_s, -1, *bandwidths, wrong)
    p50_s, p99_s = (_value(detail[key]) * 1e-6 for key in ("p50_us", "p99_us"))
    # What it prints is of the mean; a report is of the median where that is known.
    algbw_gbs, busbw_gbs = (rate * time_s / p50_s if p50_s else rate for rate in bandwidths)
    spread = _spread(detail)
    return Measurement(p50_s, p50_s, p99_s, -1, algbw_gbs, busbw_gbs, wrong, spread, mean_s=time_s)


def _spread(detail: Mapping[str, Any]) -> Spread | None:
    times_s = sorted(_value(time_us) * 1e-6 for time_us in detail["times_us"])
    if not times_s:
        return None
    last = len(times_s) - 1
    lower, upper = times_s[round(0.25 * last)], times_s[round(0.75 * last)]
    deviation_s = _value(detail["stdev_us"]) * 1e-6
    return Spread(times_s[0], lower, upper, times_s[-1], deviation_s, len(times_s), tuple(times_s))


def _count(found: object, low: int = 0) -> int:
    """A whole number, as it stands or as text; raises ValueError."""
    value = whole(str(found).strip()[:40], low)
    if value is None:
        raise ValueError(f"expected a whole number, found {str(found)[:40]!r}")
    return value


def _value(found: object) -> float:
    """A number from 0 to ``_MOST``, as it stands or as text; raises ValueError."""
    value = decimal(str(found).strip()[:40], 0.0, _MOST)
    if value is None:
        raise ValueError(f"expected a number from 0 to {_MOST:g}, found {str(found)[:40]!r}")
    return value


def _named(document: Mapping[str, Any]) -> Kind | None:
    """The collective that the command line or an entry names."""
    words = [
        *map(str, document.get("args", [])),
        *(str(e.get("experiment_name")) for e in document["results"]),
    ]
    for word in words:
        name = word.rsplit("/", 1)[-1].removesuffix("_perf").lower()
        if name in _NAMED:
            return _NAMED[name]
    return None


def _version(number: int) -> str:
    """NCCL counts 21903 as 2.19.3, and before 2.9 it counted 2804 as 2.8.4."""
    major = 10000 if number >= 10000 else 1000
    return f"NCCL {number // major}.{number % major // 100}.{number % 100}"
