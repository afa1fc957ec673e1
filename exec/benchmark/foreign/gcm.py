"""Results of the health checks of Meta's GPU Cluster Monitoring (gcm, the package gpucm).

The exporter "stdout" writes a JSON list of results for each check. The exporter "file" writes each result as
one line of JSON, with its fields grouped by type ("int", "double", "normal", "tags"). The formats are those
of https://github.com/facebookresearch/gcm (gcm/schemas/health_check/log.py, gcm/exporters/). A result is an
exit code of Nagios: 0 is fine, 1 a warning, 2 critical, 3 unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from exec.benchmark.foreign.evidence import (
    START_BYTES,
    Evidence,
    Severity,
    decoded_json,
    text_of,
    worst_first,
)
from probes.base import DataError

__all__ = ["gcm_evidence", "is_gcm"]

_TOOL = "gcm"
_WHAT = "results of gcm's health checks"
# The start of a line that holds a result. Output of the check itself may stand on the lines before and after
# it.
_RESULT = re.compile(rb'^[ \t]*[\[{][^\n]{0,4096}"health_check"\s*:', re.MULTILINE)
_OK = 0
_MEANINGS: dict[int, tuple[Severity, str]] = {
    1: ("remark", "warns"),
    2: ("fault", "is critical"),
    3: ("remark", "could not tell"),
}


class _Check(msgspec.Struct):
    health_check: str
    result: int
    node: str = ""
    message: str = msgspec.field(default="", name="_msg")


class _GroupedFields(msgspec.Struct):
    """One result of the exporter "file", whose fields are grouped by type."""

    integers: dict[str, int] = msgspec.field(name="int")
    texts: dict[str, str] = msgspec.field(name="normal")


def is_gcm(content: bytes) -> bool:
    """Return whether ``content`` holds results of health checks, by either exporter."""
    return _RESULT.search(content[:START_BYTES]) is not None


def gcm_evidence(content: bytes, source: str) -> list[Evidence]:
    """Return evidence of each check whose result is not 0; lines that are not JSON are skipped.

    Raises DataError for JSON that is not a result, and for content without any result.
    """
    checks = [
        check
        for number, line in enumerate(content.splitlines(), start=1)
        if line.strip()[:1] in (b"{", b"[")
        for check in _checks(line, f"{source}: line {number}")
    ]
    if not checks:
        raise DataError(source, [f"expected {_WHAT}, found none"])
    return worst_first(_evidence(check) for check in checks if check.result != _OK)


def _checks(line: bytes, source: str) -> Iterator[_Check]:
    line = line.strip()
    if line.startswith(b"["):
        yield from decoded_json(line, source, list[_Check], _WHAT)
    elif b'"normal"' in line:
        fields = decoded_json(line, source, _GroupedFields, _WHAT)
        texts, name = fields.texts, fields.texts.get("health_check")
        result = fields.integers.get("result")
        if name is None or result is None:
            raise DataError(source, [f"expected {_WHAT}: the fields health_check and result"])
        yield _Check(name, result, texts.get("node", ""), texts.get("_msg", ""))
    else:
        yield decoded_json(line, source, _Check, _WHAT)


def _evidence(check: _Check) -> Evidence:
    severity, verb = _MEANINGS.get(check.result, ("remark", f"gave the unknown result {check.result}"))
    text = f"the check {check.health_check!r} {verb}"
    if check.message.strip():
        text += f": {text_of(check.message)}"
    return Evidence(_TOOL, text_of(check.node), "", "health_check", severity, text)
