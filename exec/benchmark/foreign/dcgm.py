"""Results of NVIDIA's diagnostic, ``dcgmi diag -r LEVEL -j``, of DCGM 2 to 4.

DCGM 2 and 3 list results by GPU number under "DCGM GPU Diagnostic", with nulls between them in some versions.
DCGM 4 lists them by entity (GPU, CPU) under "DCGM Diagnostic", with a summary of each test. If the diagnostic
ran several iterations, each has an object of its own in the list ``iterations``. Messages of other programs
may come before and after the JSON. The format is that of https://github.com/NVIDIA/DCGM
(nvvs/include/NvvsJsonStrings.h, dcgmi/Diag.cpp).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import msgspec

from exec.benchmark.foreign.evidence import (
    Evidence,
    Severity,
    decoded_json,
    text_of,
    worst_first,
)
from probes.base import DataError, some

__all__ = ["dcgm_evidence", "is_dcgm"]

_TOOL = "DCGM"
_WHAT = "the JSON of dcgmi diag -j"
_NAMED = re.compile(rb'"DCGM (?:GPU )?Diagnostic"\s*:\s*\{')
# dcgmErrorSeverity_t: 1 "can perform workload, but needs to be monitored", 5 "can be configured".
_MONITOR, _CONFIGURE = 1, 5
# dcgmErrorCategory_t 3 and 8: wrong configuration and other errors of software, such as persistence mode that
# is off. Other categories do not count as settings, because hardware errors may "be configured" too, such as
# a PCIe link of too few lanes.
_SETTINGS = frozenset({3, 8})
# Messages (dcgmlib/dcgm_errors.h) with the measured and the required number, and their unit.
_NUMBER = r"([0-9]{1,12}(?:\.[0-9]{1,6})?)"
_MEASURED = (
    (re.compile(rf"Bandwidth of GPU .{{1,40}} of {_NUMBER} did not exceed .{{1,40}} of {_NUMBER}"), "GB/s"),
    (re.compile(rf"memory bandwidth of {_NUMBER} GB/s, failing to meet {_NUMBER} GB/s"), "GB/s"),
    (re.compile(rf"PCI link width {_NUMBER}X, .{{1,60}} of {_NUMBER}"), "lanes"),
    (re.compile(rf"PCI link generation {_NUMBER}, .{{1,60}} of {_NUMBER}"), "generation"),
    (
        re.compile(rf"stress level of {_NUMBER} did not (?:reach|exceed) desired stress level of {_NUMBER}"),
        "",
    ),
    (re.compile(rf"Max power of {_NUMBER} did not reach desired power .{{1,40}} of {_NUMBER}"), "W"),
)
_MOST_NAMED = 12


class _Error(msgspec.Struct):
    warning: str = ""
    error_category: int = 0
    error_severity: int = 0


class _Result(msgspec.Struct):
    status: str = ""
    gpu_id: str | int = ""
    gpu_ids: str | int = ""
    entity_group: str = ""
    entity_id: int = -1
    warnings: list[_Error | str | None] | str = []


class _Test(msgspec.Struct):
    name: str
    results: list[_Result | None] = []
    test_summary: _Result | None = None


class _Category(msgspec.Struct):
    category: str = ""
    tests: list[_Test | None] = []


class _Diagnostic(msgspec.Struct):
    test_categories: list[_Category | None] = []
    runtime_error: str = ""


class _Iteration(msgspec.Struct):
    dcgm4: _Diagnostic | None = msgspec.field(default=None, name="DCGM Diagnostic")
    dcgm3: _Diagnostic | None = msgspec.field(default=None, name="DCGM GPU Diagnostic")

    @property
    def found(self) -> _Diagnostic | None:
        return self.dcgm4 or self.dcgm3


class _Document(_Iteration):
    iterations: list[_Iteration] = []


def is_dcgm(content: bytes) -> bool:
    """Return whether ``content`` is the JSON of ``dcgmi diag``."""
    # Search all of the content: DCGM 4 writes the entity groups before the results, and another program may
    # write before both.
    return _NAMED.search(content) is not None


def dcgm_evidence(content: bytes, source: str) -> list[Evidence]:
    """Return the tests that failed, warned or were skipped; the JSON does not name the host.

    Raises DataError if it is not a document of ``dcgmi diag -j``.
    """
    begin, end = content.find(b"{"), content.rfind(b"}") + 1
    document = decoded_json(content[max(begin, 0) : end or None], source, _Document, _WHAT)
    runs = [one.found for one in (document, *document.iterations)]
    known = [one for one in runs if one is not None]
    if not known:
        raise DataError(source, [f'expected {_WHAT}: an object "DCGM Diagnostic" or "DCGM GPU Diagnostic"'])
    graded = any(one.dcgm4 for one in (document, *document.iterations))
    return worst_first(one for run in known for one in _of_run(run, graded))


def _of_run(run: _Diagnostic, graded: bool) -> Iterator[Evidence]:
    if run.runtime_error:
        text = f"the diagnostic did not run: {text_of(run.runtime_error)}"
        yield Evidence(_TOOL, "", "", "diagnostic", "fault", text)
    skipped: list[str] = []
    tests = (test for category in run.test_categories if category for test in category.tests if test)
    for test in tests:
        # The summary repeats the errors of the entities, so it is used only for a test without entities.
        results = [one for one in test.results if one] or [test.test_summary or _Result()]
        for result in results:
            yield from _of_result(test.name, result, graded)
        if all(result.status.lower() == "skip" for result in results):
            skipped.append(text_of(test.name))
    if skipped:
        text = f"tests were skipped: {some(list(dict.fromkeys(skipped)), _MOST_NAMED)}"
        yield Evidence(_TOOL, "", "", "skipped", "remark", text)


def _of_result(test: str, result: _Result, graded: bool) -> Iterator[Evidence]:
    status = result.status.lower()
    if status not in ("fail", "warn"):
        return
    warnings = result.warnings if isinstance(result.warnings, list) else [result.warnings]
    errors = [_Error(one) if isinstance(one, str) else one for one in warnings if one]
    part = _part(result)
    for error in errors or [_Error()]:
        text, severity = _text(test, status, error), _severity(status, error, graded)
        yield Evidence(_TOOL, "", part, "diagnostic", severity, text, *_measured(error.warning))


def _text(test: str, status: str, error: _Error) -> str:
    verb = "failed" if status == "fail" else "warned"
    return f"the test {json.dumps(text_of(test))} {verb}" + (
        f": {text_of(error.warning)}" if error.warning else ""
    )


def _measured(warning: str) -> tuple[float | None, str, float | None]:
    """Return (measured, unit, required) from a message that states them, else no numbers."""
    for pattern, unit in _MEASURED:
        if found := pattern.search(warning):
            return float(found[1]), unit, float(found[2])
    return None, "", None


def _severity(status: str, error: _Error, graded: bool) -> Severity:
    """Return "remark" for a warning, and for an error of DCGM 4 with which the GPU may go on working.

    The JSON of DCGM 4 reports warnings as failures, too, and grades errors by severity instead. Earlier
    versions report only real failures as such, but give nearly all errors the same severity.
    """
    harmless = error.error_severity == _MONITOR or (
        error.error_severity == _CONFIGURE and error.error_category in _SETTINGS
    )
    return "remark" if status == "warn" or (graded and harmless) else "fault"


def _part(result: _Result) -> str:
    if result.entity_group and result.entity_id >= 0:
        return f"{result.entity_group[:20]} {result.entity_id}"
    number = text_of(result.gpu_id if result.gpu_id != "" else result.gpu_ids)
    return f"GPU {number}" if number else ""
