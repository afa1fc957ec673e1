"""Tables of the OSU benchmarks as reports."""

import pytest

from exec.benchmark.foreign.osu import is_osu_text, parse_osu_text
from probes.base.errors import DataError, WrongResultsError

PLAIN = """
some launcher says hello
# OSU MPI Allreduce Latency Test v5.6.3
# Size       Avg Latency(us)
4                       1.48
1048576               927.10
done 1.5
"""
FULL = """# OSU MPI Allreduce Latency Test v7.5
# Datatype: MPI_INT.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
100000               1181.07           1168.71           1188.92         100
"""


def table(title, rows="1024      2.00\n"):
    return f"# OSU MPI {title} Latency Test v7.5\n# Datatype: MPI_CHAR.\n# Size   Avg Latency(us)\n{rows}"


PAIRS = "# OSU MPI Latency Test v5.8\n# Size  Latency (us)\n4  0.8\n8  0.9\n"
PUTS = "# OSU MPI_Put Latency Test v5.8\n# Window creation: MPI_Win_create\n# Size  Latency (us)\n4  0.5\n"


def test_rows_are_sizes_and_average_times():
    report = parse_osu_text(PLAIN, "osu.txt", lambda: 4)
    assert (report.ranks, report.executor, report.library) == (4, "osu", "OSU MPI 5.6.3")
    assert [(row.size_bytes, row.out_of_place.time_s) for row in report.rows] == [
        (4, pytest.approx(1.48e-6)),
        (1 << 20, pytest.approx(927.10e-6)),
    ]
    large = report.rows[1]
    assert (large.collective, large.dtype, large.redop) == ("all_reduce", "float32", "sum")
    assert large.out_of_place.busbw_gbs == pytest.approx(1.5 * (1 << 20) / 927.10e-6 / 1e9)
    assert report.problems() == []


def test_the_printed_type_and_more_columns_are_read():
    [row] = parse_osu_text(FULL, "osu.txt", lambda: 4).rows
    assert (row.dtype, row.out_of_place.time_s) == ("int32", pytest.approx(1181.07e-6))


@pytest.mark.parametrize(
    ("title", "kind", "size_bytes"),
    [
        ("Allgather", "all_gather", 4096),
        ("All-to-All Personalized Exchange", "all_to_all", 4096),
        ("Gather", "gather", 4096),
        ("Scatter", "scatter", 4096),
        ("Reduce_scatter", "reduce_scatter", 1024),
        ("Broadcast", "broadcast", 1024),
        ("Reduce", "reduce", 1024),
    ],
)
def test_sizes_are_of_the_whole_as_nccl_tests_counts_them(title, kind, size_bytes):
    [row] = parse_osu_text(table(title), "osu.txt", lambda: 4).rows
    assert (row.collective, row.size_bytes) == (kind, size_bytes)


def test_tables_follow_each_other():
    report = parse_osu_text(PLAIN + table("Broadcast"), "osu.txt", lambda: 2)
    assert [row.collective for row in report.rows] == ["all_reduce", "all_reduce", "broadcast"]


@pytest.mark.parametrize(
    "text",
    [
        "# OSU Experiments\n\n1   2.0\n",
        "we ran osu_allreduce\n4   1.0\n",
        "",
    ],
)
def test_other_texts_are_not_taken_for_tables(text):
    assert not is_osu_text(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (table("Non-blocking Allreduce"), "Non-blocking Allreduce Latency Test: expected a collective"),
        (table("Allreduce", f"4   {'9' * 30}.0\n"), "line 4: expected a size and microseconds"),
        (PAIRS, "OSU MPI Latency Test: expected a collective"),
        (table("Allreduce", ""), "line 1: the header of OSU MPI Allreduce Latency Test, and no row"),
        (
            table("Allreduce", "[gpu01] MPI_ABORT was invoked on rank 3\n"),
            "and no row: .gpu01. MPI_ABORT was invoked",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(text, said):
    assert is_osu_text(text)
    with pytest.raises(DataError, match=said):
        parse_osu_text(text, "osu.txt", lambda: 4)


@pytest.mark.parametrize("other", [PAIRS, PUTS, table("Non-blocking Allreduce"), table("Allgatherv")])
def test_tables_of_other_benchmarks_are_left_out_and_named(other):
    report = parse_osu_text(PLAIN + other + table("Broadcast"), "osu.txt", lambda: 2)
    assert [row.collective for row in report.rows] == ["all_reduce", "all_reduce", "broadcast"]
    title = next(line for line in other.splitlines() if "Test" in line)[2:].rpartition(" v")[0]
    (note,) = report.notes
    assert title in note


def test_the_command_before_a_table_says_how_many_ranks_ran():
    started = "mpirun -N 2 -np 16 -map-by ppr:2:node /opt/omb/osu_allreduce -m 4:1024\n" + PLAIN
    assert parse_osu_text(started, "osu.txt").ranks == 16
    assert parse_osu_text(started, "osu.txt", lambda: 16).ranks == 16
    with pytest.raises(DataError, match="16 ranks were started, and the network has 4"):
        parse_osu_text(started, "osu.txt", lambda: 4)
    other = "srun --ntasks=8 osu_bcast\n" + table("Broadcast")
    with pytest.raises(DataError, match=r"different numbers of ranks .line 4: 16, line 10: 8"):
        parse_osu_text(started + other, "osu.txt")


def test_a_failed_validation_comes_before_what_keeps_a_table_from_being_judged():
    failed = table("Allreduce", "4   1.0   Pass\n8   1.1   Fail\n")
    assert parse_osu_text(failed, "x", lambda: 4).corrupt == "validation failed: line 5, size 8"
    with pytest.raises(WrongResultsError, match=r"x: validation failed: line 5, size 8\n.*how many ranks"):
        parse_osu_text(failed, "x")
    error = (
        table("Allreduce") + "DATA VALIDATION ERROR: osu_allreduce exited with status 1 on message size 8.\n"
    )
    assert "message size 8" in parse_osu_text(error, "x", lambda: 4).corrupt


def test_a_run_that_failed_on_the_way_is_interrupted():
    ended = (
        table("Allreduce") + "mpirun noticed that process rank 3 with PID 7 on node n1 exited on signal 9.\n"
    )
    report = parse_osu_text(ended, "x", lambda: 4)
    assert len(report.rows) == 1 and "process rank 3" in report.interrupted


def test_a_title_that_markdown_escaped_is_a_title():
    escaped = table("All-to-All Personalized Exchange").replace("# ", "\\# ")
    assert is_osu_text(escaped)
    (row,) = parse_osu_text(escaped, "x", lambda: 4).rows
    assert (row.collective, row.dtype) == ("all_to_all", "int8")
