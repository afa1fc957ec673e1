"""Results of dcgmi diag in JSON: which test failed on which GPU, and why."""

import json

import pytest
from damaged_json import damaged
from hypothesis import given, strategies as st

from exec.benchmark.foreign.dcgm import dcgm_evidence, is_dcgm
from probes.base.errors import DataError

WIDTH = (
    "GPU 2 is running at PCI link width 8X, which is below the minimum allowed link generation of 16 "
    "(parameter 'min_pci_width')"
)


def dcgm4(status="Pass", **error):
    """A document of DCGM 4 in which the PCIe test of GPU 2 has ``status``, with the error that is given."""
    result = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 2, "status": status}
    if error:
        result["warnings"] = [error]
    sound = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": "Pass"}
    tests = [
        {"name": "pcie", "results": [sound, result], "test_summary": {"status": status}},
        {"name": "nvlink", "results": [], "test_summary": {"status": "Skip"}},
    ]
    return {
        "entity_groups": [{"entity_group": "GPU", "entity_group_id": 1, "entities": [{"entity_id": 2}]}],
        "metadata": {"version": "4.2.3"},
        "DCGM Diagnostic": {"test_categories": [{"category": "Integration", "tests": tests}]},
    }


def dcgm3(status, warnings):
    results = [{"gpu_id": "0", "status": "PASS"}, {"gpu_id": "5", "status": status, "warnings": warnings}]
    tests = [None, {"name": "Memory", "results": results}]
    return {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}, None]}}


def read(document):
    content = json.dumps(document).encode()
    assert is_dcgm(content)
    return dcgm_evidence(content, "dcgm.json")


def test_a_link_with_half_its_lanes_is_a_fault_with_both_numbers():
    width, skipped = read(dcgm4("Fail", warning=WIDTH, error_id=46, error_category=13, error_severity=5))
    assert (width.host, width.part, width.kind, width.severity) == ("", "GPU 2", "diagnostic", "fault")
    assert (width.value, width.unit, width.normal) == (8, "lanes", 16)
    assert 'the test "pcie" failed' in width.text and "link width 8X" in width.text
    assert (skipped.severity, skipped.text) == ("remark", "tests were skipped: nvlink")


@pytest.mark.parametrize(
    ("error", "severity"),
    [
        ({"error_severity": 1, "error_category": 10}, "remark"),
        ({"error_severity": 2, "error_category": 10}, "fault"),
        ({"error_severity": 5, "error_category": 8}, "remark"),
        ({"error_severity": 5, "error_category": 13}, "fault"),
        ({"error_severity": 4, "error_category": 13}, "fault"),
    ],
)
def test_dcgm_4_grades_errors_because_it_calls_warnings_failures(error, severity):
    assert read(dcgm4("Fail", warning="told", **error))[0].severity == severity


@pytest.mark.parametrize(
    "warnings", ["told", ["told"], [{"warning": "told", "error_severity": 1}], [None, "told"]]
)
@pytest.mark.parametrize(("status", "severity"), [("FAIL", "fault"), ("Fail", "fault"), ("Warn", "remark")])
def test_dcgm_3_calls_a_failure_what_is_one(warnings, status, severity):
    [found] = read(dcgm3(status, warnings))
    assert (found.part, found.severity) == ("GPU 5", severity)
    assert found.text.endswith(": told")


@pytest.mark.parametrize(
    ("told", "numbers"),
    [
        (
            "Bandwidth of GPU 0 in direction h2d of 12.30 did not exceed minimum required bandwidth of 20.00",
            (12.3, "GB/s", 20),
        ),
        (
            "GPU 0 only achieved a memory bandwidth of 900.5 GB/s, failing to meet 1500.00 GB/s",
            (900.5, "GB/s", 1500),
        ),
        (
            "Max stress level of 2128.7 did not reach desired stress level of 3000.0 for GPU 0",
            (2128.7, "", 3000),
        ),
        (
            "Max power of 200.0 did not reach desired power minimum target_power of 300.0 for GPU 0",
            (200, "W", 300),
        ),
        ("there is no number in it", (None, "", None)),
    ],
)
def test_the_measured_and_the_required_number_are_taken_from_the_message(told, numbers):
    [found] = read(dcgm3("Fail", [told]))
    assert (found.value, found.unit, found.normal) == numbers


def test_a_sound_host_has_nothing_but_what_was_skipped():
    assert [one.kind for one in read(dcgm4())] == ["skipped"]
    assert read(dcgm3("PASS", [])) == []


def test_a_diagnostic_that_did_not_run_is_a_fault():
    [found] = read({"DCGM GPU Diagnostic": {"runtime_error": "Error: the host engine is not there"}})
    assert found.severity == "fault" and "did not run" in found.text


def test_each_iteration_counts_and_repetitions_are_told_once():
    one = dcgm3("Fail", ["told"])
    assert len(read({"iterations": [one, one, dcgm3("Fail", ["other"])], "Overall Result": "Fail"})) == 2


def test_messages_of_other_programs_around_the_document_are_passed_over():
    content = b"WARNING: no config\n" + json.dumps(dcgm3("Fail", ["told"])).encode() + b"\ndone\n"
    assert is_dcgm(content) and len(dcgm_evidence(content, "f")) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"DCGM Diagnostic": 3}',
        b'{"DCGM Diagnostic": null}',
        b'{"iterations": [{}]}',
        b"{" * 9999,
    ],
)
def test_what_is_no_document_of_dcgmi_is_refused(content):
    with pytest.raises(DataError, match="dcgmi diag"):
        dcgm_evidence(content, "f")


@given(
    st.binary() | damaged(dcgm4("Fail", warning=WIDTH, error_severity=2)) | damaged(dcgm3("Fail", ["told"]))
)
def test_no_content_breaks_the_reader(content):
    is_dcgm(content)
    try:
        found = dcgm_evidence(content, "f")
    except DataError:
        return
    assert all(one.severity in ("fault", "remark") and "\n" not in one.text for one in found)
