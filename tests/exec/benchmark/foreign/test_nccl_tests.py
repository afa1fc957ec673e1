"""Output of nccl-tests, in three text styles and as JSON, read as a report."""

import copy
import json

import pytest

from exec.benchmark.foreign.nccl_tests import (
    is_nccl_json,
    is_nccl_text,
    is_rccl_lines,
    parse_nccl_json,
    parse_nccl_text,
    parse_rccl_lines,
)
from probes.base.errors import DataError, WrongResultsError

HEAD = """# nThread 1 nGpus 2 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid   4242 on     gpu01 device  0 [0000:07:00] NVIDIA H100
#  Rank  1 Group  0 Pid   4243 on     gpu02 device  0 [0000:07:00] NVIDIA H100
#
#                                              out-of-place                       in-place
#  size  count   type  redop  root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#   (B)  (elements)                    (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
FOOT = """# Out of bounds values : 0 OK
# Avg bus bandwidth    : 120.5
"""
ALL_REDUCE = "  33554432  8388608  float  sum  -1  200.0  167.77  167.77  0  201.0  166.94  166.94  3\n"
DETAILED = (
    "  1024  256  half  sum  -1  20.0  0.05  0.05  0  19.0  31.0  30.0  4.2"
    "  22.0  0.04  0.04  N/A  20.0  33.0  32.0  5.1\n"
)
DOCUMENT = {
    "version": 3,
    "args": ["./build/all_gather_perf", "-J", "out.json"],
    "env": ["SECRET=hunter2"],
    "nccl_version": 22807,
    "config": {
        "iterations": 20,
        "warmup_iters": 1,
        "devices": [{"rank": 0, "hostname": "gpu01"}, {"rank": 1, "hostname": "gpu01"}],
    },
    "results": [
        {
            "size": 2048,
            "count": 256,
            "type": "float",
            "redop": "none",
            "root": "    -1",
            "out_of_place": {"time": 20.0, "alg_bw": 0.1, "bus_bw": 0.05, "nwrong": 0.0},
            "in_place": {"time": 21.0, "alg_bw": 0.1, "bus_bw": 0.05, "nwrong": None},
            "out_of_place_per_iter": {
                "p50_us": 19.0,
                "p99_us": 30.0,
                "stdev_us": 2.0,
                "times_us": [18.0, 19.0, 19.0, 20.0, 30.0],
            },
        }
    ],
}


def test_a_table_is_read_with_its_ranks_and_both_placements():
    text = HEAD + ALL_REDUCE + FOOT
    assert is_nccl_text(text)
    report = parse_nccl_text(text, "x")
    assert (report.ranks, report.hosts, report.warmup, report.iterations) == (2, ("gpu01", "gpu02"), 5, 20)
    (row,) = report.rows
    assert (row.collective, row.size_bytes, row.dtype, row.redop) == (
        "all_reduce",
        33554432,
        "float32",
        "sum",
    )
    assert row.out_of_place.time_s == pytest.approx(200e-6)
    assert (row.out_of_place.busbw_gbs, row.out_of_place.wrong, row.in_place.wrong) == (167.77, 0, 3)
    assert row.out_of_place.spread is None


def test_a_table_with_statistics_of_iterations_keeps_the_placements_apart():
    (row,) = parse_nccl_text(HEAD + DETAILED + FOOT, "x").rows
    assert row.dtype == "float16"
    assert row.out_of_place.time_s == pytest.approx(20e-6)
    assert row.in_place.time_s == pytest.approx(22e-6)
    assert row.in_place.wrong is None


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ("float sum -1 10.0 100.0 100.0 0 10.0 100.0 100.0 0", "all_reduce"),
        ("float sum -1 10.0 100.0 50.0 0 10.0 100.0 50.0 0", "reduce_scatter"),
        ("float sum -1 10.0 100.0 100.0 0 10.0 100.0 100.0 N/A", "all_to_next"),
        ("float none -1 10.0 100.0 50.0 0 10.0 100.0 50.0 0", "all_gather"),
        ("float none -1 10.0 100.0 50.0 0 10.0 100.0 50.0 N/A", "all_to_all"),
        ("float none 0 10.0 100.0 100.0 0 10.0 100.0 100.0 0", "broadcast"),
        ("float sum 0 10.0 100.0 100.0 0 10.0 100.0 100.0 0", "reduce"),
        ("float 10.0 100.0 50.0 0 10.0 100.0 50.0 N/A", "all_to_all"),
    ],
)
def test_the_columns_tell_the_collective_and_a_name_overrules_them(cells, kind):
    line = f"  1000000  250000  {cells}\n"
    report = parse_nccl_text(HEAD + line, "x")
    assert report.rows[0].collective == kind
    title = "sendrecv (all_to_next)" if kind == "all_to_next" else kind
    assert f"no test is named: its columns are those of {title}" in report.notes[0]
    factors = {"100.0 50.0": "alltoall", "100.0 100.0": "all_reduce"}
    test = next(name for digits, name in factors.items() if digits in cells)
    named = parse_nccl_text(f"# Collective test starting: {test}_perf\n" + HEAD + line, "x")
    assert (named.rows[0].collective, named.notes) == ("all_to_all" if test == "alltoall" else test, ())


def test_runs_apart_are_not_taken_for_one_of_all():
    with pytest.raises(DataError, match="2 ranks are numbered 0: each process ran alone") as caught:
        parse_nccl_text(HEAD.replace("Rank  1", "Rank  0") + ALL_REDUCE, "x")
    assert "MPI=1" in caught.value.hint


def test_json_is_read_without_its_environment():
    assert is_nccl_json(DOCUMENT)
    report = parse_nccl_json(DOCUMENT, "x")
    assert "hunter2" not in repr(report)
    assert (report.ranks, report.library) == (2, "NCCL 2.28.7")
    (row,) = report.rows
    assert (row.collective, row.root) == ("all_gather", -1)
    assert row.out_of_place.p99_s == pytest.approx(30e-6)
    assert row.out_of_place.spread.samples == 5
    assert row.in_place.wrong is None


@pytest.mark.parametrize("name", ["size", "out_of_place", "redop"])
def test_an_entry_that_is_wrong_is_named(name):
    broken = copy.deepcopy(DOCUMENT)
    broken["results"][0][name] = {} if name == "out_of_place" else None
    if name == "redop":
        del broken["results"][0][name]
    with pytest.raises(DataError, match=r"results\[0\]"):
        parse_nccl_json(broken, "x")


def test_other_texts_and_documents_are_not_taken_for_it():
    assert not is_nccl_text("algbw is a word")
    assert not is_nccl_json({"schema": "ccctl/report/1"})


@pytest.mark.parametrize("word", ["nan", "inf", "1e999", "9" * 5000, "-1", "²"])
def test_a_time_that_is_no_number_is_refused(word):
    changed = json.loads(json.dumps(DOCUMENT))
    changed["results"][0]["out_of_place"]["time"] = word
    with pytest.raises(DataError, match=r"results\[0\]"):
        parse_nccl_json(changed, "x")


OLD = """# nThread 1 nGpus 8 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
RANKS#
#                                               out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   134217728      33554432   float     sum   6913.0   19.42   16.99  2e-07   6917.1   19.40   16.98  2e-07
   268435456      67108864   float     sum    13882   19.34   16.92  2e-07    13881   19.34   16.92  2e-07
