"""JUnit's XML, as CI systems read it: one suite of cases, each passed, failed or skipped.

Elements and attributes are those of https://github.com/testmoapp/junitxml: testsuites, testsuite, testcase,
failure, skipped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

from probes.base import visible

__all__ = ["Case", "Outcome", "junit"]

Outcome = Literal["passed", "failed", "skipped"]

# Characters that XML 1.0 forbids.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Case:
    """One check: its name, its seconds, its outcome, the reason, and the group of checks that it is in.

    ``kind`` is a word for the type of a failure.
    """

    name: str
    time_s: float
    outcome: Outcome
    why: str = ""
    group: str = ""
    kind: str = "failure"


def junit(suite: str, cases: Sequence[Case], started: str = "") -> bytes:
    """Return the document, in UTF-8; ``started`` is the time of the suite by ISO 8601, "" if unknown."""
    failed = sum(case.outcome == "failed" for case in cases)
    skipped = sum(case.outcome == "skipped" for case in cases)
    counts = {"tests": str(len(cases)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}
    root = ElementTree.Element("testsuites", counts)
    attributes = {"name": _legal(suite), **counts, "time": f"{sum(case.time_s for case in cases):.9f}"}
    inner = ElementTree.SubElement(
        root, "testsuite", attributes | ({"timestamp": started} if started else {})
    )
    for case in cases:
        place = f"{suite}.{case.group}" if case.group else suite
        attributes = {"classname": _legal(place), "name": _legal(case.name), "time": f"{case.time_s:.9f}"}
        element = ElementTree.SubElement(inner, "testcase", attributes)
        if case.outcome == "failed":
            failure = {"message": _legal(case.why), "type": _legal(case.kind)}
            ElementTree.SubElement(element, "failure", failure).text = _legal(case.why)
        elif case.outcome == "skipped":
            ElementTree.SubElement(element, "skipped", {"message": _legal(case.why)})
        elif case.why:
            ElementTree.SubElement(element, "system-out").text = _legal(case.why)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, "unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def _legal(text: str) -> str:
    return _ILLEGAL.sub("�", "\n".join(map(visible, text.split("\n"))))
