"""Copy rates of nvbandwidth: GPUs and pairs that are slower than the others, or than their path."""

import json

import pytest
from damaged_json import damaged
from hypothesis import given, strategies as st

from exec.benchmark.foreign.nvbandwidth import is_nvbandwidth, nvbandwidth_evidence, parse_nvbandwidth
from probes.base.errors import DataError
from probes.topology import FabricLink, Gpu, Host, Topology

GPUS = 8
READ = "device_to_device_memcpy_read_ce"


def document(tests, host="gpu01", gpus=GPUS):
    """Return the output of nvbandwidth -j: matrices of texts, by name of the test."""
    cases = [
        {
            "name": name,
            "status": "Passed",
            "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
            "bandwidth_matrix": [[f"{cell:g}" if cell else "N/A" for cell in row] for row in matrix],
            "sum": 1.0,
        }
        for name, matrix in tests.items()
    ]
    devices = [f"{at}: NVIDIA H100 (00000000:{0x1B + at:02x}:00): ({host})" for at in range(gpus)]
    body = {"version": "v0.8", "CUDA Runtime Version": 12080, "GPU Device list": devices, "testcases": cases}
    return {"nvbandwidth": body}


def square(rate=276.0, slow=(), factor=0.5, gpus=GPUS):
    """A matrix between GPUs in which the pairs ``slow`` (row, column; None is any) have a factor."""
    return [
        [
            0.0
            if row == column
            else rate * (factor if any(a in (row, None) and b in (column, None) for a, b in slow) else 1)
            for column in range(gpus)
        ]
        for row in range(gpus)
    ]


def read(tests, **given):
    content = json.dumps(document(tests)).encode()
    assert is_nvbandwidth(content)
    return nvbandwidth_evidence(content, "nvb.json", **given)


def test_a_sound_host_has_no_finding():
    assert read({READ: square(), "host_to_device_memcpy_ce": [[55.0] * GPUS]}) == []


@pytest.mark.parametrize(("factor", "severity"), [(0.5, "fault"), (17 / 18, "remark")])
@pytest.mark.parametrize(
    "slow", [[(3, None), (None, 3)], [(3, None)], [(None, 3)]], ids=["both", "row", "column"]
)
def test_the_gpu_with_a_slow_row_or_column_is_named(factor, severity, slow):
    [found] = read({READ: square(slow=slow, factor=factor)})
    assert (found.host, found.part, found.kind, found.severity) == ("gpu01", "GPU 3", "copy_rate", severity)
    assert found.value == pytest.approx(276 * factor, rel=1e-3)
    assert (found.unit, found.normal) == ("GB/s", pytest.approx(276))


def test_a_slow_pair_is_no_slow_gpu():
    [found] = read({READ: square(slow=[(2, 5)])})
    assert (found.part, found.severity) == ("GPU 2 and GPU 5", "fault")


def test_pairs_across_sockets_are_not_compared_with_those_of_one_socket():
    far = [(a, b) for a in range(GPUS) for b in range(GPUS) if a // 4 != b // 4]
    assert read({READ: square(slow=far, factor=0.83)}) == []


def test_a_gpu_whose_link_to_the_host_is_half_as_fast_is_a_fault():
    rates = [26.1, 26.3, 13.1, 26.2, 26.3, 26.1, 26.2, 26.2]
    [found] = read({"host_to_device_memcpy_ce": [rates]})
    assert (found.part, found.severity, found.value) == ("GPU 2", "fault", 13.1)


def test_more_latency_is_worse():
    latencies = [[600.0] * GPUS]
    latencies[0][4] = 1200.0
    [found] = read({"host_device_latency_sm": latencies})
    assert (found.part, found.kind, found.unit, found.severity) == ("GPU 4", "copy_latency", "ns", "fault")


def test_of_both_directions_the_last_matrix_is_their_sum():
    slow = square(slow=[(1, None), (None, 1)])
    name = "device_to_device_bidirectional_memcpy_read_ce"
    tests = parse_nvbandwidth(
        json.dumps(document({name: [*slow, *slow, *square(500.0)]})).encode(), "f"
    ).tests
    assert set(tests[0].values.values()) == {500.0}


def test_a_test_that_failed_is_a_fault():
    told = document({READ: square()})
    told["nvbandwidth"]["testcases"][0].update(status="Error", error="CUDA_ERROR_ECC_UNCORRECTABLE")
    told["nvbandwidth"]["testcases"].append({"name": "device_local_copy", "status": "Waived"})
    [found] = nvbandwidth_evidence(json.dumps(told).encode(), "f")
    assert (found.kind, found.severity) == ("failed", "fault") and "ECC_UNCORRECTABLE" in found.text
    [found] = nvbandwidth_evidence(b'{"nvbandwidth": {"error": "No CUDA device"}}', "f")
    assert (found.host, found.severity) == ("", "fault")


def nvlinked(count):
    """A host of four GPUs, each with ``count`` NVLinks into switches."""
    buses = [f"0000:{0x1B + at:02x}:00.0" for at in range(4)]
    gpus = tuple(Gpu(bus, "m", index=at, arch="sm_90") for at, bus in enumerate(buses))
    fabric = tuple(FabricLink(bus, "nvswitch", "switch", "nvlink", count, "m") for bus in buses)
    return Topology((Host("gpu01", "m", gpus=gpus, fabric=fabric),))


@pytest.mark.parametrize(("rate", "faults"), [(365.0, 0), (130.0, 12)])
def test_with_a_topology_pairs_are_compared_with_their_path(rate, faults):
    content = json.dumps(document({READ: square(rate, gpus=4)}, gpus=4)).encode()
    assert nvbandwidth_evidence(content, "f") == []
    found = nvbandwidth_evidence(content, "f", topology=nvlinked(18))
    assert len(found) == faults
    assert all("their path carries" in one.text and one.normal > 2 * one.value for one in found)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b'{"nvbandwidth": []}', b'{"nvbandwidth": {"testcases": 3}}', b'{"nvbandwidth":' * 9999],
)
def test_what_is_no_document_of_nvbandwidth_is_refused(content):
    with pytest.raises(DataError, match="nvbandwidth -j"):
        nvbandwidth_evidence(content, "f")


@given(st.binary() | damaged(document({READ: square(gpus=5, slow=[(1, None)])}, gpus=5)))
def test_no_content_breaks_the_reader(content):
    is_nvbandwidth(content)
    try:
        found = nvbandwidth_evidence(content, "f", topology=nvlinked(18))
    except DataError:
        return
    assert all(one.value is None or one.value > 0 for one in found)


@given(st.lists(st.lists(st.floats(0, 1e12) | st.just("N/A"), max_size=6), max_size=6))
def test_no_matrix_breaks_the_judgement(matrix):
    told = document({})
    told["nvbandwidth"]["testcases"] = [{"name": READ, "bandwidth_matrix": matrix}]
    found = nvbandwidth_evidence(json.dumps(told).encode(), "f")
    assert all(one.value < one.normal for one in found)
