"""Results of gcm's health checks, by its exporters "stdout" and "file"."""

import json

import pytest
from damaged_json import damaged
from hypothesis import given, strategies as st

from exec.benchmark.foreign.gcm import gcm_evidence, is_gcm
from probes.base.errors import DataError

CHECKS = [
    ("nvidia smi ecc_uncorrected", 2, "GPU 3: 2 errors"),
    ("check ibstat", 1, ""),
    ("check pci", 0, "fine"),
]


def listed(checks=CHECKS, node="gpu7"):
    """Return the output of the exporter "stdout": a list for each check."""
    return [
        [{"node": node, "cluster": "c", "health_check": name, "type": "app", "result": code, "_msg": message}]
        for name, code, message in checks
    ]


def by_type(checks=CHECKS, node="gpu7"):
    """Return the output of the exporter "file": an object for each check, fields sorted by type."""
    return [
        {
            "int": {"result": code, "job_id": 0},
            "double": {"start_time": 1.0},
            "normal": {"node": node, "health_check": name, "type": "app", "_msg": message},
            "tags": {},
        }
        for name, code, message in checks
    ]


def lines(values):
    return "".join(json.dumps(one) + "\n" for one in values).encode()


@pytest.mark.parametrize(
    "values", [listed(), by_type(), [one for [one] in listed()]], ids=["stdout", "file", "objects"]
)
def test_checks_that_failed_are_faults_and_warnings_remarks(values):
    content = lines(values)
    assert is_gcm(content)
    found = gcm_evidence(content, "gcm.log")
    assert [(one.host, one.kind, one.severity) for one in found] == [
        ("gpu7", "health_check", "fault"),
        ("gpu7", "health_check", "remark"),
    ]
    assert found[0].text == "the check 'nvidia smi ecc_uncorrected' is critical: GPU 3: 2 errors"
    assert found[1].text == "the check 'check ibstat' warns"


def test_checks_that_could_not_tell_are_remarks():
    found = gcm_evidence(lines(listed([("check pci", 3, "timed out"), ("check ssh", 77, "")])), "f")
    assert [one.severity for one in found] == ["remark", "remark"]
    assert "could not tell: timed out" in found[0].text and "unknown result 77" in found[1].text


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"{}", b'[{"health_check": "x"}]', b'{"int": {}, "normal": {}}', b"[" * 9999, b"x"],
)
def test_what_is_no_result_is_refused(content):
    with pytest.raises(DataError, match="gcm"):
        gcm_evidence(content, "f")


@given(st.binary() | damaged(listed()[0]) | damaged(by_type()[0]))
def test_no_content_breaks_the_reader(content):
    is_gcm(content)
    try:
        found = gcm_evidence(content, "f")
    except DataError:
        return
    assert all(one.tool == "gcm" for one in found)
