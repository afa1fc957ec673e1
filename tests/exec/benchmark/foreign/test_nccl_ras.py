import json
import re

import pytest

from exec.benchmark.foreign.nccl_ras import is_ras, ras_recorded
from probes.errors import DataError


def rank(number, count, **status):
    return {
        "rank": number,
        "host": f"10.0.0.{number // 2}",
        "pid": 100 + number,
        "cuda_dev": number % 2,
        "nvml_dev": number % 2,
        "status": {
            "init_state": 0,
            "async_error": 0,
            "finalize_called": False,
            "destroy_flag": False,
            "abort_flag": False,
            **status,
        },
        "collective_counts": {"Broadcast": 1, "AllReduce": count},
    }


def dump(*counts, timestamp="2026-01-01 10:00:00", missing=(), **status):
    """As ncclras -f json prints it (NCCL's src/ras/client_support.cc)."""
    gone = [
        {**rank(number, 0), "status": {"unresponsive": True, "considered_dead": dead}}
        for number, dead in missing
    ]
    ranks = [
        rank(at, count, **(status if at == 0 else {})) for at, count in enumerate(counts) if count is not None
    ]
    return json.dumps(
        {
            "nccl_version": "2.28.7",
            "cuda_runtime_version": 13000,
            "cuda_driver_version": 13000,
            "timestamp": timestamp,
            "communicators_count": 1,
            "communicators": [
                {
                    "hash": "0xabc",
                    "secondary_hash": "0x1:0x2",
                    "size": len(counts),
                    "ranks_count": len(ranks),
                    "missing_ranks_count": len(gone),
                    "ranks": ranks,
                    "missing_ranks": gone,
                }
            ],
            "ras": {"collection_time_sec": 0.01, "timeouts_count": 0},
        }
    ).encode()


def lags(**files):
    return [(lag.what, lag.rank, lag.text) for lag in ras_recorded(files).lags]


def test_ranks_that_go_on_are_not_late():
    assert is_ras(dump(5, 5))
    assert lags(a=dump(41, 40, 41, 41)) == []
    assert lags(a=dump(40, 41), b=dump(52, 50, timestamp="2026-01-01 10:00:09")) == []


def test_one_dump_names_a_rank_that_is_two_calls_behind():
    assert lags(a=dump(41, 38, 41, 41)) == [("late", 1, "has begun 38 AllReduce, others up to 41")]


def test_a_rank_that_does_not_move_is_stuck_and_ranks_that_wait_for_it_are_not():
    later = dump(41, 40, 41, 41, timestamp="2026-01-01 10:00:09")
    text = "has begun 40 AllReduce, others up to 41; it has not moved in 2 dumps"
    # In the order of their time, not of their names.
    assert lags(b=dump(41, 40, 41, 41), a=later) == [("stuck", 1, text)]


def test_missing_and_failed_ranks():
    found = ras_recorded({"a": dump(7, 7, None, None, missing=[(2, True), (3, False)], async_error=3)})
    assert [(lag.what, lag.rank, lag.host) for lag in found.lags] == [
        ("missing", 2, "10.0.0.1"),
        ("missing", 3, "10.0.0.1"),
        ("failed", 0, "10.0.0.0"),
    ]
    assert "considered dead" in found.lags[0].text and "no answer" in found.lags[1].text
    assert "error 3" in found.lags[2].text
    assert (found.ranks, found.communicators) == (4, 1)


def test_a_rank_in_its_initialization_is_late():
    assert lags(a=dump(0, 0, init_state=7)) == [("late", 0, "has not finished its initialization")]


@pytest.mark.parametrize(
    "content", [b'{"communicators_count": 1, "communicators": [{"hash": 1}]}', b'{"communicators": ']
)
def test_what_is_no_dump_is_refused(content):
    with pytest.raises(DataError, match="the JSON of ncclras"):
        ras_recorded({"x.json": content})


def test_dumps_of_nccl_2_28_and_2_29_lack_a_comma_where_a_rank_is_missing():
    whole = dump(7, 7, None, missing=[(2, True)])
    printed = json.dumps(json.loads(whole), indent=2).encode()
    start = printed.index(b'"missing_ranks"')
    broken = printed[:start] + re.sub(rb'("nvml_dev": [0-9]+),', rb"\1", printed[start:])
    assert broken != printed
    assert ras_recorded({"x": broken}) == ras_recorded({"x": whole})


def test_what_a_socket_answered_before_the_dump_is_left_out():
    answered = b"OK\nOK\n" + dump(41, 38)
    assert is_ras(answered)
    assert lags(a=answered) == lags(a=dump(41, 38))
