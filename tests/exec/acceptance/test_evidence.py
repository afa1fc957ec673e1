"""Evidence in files of other tools, whose formats are told by their contents."""

import json
import pickle

import pytest
from hypothesis import given, strategies as st
from nccl_debug_logs import hosts, nccl_debug_log

from exec.acceptance import evidence_of, is_evidence
from exec.benchmark.foreign import Evidence
from probes.base.errors import DataError

RATES = [[26.1, 26.3, 13.1, 26.2]]
DCGM = {
    "DCGM GPU Diagnostic": {
        "test_categories": [{"tests": [{"name": "Memory", "results": [{"gpu_id": "1", "status": "Fail"}]}]}]
    }
}
NVBANDWIDTH = {
    "nvbandwidth": {
        "GPU Device list": [f"{at}: NVIDIA A100: (gpu01)" for at in range(4)],
        "testcases": [{"name": "host_to_device_memcpy_ce", "status": "Passed", "bandwidth_matrix": RATES}],
    }
}
GCM = [{"node": "gpu2", "health_check": "check pci", "result": 2, "_msg": "0 of 8"}]
SUPERBENCH = {"node": "gpu3", "nccl-bw/return_code": 1}


def ras(begun):
    """A dump of RAS in which the last of four ranks has begun ``begun`` collectives, the others nine."""
    ranks = [
        {"rank": rank, "host": f"gpu{rank}", "collective_counts": {"AllReduce": begun if rank == 3 else 9}}
        for rank in range(4)
    ]
    return {"communicators_count": 1, "communicators": [{"hash": "0x1", "size": 4, "ranks": ranks}]}


FILES = {
    "dcgm": (json.dumps(DCGM).encode(), "DCGM", "", "GPU 1", "diagnostic"),
    "nvbandwidth": (json.dumps(NVBANDWIDTH).encode(), "nvbandwidth", "gpu01", "GPU 2", "copy_rate"),
    "gcm": (json.dumps(GCM).encode(), "gcm", "gpu2", "", "health_check"),
    "superbench": (json.dumps(SUPERBENCH).encode(), "SuperBench", "gpu3", "nccl-bw", "return_code"),
    "ras": (json.dumps(ras(4)).encode(), "NCCL RAS", "gpu3", "rank 3", "late"),
    "nccl": (
        nccl_debug_log(hosts("a", "b", b={"gdr": "no module"})).encode(),
        "NCCL",
        "b",
        "NICs",
        "gdr_off",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_the_format_is_told_by_the_content(name):
    content, *expected = FILES[name]
    assert is_evidence(content)
    found = evidence_of({f"{name}.txt": content})
    assert [one.tool for one in found] == [expected[0]]
    [one] = found
    assert one.source == f"{name}.txt"
    assert [one.tool, one.host, one.part, one.kind] == expected and one.severity == "fault"


def test_a_flight_recorder_names_the_rank_that_is_waited_for():
    def dump(rank):
        entry = {
            "process_group": ["0", "p"],
            "profiling_name": "nccl:all_reduce",
            "input_sizes": [[4]],
            "state": "started",
        }
        numbers = (1,) if rank == 1 else (1, 2)
        config = {"0": {"name": "0", "desc": "p", "ranks": "[0, 1]"}}
        entries = [
            {**entry, "collective_seq_id": number, "state": "completed" if number == 1 else "started"}
            for number in numbers
        ]
        return pickle.dumps({"version": "2.5", "pg_config": config, "entries": entries}, protocol=2)

    found = evidence_of({f"nccl_trace_rank_{rank}": dump(rank) for rank in range(2)})
    assert [(one.part, one.kind, one.severity) for one in found] == [("rank 1", "late", "fault")]


def test_all_files_together_and_faults_first():
    found = evidence_of({name: content for name, (content, *_) in FILES.items()})
    assert {one.tool for one in found} == {tool for _, tool, *_ in FILES.values()}
    severities = [one.severity for one in found]
    assert severities == sorted(severities)


def test_logs_of_several_hosts_are_those_of_one_job():
    text = nccl_debug_log(hosts("a", "b", "c", c={"nics": ("mlx5_0:1/IB",)}))
    files = {
        name: "\n".join(line for line in text.splitlines() if line.startswith(name)).encode()
        for name in "abc"
    }
    assert [(one.host, one.kind) for one in evidence_of(files)] == [("c", "nics_differ")]
    assert all(evidence_of({name: content}) == [] for name, content in files.items())


def test_findings_of_a_named_host_are_told_once_and_others_by_file():
    named, other = FILES["gcm"][0], FILES["dcgm"][0]
    assert [one.source for one in evidence_of({"a": named, "b": named})] == ["a"]
    assert [one.source for one in evidence_of({"a": other, "b": other})] == ["a", "b"]


@pytest.mark.parametrize("content", [b"", b"{}", b"hello\n", b'{"schema": "ccctl/report/1"}', b"\x80\x04]."])
def test_other_files_are_refused_with_what_is_read(content):
    assert not is_evidence(content)
    with pytest.raises(DataError, match=r"x\.json: expected a file of DCGM .* found none of these"):
        evidence_of({"x.json": content})


@given(st.binary())
def test_no_content_breaks_the_reader(content):
    try:
        found = evidence_of({"f": content})
    except DataError:
        return
    assert all(isinstance(one, Evidence) for one in found)