""".replace(
    "RANKS",
    "".join(
        f"#   Rank  {rank} Pid   4242 on     gpu01 device  {rank} [0x0{rank}] Tesla V100-SXM2-32GB\n"
        for rank in range(8)
    ),
)


def test_a_table_without_a_column_of_roots_is_read_by_its_header():
    first, second = parse_nccl_text(OLD, "x").rows
    assert (first.root, first.out_of_place.time_s) == (-1, pytest.approx(6913e-6))
    # A whole number of microseconds is a time, not a root.
    assert (second.root, second.out_of_place.time_s) == (-1, pytest.approx(13882e-6))


def test_a_table_of_an_all_gather_had_no_operator_either():
    header = "#  bytes\n#  size count type time algbw busbw error time algbw busbw error\n"
    ranks = "".join(line + "\n" for line in OLD.splitlines() if "Rank" in line)
    row = "  8388608  1048576  float  212.5  39.48  34.54  0e+00  210.2  39.91  34.92  0e+00\n"
    (found,) = parse_nccl_text(ranks + header + row, "x").rows
    assert (found.collective, found.redop, found.in_place.algbw_gbs) == ("all_gather", "none", 39.91)


TAGS = {
    "mpirun": lambda line: "[1,0]<stdout>:",
    "mpirun, a blank": lambda line: "[1,0]<stdout>: ",
    "number": lambda line: "[0] ",
    "srun -l": lambda line: " 0: ",
    "srun -l, several ranks": lambda line: f"{line % 12:2}: ",
    "kubectl --prefix": lambda line: "[pod/nccl-launcher-x7/nccl] ",
    "kubectl --timestamps": lambda line: f"2026-11-20T10:11:{line % 60:02}.{line:06}Z ",
    "compose": lambda line: "nccl-1  | ",
    "date": lambda line: f"Nov 20 10:11:{line % 60:02} gpu01 job[77]: ",
}


@pytest.mark.parametrize("name", TAGS)
def test_tags_before_lines_are_cut_off(name):
    lines = (HEAD + ALL_REDUCE).splitlines(keepends=True)
    tagged = "".join(TAGS[name](number) + line for number, line in enumerate(lines))
    assert is_nccl_text(tagged)
    assert parse_nccl_text(tagged, "x") == parse_nccl_text(HEAD + ALL_REDUCE, "x")


def test_the_gpus_are_named():
    assert parse_nccl_text(OLD, "x").machine == {"gpu": "Tesla V100-SXM2-32GB"}
    device = {"rank": 0, "hostname": "gpu01", "device_info": "NVIDIA H100"}
    document = DOCUMENT | {"config": DOCUMENT["config"] | {"devices": [device]}}
    assert parse_nccl_json(document, "x").machine == {"gpu": "NVIDIA H100"}


def test_rccl_is_told_from_nccl():
    assert (
        parse_nccl_text("# rccl-tests: Version develop:5272cd1\n" + HEAD + ALL_REDUCE, "x").library == "RCCL"
    )
    assert parse_nccl_text(HEAD + ALL_REDUCE, "x").library == "NCCL"


BIG = "  1073741824  268435456  float  sum  -1  46911  22.89  45.42  0  46889  22.90  45.44  0\n"


GATHERED = "  33554432  8388608  float  none  -1  200.0  167.77  83.89  0  201.0  166.94  83.47  0\n"


def test_rows_whose_cells_are_blank_are_read_by_arithmetic():
    blank = "  33554432  4194304  float            2700.0   12.43    6.21  0  2700.0   12.43    6.21    0\n"
    (row,) = parse_nccl_text(HEAD + blank, "x").rows
    assert (row.redop, row.root, row.out_of_place.time_s) == ("none", -1, pytest.approx(2700e-6))


def test_a_row_that_contradicts_itself_is_left_out_and_named():
    wrong = ALL_REDUCE.replace("167.77", "16.77")
    report = parse_nccl_text(HEAD + ALL_REDUCE + wrong, "x")
    assert len(report.rows) == 1
    assert report.interrupted == "line 11: size / time is not its algbw"
    with pytest.raises(DataError, match="line 10: size / time is not its algbw"):
        parse_nccl_text(HEAD + wrong, "x")


@pytest.mark.parametrize("cut", [30, 40, 52, 70])
def test_a_row_that_is_cut_off_is_named(cut):
    report = parse_nccl_text(HEAD + ALL_REDUCE + ALL_REDUCE[:cut], "x")
    whole = len(ALL_REDUCE[:cut].split()) >= 9
    assert len(report.rows) == 1 + whole
    assert report.interrupted == ("" if whole else "line 11: the row is cut off")


def test_ranks_that_are_left_out_are_told_by_the_bandwidths():
    elided = (
        HEAD.replace("#  Rank  1", "...\n#  Rank  9") + "# Collective test starting: all_reduce_perf\n" + BIG
    )
    with pytest.raises(
        DataError, match=r"does not list them all, and .* of 1\.984 means 1\d\d to 1\d\d ranks"
    ):
        parse_nccl_text(elided, "x")
    report = parse_nccl_text(elided, "x", lambda: 128)
    assert (report.ranks, report.hosts) == (128, ())
    with pytest.raises(DataError, match="1\\.984"):
        parse_nccl_text(elided, "x", lambda: 64)


def test_ranks_that_contradict_the_bandwidths_are_asked_for():
    with pytest.raises(DataError, match=r"it lists 2 ranks, and busbw / algbw of 1\.984"):
        parse_nccl_text(HEAD + BIG, "x")
    assert parse_nccl_text(HEAD + BIG, "x", lambda: 128).ranks == 128


def test_several_runs_are_read_one_after_the_other():
    broadcast = ALL_REDUCE.replace("sum  -1", "none  0")
    report = parse_nccl_text(HEAD + ALL_REDUCE + FOOT + HEAD + broadcast + FOOT, "x")
    assert [row.collective for row in report.rows] == ["all_reduce", "broadcast"]
    named = "$ all_gather_perf -g 2\n" + HEAD + GATHERED + FOOT + "$ alltoall_perf\n" + HEAD + GATHERED + FOOT
    assert [row.collective for row in parse_nccl_text(named, "x").rows] == ["all_gather", "all_to_all"]
    with pytest.raises(DataError, match=r"2 runs on different ranks \(line 1: 2, line 13: 8\)"):
        parse_nccl_text(HEAD + ALL_REDUCE + FOOT + OLD, "x")


def test_a_header_without_rows_is_called_that():
    assert is_nccl_text(HEAD)
    with pytest.raises(DataError, match="line 1: the header of a run on 2 ranks, and no row"):
        parse_nccl_text(HEAD, "x")
    failed = HEAD + "gpu01: Test NCCL failure common.cu:958 'unhandled cuda error'\n"
    with pytest.raises(DataError, match="no row: gpu01: Test NCCL failure"):
        parse_nccl_text(failed, "x")
    report = parse_nccl_text(HEAD + ALL_REDUCE + HEAD, "x")
    assert "line 11: the header of a run on 2 ranks, and no row" in report.interrupted


def test_tags_inside_rows_are_cut_off():
    tagged = "".join(f"[0] {line}\n" for line in (HEAD + ALL_REDUCE).splitlines())
    tagged = tagged.replace("sum  -1", "sum  -1[0] ").replace("167.77  0", "167.77  0[0] ")
    assert parse_nccl_text(tagged, "x") == parse_nccl_text(HEAD + ALL_REDUCE, "x")


def test_rows_alone_are_read_with_the_ranks_that_are_asked_for():
    assert is_nccl_text(ALL_REDUCE)
    assert parse_nccl_text(ALL_REDUCE, "x", lambda: 2).rows[0].collective == "all_reduce"
    with pytest.raises(DataError, match="number of ranks is unknown"):
        parse_nccl_text(ALL_REDUCE, "x")


@pytest.mark.parametrize(
    ("row", "foot", "wrong"),
    [
        (ALL_REDUCE, "", ["all_reduce of 33554432 bytes (float32): 3 wrong elements in place"]),
        (ALL_REDUCE.replace("  3\n", "  0\n"), FOOT, []),
        (
            ALL_REDUCE.replace("  3\n", "  N/A\n"),
            FOOT.replace("0 OK", "4 FAILED"),
            ["4 values out of bounds"],
        ),
    ],
)
def test_wrong_results_are_told(row, foot, wrong):
    assert parse_nccl_text(HEAD + row + foot, "x").wrong_results == wrong


LINE = (
    '{{"#wrong":"{wrong}","algBw":{alg},"busBw":{bus},"gpus":4,"inPlace":{placed},'
    '"name":"AllReduce","redop":"sum","size":1024,"time":20.0,"type":"float"}}\n'
)


def test_lines_of_json_are_read():
    lines = LINE.format(wrong=0, alg=0.0512, bus=0.0768, placed=0)
    lines += LINE.format(wrong=7, alg=0.0512, bus=0.0768, placed=1)
    assert is_rccl_lines(lines) and not is_rccl_lines(ALL_REDUCE)
    report = parse_rccl_lines(lines, "x", lambda: 4)
    (row,) = report.rows
    assert (report.ranks, row.collective, row.out_of_place.wrong, row.in_place.wrong) == (
        4,
        "all_reduce",
        0,
        7,
    )
    with pytest.raises(DataError, match="which hosts their 4 GPUs"):
        parse_rccl_lines(lines, "x", lambda: 8)
    with pytest.raises(DataError, match="line 3"):
        parse_rccl_lines(lines + LINE.format(wrong="x", alg=1, bus=1, placed=0), "x", lambda: 4)


@pytest.mark.parametrize(
    "filler", ["x" * 400_000, " " * 400_000, "1 " * 200_000, "\n" * 400_000, "a #Rank 0\n" * 9999]
)
def test_a_long_text_without_a_table_is_refused_soon(filler):
    assert not is_nccl_text("algbw\n" + filler)
    assert is_nccl_text(filler + "\n" + HEAD + ALL_REDUCE)


def test_ranks_whose_first_signs_markdown_ate_are_listed():
    eaten = (
        HEAD.replace("# nThread", "nThread").replace("# Using", "Using").replace("#  Rank  0", "  Rank  0")
    )
    assert parse_nccl_text("```\n" + eaten + ALL_REDUCE, "x").ranks == 2
    bare = "\n".join(line.removeprefix("#") for line in (HEAD + ALL_REDUCE + FOOT).splitlines())
    assert is_nccl_text(bare)
    assert parse_nccl_text(bare, "x").hosts == ("gpu01", "gpu02")
    two = parse_nccl_text(bare + "\n" + bare, "x")
    assert len(two.rows) == 2


@pytest.mark.parametrize(
    ("cells", "kinds"),
    [
        ("float none -1 10.0 100.0 50.0 N/A 10.0 100.0 50.0 N/A", "all_gather or all_to_all"),
        ("float sum -1 10.0 100.0 100.0 N/A 10.0 100.0 100.0 N/A", "all_reduce or sendrecv"),
        ("float none 0 10.0 100.0 50.0 0 10.0 100.0 50.0 0", "gather or scatter"),
    ],
)
def test_columns_of_several_collectives_are_asked_about(cells, kinds):
    line = f"  1000000  250000  {cells}\n"
    with pytest.raises(
        DataError, match=f"line 1: no test is named, and the columns are those of {kinds}"
    ) as caught:
        parse_nccl_text(HEAD + line, "x")
    first, _, second = kinds.partition(" or ")
    assert "Name the collective" in caught.value.hint
    for kind in (first, second.replace("sendrecv", "all_to_next")):
        assert parse_nccl_text(HEAD + line, "x", kind=kind).rows[0].collective == kind


def test_a_named_test_that_cannot_have_these_bandwidths_is_passed_over():
    script = "+ for test in reduce_scatter_perf all_reduce_perf all_gather_perf\n"
    report = parse_nccl_text(script + HEAD + ALL_REDUCE, "x")
    assert report.rows[0].collective == "all_reduce"
    named = parse_nccl_text("$ all_gather_perf\n" + HEAD + ALL_REDUCE, "x")
    assert named.rows[0].collective == "all_reduce"
    assert "all_gather is named, but busbw / algbw is that of" in named.notes[0]


def test_of_several_runs_each_note_says_of_which():
    broadcast = ALL_REDUCE.replace("sum  -1", "none  0")
    notes = parse_nccl_text(HEAD + ALL_REDUCE + FOOT + HEAD + broadcast + FOOT, "x").notes
    assert [note.partition(":")[0] for note in notes] == ["line 1", "line 13"]


def test_wrong_results_come_before_what_keeps_a_log_from_being_judged():
    elided = HEAD.replace("#  Rank  1", "...\n#  Rank  9")
    with pytest.raises(
        WrongResultsError,
        match=r"x: line 11: 3 wrong elements of 33554432 bytes in place\nx: .*list them all",
    ):
        parse_nccl_text(elided + ALL_REDUCE, "x")
    with pytest.raises(WrongResultsError, match=r"x: 4 values out of bounds\nx: line 1: .*no row"):
        parse_nccl_text(HEAD + "# Out of bounds values : 4 FAILED\n", "x")


FIRST = """ nThread 1 nGpus 2 minBytes 9 maxBytes 33554432 step: 1048576(bytes) warmup iters: 5 iters: 20
# NCCL Tests compiled with NCCL 2.1
# Using devices
#   Rank  0 on      gpu01 device  0 [0x04] Tesla P100-SXM2-16GB
#   Rank  1 on      gpu01 device  1 [0x06] Tesla P100-SXM2-16GB

