"""Recordings of NCCL's Inspector: transfers apart from waiting, and the last rank to arrive."""

import json

import pytest
from hypothesis import given, strategies as st

from exec.benchmark.foreign.nccl_inspector import inspected, is_inspector_text
from probes.base.errors import DataError

RANKS = 4


def line(rank, number, time_us, *, coll="AllReduce", size=1 << 20, ranks=RANKS, comm="0xab"):
    return json.dumps(
        {
            "header": {"id": comm, "rank": rank, "n_ranks": ranks, "nnodes": 1},
            "metadata": {"inspector_output_format_version": "v4.0", "hostname": f"gpu{rank // 2}", "pid": 9},
            "coll_perf": {
                "coll": coll,
                "coll_sn": number,
                "coll_msg_size_bytes": size,
                "coll_exec_time_us": time_us,
                "coll_timing_source": "kernel_gpu",
            },
        }
    )


def files(lines_of):
    """A file for each rank."""
    return {f"{rank}.log": "\n".join(lines).encode() + b"\n" for rank, lines in lines_of.items()}


def calls(arrivals_us, transfer_us, **given):
    """Kernels of calls whose ranks come at ``arrivals_us``: all end when the last one's transfer has."""
    return {
        rank: [
            line(rank, number, transfer_us + max(coming) - coming[rank], **given)
            for number, coming in enumerate(arrivals_us)
        ]
        for rank in range(len(arrivals_us[0]))
    }


times_us = st.integers(0, 10_000)


@given(st.lists(st.tuples(*[times_us] * RANKS), min_size=1, max_size=9), st.integers(1, 10_000))
def test_the_transfer_is_told_apart_from_waiting_whoever_comes_when(arrivals_us, transfer_us):
    found = inspected(files(calls(arrivals_us, transfer_us)))
    [row], [waiting] = found.report.rows, found.waiting
    assert row.out_of_place.time_s == pytest.approx(transfer_us * 1e-6)
    spreads = sorted(max(coming) - min(coming) for coming in arrivals_us)
    assert spreads[0] * 1e-6 - 1e-12 <= waiting.waited_s <= spreads[-1] * 1e-6 + 1e-12
    assert waiting.calls == len(arrivals_us)
    assert sum(often for _, _, often in waiting.last) == pytest.approx(1)


def test_the_rank_that_comes_last_is_named_with_its_host():
    found = inspected(files(calls([(0, 0, 0, 900), (5, 0, 3, 800), (70, 1, 2, 3)], 100)))
    rank, host, often = found.waiting[0].last[0]
    assert (rank, host, often) == (3, "gpu1", pytest.approx(2 / 3))
    assert found.waiting[0].share == pytest.approx(800 / 900)


@pytest.mark.parametrize(
    ("coll", "kind", "size_bytes"),
    [
        ("AllReduce", "all_reduce", 1 << 20),
        ("AllGather", "all_gather", RANKS << 20),
        ("ReduceScatter", "reduce_scatter", RANKS << 20),
        ("Broadcast", "broadcast", 1 << 20),
    ],
)
def test_sizes_are_those_of_nccl_tests(coll, kind, size_bytes):
    [row] = inspected(files(calls([(0, 0, 0, 0)], 100, coll=coll))).report.rows
    assert (row.collective, row.size_bytes) == (kind, size_bytes)


def test_nobody_waits_for_the_last_rank_of_a_broadcast():
    found = inspected(files(calls([(0, 0, 0, 500)], 100, coll="Broadcast")))
    assert found.waiting == ()
    assert found.report.rows[0].out_of_place.time_s == pytest.approx(600e-6)


def test_the_largest_communicator_with_the_most_time_is_reported():
    lines = {0: [line(0, 0, 900, ranks=2, comm="pair"), line(0, 0, 10), line(0, 1, 20, comm="0xcd")]}
    found = inspected(files(lines))
    assert (found.report.ranks, found.others, found.recorded) == (RANKS, 2, 1)
    assert found.report.rows[0].out_of_place.time_s == pytest.approx(20e-6)
    assert found.waiting == ()


def test_other_records_and_half_a_line_at_the_end_are_passed_over():
    sends = json.dumps({"header": {"id": "x", "rank": 0, "n_ranks": 2}, "p2p_perf": {"p2p": "Send"}})
    content = f"{sends}\n\n{line(0, 0, 100)}\n{line(0, 1, 100)[:40]}".encode()
    assert is_inspector_text(content)
    assert inspected({"a.log": content}).report.iterations == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}\n", "line 1: expected a record of NCCL's Inspector"),
        (b"\n", "found none"),
        (line(0, 0, 100, coll="Unheard").encode(), "found none"),
        (line(0, 0, -1.0).encode(), "coll_exec_time_us: expected a number from 0"),
        (line(7, 0, 1.0).encode(), "header.rank: expected a number from 0 to 3"),
        (line(0, 0, 1.0, size=1 << 60).encode(), "coll_msg_size_bytes"),
        (f"{line(0, 0, 1.0)}\n{line(0, 1, 1.0, ranks=8)}\n".encode(), "0xab has 4 ranks, found 8"),
    ],
)
def test_what_is_none_of_its_records_is_refused(content, said):
    with pytest.raises(DataError, match=said):
        inspected({"a.log": content})
