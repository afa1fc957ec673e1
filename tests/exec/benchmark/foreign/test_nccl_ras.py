import json
import re

import pytest

from exec.benchmark.foreign.nccl_ras import is_ras, ras_recorded
from probes.base.errors import DataError


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


TEXT = """RCCL version 2.28.3 compiled with ROCm "7.2.0"
HIP runtime version 70226015, amdgpu driver version 70226015

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  {errors}
    1         2         2       3-4         7         7   RUNNING      OK

Errors
======
{found}
Warnings
========
{warnings}"""
RANK = "  Rank {0}{1} -- GPU 1 managed by process 10{0} on node 10.0.0.{2}\n"


def text(errors="OK", found="", warnings=""):
    return TEXT.format(errors=errors, found=found, warnings=warnings).encode()


def different(*lines, kind="AllReduce operation counts"):
    head = f"\n#0-0 (00000000000000ab) MISMATCH\n  Communicator ranks have different {kind}\n"
    return text("MISMATCH", warnings=head + "".join(lines))


def test_the_text_of_ras_without_differences_names_nobody():
    assert is_ras(text())
    told = ras_recorded({"a": text()})
    assert (told.ranks, told.communicators, told.lags) == (8, 3, ())


def test_the_text_names_ranks_that_are_behind():
    several = "  6 ranks have launched up to operation 640\n"
    late = "  2 ranks have launched up to operation 600\n" + RANK.format(1, "", 0) + RANK.format(5, "", 1)
    words = "has begun 600 AllReduce, others up to 640"
    assert lags(a=different(several, late)) == [("late", 1, words), ("late", 5, words)]
    one = "  7 ranks have launched up to operation 640\n" + RANK.format(
        7, " has launched up to operation 600", 1
    )
    (lag,) = ras_recorded({"a": different(one)}).lags
    assert (lag.what, lag.communicator, lag.rank, lag.host) == ("late", "0xab", 7, "10.0.0.1")
    ahead = "  6 ranks have launched up to operation 640\n  2 ranks have launched up to operation 641\n"
    ahead += RANK.format(2, "", 0) + RANK.format(3, "", 0)
    assert lags(a=different(ahead)) == []


def test_ranks_that_are_all_the_others_are_known_without_being_named():
    counted = "  6 ranks have launched up to operation 5\n  2 ranks have launched up to operation 90\n"
    ahead = different(
        counted, RANK.format(0, "", 0), RANK.format(7, "", 1), kind="collective operation counts"
    )
    words = "has begun 5 collectives, others up to 90"
    assert lags(a=ahead) == [("late", number, words) for number in range(1, 7)]


def test_a_rank_that_stands_still_in_several_texts_is_stuck_until_it_agrees_again():
    def behind(most):
        return different(
            f"  7 ranks have launched up to operation {most}\n",
            RANK.format(7, " has not launched any operations", 1),
        )

    words = "has begun 0 AllReduce, others up to 9; it has not moved in 2 dumps"
    assert lags(a=behind(8), b=behind(9)) == [("stuck", 7, words)]
    # One file of several answers, too.
    assert lags(a=behind(8) + behind(9)) == [("stuck", 7, words)]
    assert lags(a=behind(8), b=text()) == []


@pytest.mark.parametrize(
    "found",
    [
        "\n#0-0 (00ab) INCOMPLETE\n  Missing communicator data from 1 rank\n" + RANK.format(6, "", 1),
        "\n#0-0 (00ab) INCOMPLETE\n  Missing communicator data from 1 rank\n  The missing rank: 6\n",
    ],
)
@pytest.mark.parametrize(
    ("heading", "state"), [("INCOMPLETE", "gave no answer"), ("DEAD", "is considered dead")]
)
def test_missing_ranks_of_a_text_are_named_with_their_hosts(found, heading, state):
    process = f"\n{heading}\n  1 job process …\n  Process 106 on node 10.0.0.1 managing GPU 1\n"
    (lag,) = ras_recorded({"a": text("INCOMPLETE", process + found)}).lags
    assert (lag.what, lag.rank, lag.host, lag.text) == ("missing", 6, "10.0.0.1", state)


def test_errors_and_states_of_a_text_are_told():
    failed = "\n#0-0 (00ab) ERROR\n  Asynchronous error on 1 rank\n"
    failed += RANK.format(3, " reported Remote process error", 0)
    assert lags(a=text("ERROR", failed)) == [("failed", 3, "error 6")]
    states = different(
        "  6 ranks have status RUNNING\n",
        RANK.format(2, " has status INIT", 0),
        RANK.format(4, " has status ABORT", 1),
        kind="status",
    )
    assert lags(a=states) == [
        ("late", 2, "has not finished its initialization"),
        ("failed", 4, "was aborted"),
    ]


@pytest.mark.parametrize(("comms", "ranks"), [(999_999_999, 8), (1, 999_999_999)])
def test_more_ranks_than_a_job_has_are_refused(comms, ranks):
    row = f"    0  {comms}         2         4  {ranks}         8   RUNNING  MISMATCH"
    changed = re.sub(
        rb"    0         1 .*", row.encode(), different("  3 ranks have launched up to operation 640\n")
    )
    with pytest.raises(DataError, match="more than"):
        ras_recorded({"a": changed})


def test_ranks_that_a_communicator_cannot_have_are_passed_over():
    found = "\n#0-0 (00ab) INCOMPLETE\n  Missing communicator data from 2 ranks\n"
    found += RANK.format(6, "", 1) + RANK.format(1057455228, "", 1)
    assert lags(a=text("INCOMPLETE", found)) == [("missing", 6, "gave no answer")]


# The answer of NCCL 2.28.9 while rank 2 of four on an H100 slept before an all_reduce of the others.
ASLEEP = b"""NCCL version 2.28.9 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.000s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (8c759935d8b78d5a) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 8
  Rank 2 has launched up to operation 7 -- GPU 0 managed by process 2567 on node 127.0.0.1

"""


def test_a_rank_one_call_behind_is_named_but_not_called_late():
    once = ras_recorded({"a": ASLEEP})
    assert once.lags == ()
    [behind] = once.unclear
    assert (behind.what, behind.rank, behind.text) == (
        "behind",
        2,
        "has begun 7 AllReduce, others up to 8",
    )
    twice = ras_recorded({"a": ASLEEP, "b": ASLEEP})
    assert [(lag.what, lag.rank) for lag in twice.lags] == [("stuck", 2)]
    assert twice.unclear == ()