#                                                 out-of-place                    in-place
#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res
     1048576        262144   float     sum    0.131   8.00   8.00    0e+00    0.128   8.19   8.19    0e+00
    33554432       8388608   float     sum    2.097  16.00  16.00    0e+00    2.080  16.13  16.13    0e+00
 Out of bounds values : 0 OK
 Avg bus bandwidth    : 12.0
"""


def test_the_first_tables_had_milliseconds():
    report = parse_nccl_text(FIRST, "x")
    assert (report.ranks, report.hosts, report.interrupted) == (2, ("gpu01",), "")
    assert [row.out_of_place.time_s for row in report.rows] == [pytest.approx(131e-6), pytest.approx(2097e-6)]
    assert [row.collective for row in report.rows] == ["all_reduce"] * 2
    assert report.wrong_results == []
    failed = FIRST.replace("0 OK", "248 FAILED")
    assert parse_nccl_text(failed, "x").wrong_results == ["248 values out of bounds"]


def test_an_asterisk_of_rccl_tests_is_a_wrong_result():
    marked = OLD.replace("2e-07\n", "3e+00*\n", 1)
    report = parse_nccl_text(marked, "x")
    assert len(report.rows) == 2
    assert report.wrong_results == [
        "line 14: 134217728 bytes in place: an error beyond the threshold (3e+00*)"
    ]


def test_a_table_in_place_alone_is_one():
    head = "$ all_reduce_perf -O 0\n" + HEAD.replace(
        "out-of-place                       in-place", "in-place"
    )
    head = head.replace("#wrong     time   algbw   busbw  #wrong", "#wrong")
    (row,) = parse_nccl_text(
        head + "  33554432  8388608  float  sum  -1  200.0  167.77  167.77  3\n", "x"
    ).rows
    assert row.out_of_place is None and row.in_place.wrong == 3


@pytest.mark.parametrize(
    "line",
    [
        "mpirun noticed that process rank 3 with PID 77 on node gpu02 exited on signal 9 (Killed).",
        "srun: error: gpu02: task 3: Killed",
        "gpu01: Test NCCL failure common.cu:958 'unhandled cuda error'",
    ],
)
def test_a_run_that_ends_badly_is_interrupted(line):
    report = parse_nccl_text(HEAD + ALL_REDUCE + line + "\n", "x")
    assert report.interrupted == f"the run ended with {line!r}"


def test_what_nccl_tests_calls_failed_itself_is_told():
    text = HEAD + ALL_REDUCE + FOOT.replace("120.5", "120.5 FAILED") + "# error: remote process exited\n"
    report = parse_nccl_text(text, "x")
    assert report.interrupted == "the library's last error: remote process exited"
    assert "bandwidth, 120.5 GB/s, is below NCCL_TESTS_MIN_BW" in report.notes[-1]
    assert parse_nccl_text(HEAD + ALL_REDUCE + FOOT, "x").interrupted == ""
    told = {
        "out_of_bounds": {"count": 3, "okay": False},
        "average_bus_bandwidth": {"bandwidth": 120.5, "okay": False},
        "errors": ["remote process exited"],
    }
    report = parse_nccl_json(DOCUMENT | told, "x")
    assert (report.corrupt, report.interrupted) == (
        "3 values out of bounds",
        "the library's last error: remote process exited",
    )
    assert "failed: its average bus bandwidth, 120.5 GB/s" in report.notes[-1]
    well = {"average_bus_bandwidth": {"bandwidth": 1, "okay": "unchecked"}, "errors": [""]}
    report = parse_nccl_json(DOCUMENT | well, "x")
    assert (report.notes, report.interrupted) == ((), "")


@pytest.mark.parametrize(("count", "kind"), [(4096, "all_reduce"), (2048, "reduce_scatter")])
def test_elements_of_all_ranks_or_of_one_tell_the_collective_where_digits_do_not(count, kind):
    line = f"  16384  {count}  float  sum  -1  174.9  0.09  0.09  0  174.9  0.09  0.09  0\n"
    assert parse_nccl_text(HEAD + line, "x").rows[0].collective == kind


def test_a_run_whose_first_line_is_lost_begins_after_the_end_of_the_one_before():
    whole = (HEAD + ALL_REDUCE + FOOT).replace("166.94  3", "166.94  0")
    cut = whole.partition("\n")[2]
    for right in (whole + "```\n" + cut, cut + whole, cut + cut):
        report = parse_nccl_text(right, "log")
        assert (report.ranks, len(report.rows)) == (2, 2)
    tables = right.replace("#  Rank", "#  -")
    assert len(parse_nccl_text(tables, "log", lambda: 2).rows) == 2


def test_a_gpu_without_a_name_does_not_take_the_next_rank_for_one():
    report = parse_nccl_text(
        (HEAD + ALL_REDUCE + FOOT).replace("166.94  3", "166.94  0").replace(" NVIDIA H100", " "), "log"
    )
    assert (report.ranks, report.hosts, report.machine) == (2, ("gpu01", "gpu02"), {})


@pytest.mark.parametrize(
    ("told", "becomes", "said"),
    [
        ('"algBw"', '"alg"', "line 1: .*: algBw is missing"),
        ('"AllReduce"', '"AllThings"', "line 1: .*: expected a collective, found 'allthings'"),
        ('"gpus":4', '"gpus":[]', r"line 1: .*: expected a whole number, found '\[\]'"),
    ],
)
def test_a_line_of_json_that_cannot_be_is_told_in_words(told, becomes, said):
    line = LINE.format(wrong=0, alg=0.0512, bus=0.0768, placed=0)
    assert told in line
    with pytest.raises(DataError, match=said) as caught:
        parse_rccl_lines(line.replace(told, becomes), "x", lambda: 4)
    assert "Error(" not in str(caught.value)


def test_an_entry_without_a_time_is_told_in_words():
    wrong = copy.deepcopy(DOCUMENT)
    del wrong["results"][0]["count"]
    with pytest.raises(DataError, match=r"results\[0\]: .*: count is missing"):
        parse_nccl_json(wrong, "x")


def test_an_unnamed_sendrecv_is_called_by_the_name_of_its_test():
    rows = "  33554432  8388608  float  sum  -1  200.0  167.77  167.77  0  201.0  166.94  166.94  N/A\n"
    four = HEAD.replace(
        "#\n#    ",
        "".join(
            f"#  Rank  {rank} Group  0 Pid   4242 on     gpu0{rank + 1} device  0 [0000:07:00] NVIDIA H100\n"
            for rank in (2, 3)
        )
        + "#\n#    ",
        1,
    )
    report = parse_nccl_text(four + rows + FOOT, "log")
    assert report.rows[0].collective == "all_to_next"
    assert report.notes == ("no test is named: its columns are those of sendrecv (all_to_next)",)


OF_BENCH = """# all_reduce on 4 ranks, vm
# mpi: Open MPI v5.0.11
# 20 iterations after 3 to warm up; times are medians, of the slowest rank; bandwidth in GB/s
                                out of place                         predicted             mpi
size (B)  count   type  redop root time (us) algbw busbw #wrong time (us) /measured  time (us) busbw  ours
   65536  16384  float32  sum   -1    291.68  0.22  0.34      0     78.61     0.27x     339.66  0.29  1.16x
# Out of bounds values : 0 OK
"""


@pytest.mark.parametrize("text", [OF_BENCH, f"$ ccctl bench\n{OF_BENCH}{HEAD}{ALL_REDUCE}"])
def test_a_printed_table_of_ccctl_bench_is_refused(text: str):
    assert is_nccl_text(text)
    with pytest.raises(DataError, match="that ccctl bench prints") as found:
        parse_nccl_text(text, "bench.txt")
    assert not isinstance(found.value, WrongResultsError)
    assert "-o FILE" in found.value.hint
