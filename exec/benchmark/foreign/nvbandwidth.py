"""Results of NVIDIA's nvbandwidth in JSON (``nvbandwidth -j``): copies between GPUs, and with the host.

Each test has a matrix: a row for each source (or one for the host), a column for each GPU. GPUs of one host
should be alike, so a GPU is compared with the median of all, and a pair with the median of all pairs. With a
topology the pairs are also compared with what their path carries. The format is that of
https://github.com/NVIDIA/nvbandwidth (json_output.cpp) since 0.5.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from statistics import median

import msgspec

from exec.benchmark.foreign.evidence import (
    START_BYTES,
    Evidence,
    Severity,
    decoded_json,
    text_of,
    worst_first,
)
from probes.base import DataError, decimal, normal_bus_id
from probes.paths import expected_gbs, host_named, load
from probes.topology import Gpu, Host, Topology

__all__ = ["CopyRates", "CopyTest", "is_nvbandwidth", "nvbandwidth_evidence", "parse_nvbandwidth"]

_TOOL = "nvbandwidth"
_WHAT = "the JSON of nvbandwidth -j"
# A value is slow below this share of the normal rate. An H100 with one of its 18 NVLinks down loses 5.6 % of
# its rate. On a sound host, the rates in nvbandwidth's README differ by less than 0.7 %.
_LOW = 0.95
# A value is a fault below this share of the normal rate. A PCIe link that came up with half its lanes or one
# generation lower has half its rate, and a loss of more than a quarter is nearer to one half than to noise.
_VERY_LOW = 0.75
# Fewest values whose median counts as normal.
_LEAST_VALUES = 4
# If at least this share of a matrix's pairs is within 5 % of their median, all pairs have the same kind of
# path. Otherwise paths differ, for example across CPU sockets, and single pairs are only judged with a
# topology.
_SAME_SHARE = 0.75
_MOST_GPUS = 4096
# Parts of an entry of the "GPU Device list", such as 0: NVIDIA H100 (00000000:1b:00): (gpu01)
_NUMBER = re.compile(r"([0-9]{1,6}):")
_BUS = re.compile(r"\(([0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,2}:[0-9A-Fa-f]{1,2})\)")
_HOST = re.compile(r"\(([^():\s]{1,253})\)\s*$")
_MOST_CHARACTERS = 400


class _TestCase(msgspec.Struct):
    name: str
    status: str = ""
    error: str = ""
    bandwidth_matrix: list[list[str | float | None] | None] = []


class _Body(msgspec.Struct):
    testcases: list[_TestCase] | None = None
    error: str = ""
    warning: str = ""
    hostname: str = msgspec.field(default="", name="Hostname")
    devices: list[str] | None = msgspec.field(default=None, name="GPU Device list")


class _Document(msgspec.Struct):
    nvbandwidth: _Body


@dataclass(frozen=True)
class CopyTest:
    """One test: GB/s (ns for latencies) by (row, column), without cells that were not measured.

    ``between_gpus`` tells whether rows are GPUs; otherwise the only row is the host.
    """

    name: str
    unit: str
    between_gpus: bool
    values: Mapping[tuple[int, int], float]


@dataclass(frozen=True)
class CopyRates:
    """All tests of a run.

    ``hosts`` and ``bus_ids`` map the numbers of GPUs. ``failed`` maps each failed test to the reason, and ""
    to the reason why the whole run failed.
    """

    tests: tuple[CopyTest, ...]
    hosts: Mapping[int, str]
    bus_ids: Mapping[int, str]
    failed: Mapping[str, str]
    warning: str = ""


def is_nvbandwidth(content: bytes) -> bool:
    """Return whether ``content`` is the JSON of nvbandwidth."""
    start = content[:START_BYTES].lstrip()
    return start[:1] == b"{" and re.match(rb'\{\s*"nvbandwidth"\s*:', start) is not None


def parse_nvbandwidth(content: bytes, source: str) -> CopyRates:
    """Return the copy rates; raises DataError if the content is not the JSON of nvbandwidth."""
    body = decoded_json(content, source, _Document, _WHAT).nvbandwidth
    tests = []
    failed = {"": text_of(body.error)} if body.error else {}
    for case in body.testcases or []:
        if case.error or case.status in ("Error", "Not Found"):
            failed[text_of(case.name)] = text_of(case.error or case.status)
        values = _values(case, source)
        if values:
            latency = "latency" in case.name
            between = "device_to_device" in case.name
            tests.append(CopyTest(text_of(case.name), "ns" if latency else "GB/s", between, values))
    hosts, bus_ids = _devices(body)
    return CopyRates(tuple(tests), hosts, bus_ids, failed, text_of(body.warning))


def nvbandwidth_evidence(content: bytes, source: str, topology: Topology | None = None) -> list[Evidence]:
    """Return failed tests, and GPUs and pairs that copy slower than the others or than their path.

    Raises DataError if the content is not the JSON of nvbandwidth.
    """
    rates = parse_nvbandwidth(content, source)
    found = [
        Evidence(_TOOL, _only(rates.hosts), name, "failed", "fault", f"the test {name!r} failed: {why}")
        for name, why in rates.failed.items()
    ]
    for test in rates.tests:
        slow = _slow_gpus(test)
        found += [_gpu_evidence(test, gpu, own, normal, rates) for gpu, (own, normal) in slow.items()]
        found += _slow_pairs(test, slow.keys(), rates)
        if topology is not None:
            found += _below_path(test, rates, topology)
    return worst_first(found)


def _values(case: _TestCase, source: str) -> dict[tuple[int, int], float]:
    rows = case.bandwidth_matrix
    if len(rows) > _MOST_GPUS or any(row is not None and len(row) > _MOST_GPUS for row in rows):
        raise DataError(
            source, [f"testcases {case.name[:60]!r}: expected a matrix of at most {_MOST_GPUS} GPUs"]
        )
    # A bidirectional test writes one matrix for each direction and then the matrix of their sum. Only the sum
    # is read.
    columns = max((len(row or []) for row in rows), default=0)
    if "bidirectional" in case.name and columns and len(rows) > columns and len(rows) % columns == 0:
        rows = rows[-columns:]
    found = {}
    for at, row in enumerate(rows):
        for column, cell in enumerate(row or []):
            value = decimal(cell.strip()[:40]) if isinstance(cell, str) else cell
            # For cells without a value, early versions write 0 and later ones N/A. No rate in GB/s or latency
            # in ns reaches 1e9.
            if value is not None and 0 < value < 1e9:
                found[at, column] = float(value)
    return found


def _devices(body: _Body) -> tuple[dict[int, str], dict[int, str]]:
    """Return two maps by number of the GPU: its host, and its bus id."""
    hosts: dict[int, str] = {}
    bus_ids: dict[int, str] = {}
    for line in (line[:_MOST_CHARACTERS] for line in body.devices or []):
        number = _NUMBER.match(line)
        if number is None:
            continue
        named, bus = _HOST.search(line), _BUS.search(line)
        hosts[int(number[1])] = named[1] if named else text_of(body.hostname)
        if bus:
            bus_ids[int(number[1])] = normal_bus_id(f"{bus[1]}.0")
    return hosts, bus_ids


def _only(hosts: Mapping[int, str]) -> str:
    """Return the only host of all GPUs; "" if there are several or none."""
    named = set(hosts.values())
    return named.pop() if len(named) == 1 else ""


def _share(test: CopyTest, value: float, normal: float) -> float:
    """Return the ratio of a value to the normal one, inverted for latencies: below 1 is worse."""
    return normal / value if test.unit == "ns" else value / normal


def _slow_gpus(test: CopyTest) -> dict[int, tuple[float, float]]:
    """Return (own median, median of all GPUs' medians) of each GPU with a slow row or column.

    A single slow pair hardly changes the median of a row, and a slow GPU hardly changes the medians of its
    peers.
    """
    found: dict[int, tuple[float, float]] = {}
    for axis in (0, 1) if test.between_gpus else (1,):
        cells: dict[int, list[float]] = defaultdict(list)
        for pair, value in test.values.items():
            if not (test.between_gpus and pair[0] == pair[1]):
                cells[pair[axis]].append(value)
        if len(cells) < _LEAST_VALUES:
            continue
        medians = {gpu: median(own) for gpu, own in sorted(cells.items())}
        normal = median(medians.values())
        for gpu, own in medians.items():
            share = _share(test, own, normal)
            if share < _LOW and (gpu not in found or share < _share(test, *found[gpu])):
                found[gpu] = own, normal
    return found


def _gpu_evidence(test: CopyTest, gpu: int, own: float, normal: float, rates: CopyRates) -> Evidence:
    part = f"GPU {gpu}"
    text = (
        f"{part} has {own:.4g} {test.unit} in {test.name}, the median of the GPUs is {normal:.4g} {test.unit}"
    )
    return _evidence(test, part, rates.hosts.get(gpu, ""), text, own, normal)


def _slow_pairs(test: CopyTest, slow: Set[int], rates: CopyRates) -> Iterator[Evidence]:
    """Yield the pairs without ``slow`` GPUs that are slower than the median, if most are alike."""
    pairs = {
        pair: value
        for pair, value in test.values.items()
        if test.between_gpus and pair[0] != pair[1] and not slow & {*pair}
    }
    if len(pairs) < _LEAST_VALUES:
        return
    normal = median(pairs.values())
    alike = sum(abs(value / normal - 1) < 1 - _LOW for value in pairs.values())
    if alike < _SAME_SHARE * len(pairs):
        return
    for pair, value in pairs.items():
        if _share(test, value, normal) < _LOW:
            against = f"the median of the pairs is {normal:.4g}"
            yield _pair_evidence(test, pair, value, normal, against, rates)


def _pair_evidence(
    test: CopyTest, pair: tuple[int, int], value: float, normal: float, against: str, rates: CopyRates
) -> Evidence:
    row, column = pair
    part = f"GPU {row} and GPU {column}"
    text = f"{part} have {value:.4g} {test.unit} in {test.name}, {against} {test.unit}"
    return _evidence(test, part, rates.hosts.get(row, ""), text, value, normal)


def _evidence(test: CopyTest, part: str, host: str, text: str, value: float, normal: float) -> Evidence:
    kind = "copy_latency" if test.unit == "ns" else "copy_rate"
    severity: Severity = "fault" if _share(test, value, normal) < _VERY_LOW else "remark"
    return Evidence(_TOOL, host, part, kind, severity, text, value, test.unit, normal)


def _below_path(test: CopyTest, rates: CopyRates, topology: Topology) -> Iterator[Evidence]:
    """Yield the pairs of GPUs that copy at less than 75 % of what their path carries one way."""
    # Tests in both directions at once, or of all GPUs at once, are left out: their copies share parts of the
    # path.
    if not test.between_gpus or test.unit != "GB/s" or "bidirectional" in test.name or "all" in test.name:
        return
    machine = host_named(topology, _only(rates.hosts))
    if machine is None:
        return
    names = _names_of(machine, rates)
    carries = expected_gbs(machine, load())
    for (row, column), value in test.values.items():
        ends = names.get(row), names.get(column)
        if row == column or ends[0] is None or ends[1] is None:
            continue
        normal = carries.get(ends[0], {}).get(ends[1])
        if normal and value / normal < _VERY_LOW:
            against = f"their path carries {normal:.4g}"
            yield _pair_evidence(test, (row, column), value, normal, against, rates)


def _names_of(machine: Host, rates: CopyRates) -> dict[int, str]:
    """Return the topology's name of each GPU, by bus id if both know any, else by number."""
    by_bus = {gpu.bus_id: gpu for gpu in machine.gpus}
    by_index = {gpu.index: gpu for gpu in machine.gpus}
    known = by_bus.keys() & {*rates.bus_ids.values()}
    numbers = {gpu for test in rates.tests for pair in test.values for gpu in pair}
    found: dict[int, Gpu | None] = {
        number: by_bus.get(rates.bus_ids.get(number, "")) if known else by_index.get(number)
        for number in numbers
    }
    return {number: f"GPU{gpu.index}" for number, gpu in found.items() if gpu is not None}
