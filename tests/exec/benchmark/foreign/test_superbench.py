"""Results and diagnoses of SuperBench: benchmarks that failed, nodes that are slower than the others."""

import json

import pytest
from damaged_json import damaged
from hypothesis import given, strategies as st

from exec.benchmark.foreign.superbench import is_superbench, superbench_evidence
from probes.base.errors import DataError

BUSBW = "nccl-bw/allreduce_8589934592_busbw:0"
TIME = "kernel-launch/event_time:3"
DETAILS = (
    "mem-bw/H2D_Mem_BW:2(B/L: 25.6000 VAL: 12.1000 VAR: -52.73% Rule:lambda x:x<-0.05),"
    "kernel-launch/return_code(VAL: 1.0000 Rule:lambda x:x>0),ib-loopback/IB_write_bw:0_miss"
)


def node(name, busbw=230.0, time=0.006, code=0, **more):
    return {"node": name, BUSBW: busbw, TIME: time, "nccl-bw/return_code:0": code, **more}


def lines(*nodes):
    return "".join(json.dumps(one) + "\n" for one in nodes).encode()


def read(content):
    assert is_superbench(content)
    return superbench_evidence(content, "results-summary.jsonl")


def test_nodes_that_are_alike_have_no_finding():
    assert read(lines(*(node(f"gpu{at}", 230 + at) for at in range(4)))) == []


@pytest.mark.parametrize(
    ("changed", "part", "severity"),
    [
        ({"busbw": 120.0}, BUSBW, "fault"),
        ({"busbw": 210.0}, BUSBW, "remark"),
        ({"time": 0.012}, TIME, "fault"),
        ({"time": 0.0066}, TIME, "remark"),
    ],
)
def test_a_node_that_is_slower_than_the_others_is_named(changed, part, severity):
    others = [node(f"gpu{at}") for at in range(4)]
    [found] = read(lines(*others, node("gpu9", **changed)))
    assert (found.host, found.part, found.kind, found.severity) == ("gpu9", part, "slower", severity)
    assert found.normal in (230.0, 0.006) and found.value in changed.values()


@pytest.mark.parametrize("changed", [{"busbw": 400.0}, {"time": 0.001}])
def test_a_node_that_is_faster_is_none(changed):
    assert read(lines(*(node(f"gpu{at}") for at in range(4)), node("gpu9", **changed))) == []


def test_a_benchmark_that_failed_is_a_fault():
    [found] = read(lines(node("gpu1"), node("gpu2", code=2)))
    assert (found.host, found.part, found.kind, found.value) == ("gpu2", "nccl-bw", "return_code", 2)


def test_few_nodes_and_unknown_metrics_are_not_compared():
    assert read(lines(node("gpu1"), node("gpu2", 100.0))) == []
    odd = {"monitor/gpu_power_rate:0": 3.0, "x/colour": 3.0, "x/throughput": "N/A"}
    assert (
        read(lines(*(node(f"gpu{at}", **dict.fromkeys(odd, 9.0)) for at in range(5)), node("g", **odd))) == []
    )


def test_the_file_of_one_node_is_one_object():
    told = node("gpu1", code=1)
    del told["node"]
    assert [one.kind for one in read(json.dumps(told, indent=2).encode())] == ["return_code"]


@pytest.mark.parametrize(
    "content",
    [
        lines({"Category": "Mem", "Defective Details": DETAILS, "index": "gpu3"}),
        json.dumps(
            [
                {
                    "index": "gpu3",
                    "diagnosis/accept": False,
                    "diagnosis/category": "Mem",
                    "diagnosis/issue_details": DETAILS,
                }
            ],
            indent=4,
        ).encode(),
    ],
    ids=["jsonl", "json"],
)
def test_a_diagnosis_names_each_rule_that_a_node_breaks(content):
    found = read(content)
    assert [one.part for one in found] == [
        "mem-bw/H2D_Mem_BW:2",
        "kernel-launch/return_code",
        "ib-loopback/IB_write_bw:0",
    ]
    assert {(one.host, one.severity) for one in found} == {("gpu3", "fault")}
    assert [(one.value, one.normal) for one in found] == [(12.1, 25.6), (1.0, None), (None, None)]
    assert "the baseline is 25.6 (rule lambda x:x<-0.05, Mem)" in found[0].text


def test_nodes_that_a_diagnosis_accepts_and_rules_over_rules():
    rows = [
        {"index": "gpu1", "diagnosis/accept": True, "diagnosis/issue_details": ""},
        {
            "index": "gpu2",
            "diagnosis/accept": False,
            "diagnosis/issue_details": "rule6:lambda label: label>2",
        },
    ]
    [found] = read(json.dumps(rows).encode())
    assert (found.host, found.part) == ("gpu2", "") and "rule6" in found.text


@pytest.mark.parametrize("content", [b"", b"[", b"[3]", b"3", b'{"a/return_code": 0}\n{torn', b"[" * 9999])
def test_what_is_none_of_its_files_is_refused(content):
    with pytest.raises(DataError, match="SuperBench"):
        superbench_evidence(content, "f")


@given(
    st.binary()
    | damaged([node(f"gpu{at}", 100.0 + 50 * at) for at in range(4)])
    | damaged([{"index": "gpu3", "diagnosis/category": "Mem", "diagnosis/issue_details": DETAILS}])
)
def test_no_content_breaks_the_reader(content):
    is_superbench(content)
    try:
        found = superbench_evidence(content, "f")
    except DataError:
        return
    assert all("\n" not in one.text for one in found)
