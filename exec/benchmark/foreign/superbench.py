"""Output of Microsoft's SuperBench: the results of its benchmarks, and its diagnosis of them.

``results-summary.jsonl`` has a line of metrics for each node; the results file of a single node is one JSON
object. A metric is ``benchmark/name``, with ``:rank`` if each rank has its own. The diagnosis (``sb result
diagnosis``) names nodes that break a rule. The formats are those of
https://github.com/microsoft/superbenchmark (superbench/ runner/runner.py,
superbench/analyzer/data_diagnosis.py).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from exec.benchmark.foreign.evidence import (
    START_BYTES,
    Evidence,
    Severity,
    decoded_json,
    text_of,
    worst_first,
)
from probes.base import DataError

__all__ = ["is_superbench", "superbench_evidence"]

_TOOL = "SuperBench"
_WHAT = "the results of SuperBench"
_RETURN_CODE = "return_code"
# Names of two columns of a diagnosis, each as written in JSON lines and in JSON.
_DETAILS = ("Defective Details", "diagnosis/issue_details")
_CATEGORIES = ("Category", "diagnosis/category")
# Loss against the median above which a metric is reported: the rules in SuperBench's documentation call a
# node defective from 5 % on.
_WORSE = 0.05
# Loss against the median above which a metric is a fault. A PCIe link or a NIC that came up with half its
# lanes halves a rate, and a loss of more than a quarter is nearer to one half than to noise.
_MUCH_WORSE = 0.25
# Fewest values whose median counts as normal, and most metrics that are accepted.
_LEAST_VALUES = 4
_MOST_VALUES = 5_000_000
# Words in the last part of a metric's name that tell whether more or less is better.
_MORE_IS_BETTER = re.compile(
    r"busbw|algbw|(?:^|_)bw(?:_|$)|bandwidth|throughput|tflops|gflops|flops|iops|rate"
)
_LESS_IS_BETTER = re.compile(r"time|latency|_lat(?:_|$)|overhead|cost")
# A broken rule: metric(B/L: baseline VAL: value VAR: percent% Rule:text), or metric(VAL: value Rule:text).
_NUMBER = r"(-?[0-9]{1,18}(?:\.[0-9]{1,9})?)"
_BROKEN = re.compile(
    rf"([^,()]{{1,200}})\((?:B/L: {_NUMBER} )?VAL: {_NUMBER}(?: VAR: {_NUMBER}%)? Rule:([^)]{{0,200}})\)"
)
_MISSING = re.compile(r"(?:^|,)([^,()]{1,200})_miss(?=,|$)")


def is_superbench(content: bytes) -> bool:
    """Return whether ``content`` holds results or a diagnosis of SuperBench."""
    start = content[:START_BYTES]
    if start.lstrip()[:1] not in (b"{", b"["):
        return False
    metrics = re.search(rb'"[^"/\n]{1,200}/[^"\n]{0,200}return_code(?::[0-9]+)?" ?:', start)
    return metrics is not None or any(f'"{name}"'.encode() in start for name in _DETAILS)


def superbench_evidence(content: bytes, source: str) -> list[Evidence]:
    """Return failed benchmarks and metrics worse than usual, or the broken rules of a diagnosis.

    Raises DataError if the content is neither results nor a diagnosis.
    """
    rows = list(_rows(content, source))
    if not rows:
        raise DataError(source, [f"expected {_WHAT}, found none"])
    diagnosed = [row for row in rows if any(name in row for name in _DETAILS)]
    if diagnosed:
        return worst_first(one for row in diagnosed for one in _rules(row))
    return worst_first([*_failures(rows), *_outliers(rows, source)])


def _rows(content: bytes, source: str) -> Iterator[dict[str, Any]]:
    """Yield the metrics of each node, from one object, a list of objects, or JSON lines."""
    text = content.strip()
    if text.startswith(b"["):
        yield from decoded_json(text, source, list[dict[str, Any]], _WHAT)
        return
    lines = text.splitlines()
    # If one object spans several lines, its first line ends with a comma or with the opening brace.
    if len(lines) > 1 and not lines[0].rstrip().endswith(b"}"):
        lines = [text]
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where = f"{source}: line {number}" if len(lines) > 1 else source
            yield decoded_json(line, where, dict[str, Any], _WHAT)


def _node(row: Mapping[str, Any]) -> str:
    return text_of(row.get("node", row.get("index", "")))


def _failures(rows: Sequence[Mapping[str, Any]]) -> Iterator[Evidence]:
    for row in rows:
        for name, value in row.items():
            if _base(name).endswith(_RETURN_CODE) and (code := _number(value)):
                benchmark = name.partition("/")[0]
                text = f"the benchmark {benchmark} failed with the return code {code:g}"
                yield Evidence(
                    _TOOL, _node(row), text_of(benchmark), "return_code", "fault", text, code, "", 0
                )


def _outliers(rows: Sequence[Mapping[str, Any]], source: str) -> Iterator[Evidence]:
    """Yield the metrics that are more than 5 % worse than the median of all nodes and ranks."""
    if sum(map(len, rows)) > _MOST_VALUES:
        raise DataError(source, [f"expected at most {_MOST_VALUES} metrics"])
    found: dict[str, list[tuple[str, str, float]]] = defaultdict(list)
    for row in rows:
        for name, value in row.items():
            number = _number(value)
            if number is not None and number > 0 and _direction(name):
                found[_base(name)].append((_node(row), name, number))
    for name, values in found.items():
        if len(values) < _LEAST_VALUES:
            continue
        normal = median(value for _, _, value in values)
        for node, full, value in values:
            worse = 1 - (value / normal if _direction(name) > 0 else normal / value)
            if worse > _WORSE:
                text = f"{text_of(full)} is {value:.4g}, the median of {len(values)} values is {normal:.4g}"
                severity: Severity = "fault" if worse > _MUCH_WORSE else "remark"
                yield Evidence(_TOOL, node, text_of(full), "slower", severity, text, value, "", normal)


def _rules(row: Mapping[str, Any]) -> Iterator[Evidence]:
    details = next((str(row[name]) for name in _DETAILS if row.get(name)), "")
    category = next((text_of(row[name]) for name in _CATEGORIES if row.get(name)), "")
    # With --output-all the diagnosis lists sound nodes as well.
    if row.get("diagnosis/accept", row.get("Accept")) is True or not details:
        return
    node, count = _node(row), 0
    for found in _BROKEN.finditer(details):
        name, baseline, value, _, rule = found.groups()
        normal = float(baseline) if baseline else None
        against = f", the baseline is {normal:g}" if normal is not None else ""
        text = f"{text_of(name)} is {float(value):g}{against} (rule {text_of(rule)}, {category})"
        yield Evidence(_TOOL, node, text_of(name), "rule", "fault", text, float(value), "", normal)
        count += 1
    for found in _MISSING.finditer(details):
        text = f"{text_of(found[1])} was not measured ({category})"
        yield Evidence(_TOOL, node, text_of(found[1]), "missing", "fault", text)
        count += 1
    if not count:
        text = f"SuperBench calls the node defective ({category}): {text_of(details)}"
        yield Evidence(_TOOL, node, "", "rule", "fault", text)


def _base(name: str) -> str:
    """Return a metric's name without its rank."""
    base, colon, rank = name.rpartition(":")
    return base if colon and rank.isdecimal() else name


def _direction(name: str) -> int:
    """Return 1 if more of a metric is better, -1 if less is, 0 if unknown or of the monitor."""
    if name.startswith("monitor/"):
        return 0
    last = _base(name).rpartition("/")[2].lower()
    # Words for less come first: names of times, such as "steptime" and "allreduce_8_time", may hold "rate" or
    # "bw" as well.
    if _LESS_IS_BETTER.search(last):
        return -1
    return 1 if _MORE_IS_BETTER.search(last) else 0


def _number(value: Any) -> float | None:
    """Return a metric's number; None if it is no number or too large to compare."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < 1e300 else None
