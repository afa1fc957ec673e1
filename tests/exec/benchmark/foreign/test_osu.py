"""Tables of the OSU benchmarks as reports."""

import pytest

from exec.benchmark.foreign.osu import is_osu_text, parse_osu_text
from probes.errors import DataError

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


def test_rows_are_sizes_and_average_times():
    report = parse_osu_text(PLAIN, "osu.txt", 4)
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
    [row] = parse_osu_text(FULL, "osu.txt", 4).rows
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
    [row] = parse_osu_text(table(title), "osu.txt", 4).rows
    assert (row.collective, row.size_bytes) == (kind, size_bytes)


def test_tables_follow_each_other():
    report = parse_osu_text(PLAIN + table("Broadcast"), "osu.txt", 2)
    assert [row.collective for row in report.rows] == ["all_reduce", "all_reduce", "broadcast"]


@pytest.mark.parametrize(
    "text",
    [
        "# OSU MPI Bandwidth Test v7.5\n# Size Bandwidth (MB/s)\n1   2.0\n",
        "# OSU MPI Latency Test v7.5\n# Size Latency (us)\n1   2.0\n",
        "# OSU MPI Allreduce Latency Test v7.5\n# Size\n",
        "",
    ],
)
def test_other_texts_are_not_taken_for_tables(text):
    assert not is_osu_text(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (table("Non-blocking Allreduce"), "Non-blocking Allreduce Latency Test v7.5"),
        (table("Allreduce", f"4   {'9' * 30}.0\n"), "expected a size and microseconds"),
    ],
)
def test_what_cannot_be_read_is_refused(text, said):
    assert is_osu_text(text)
    with pytest.raises(DataError, match=said):
        parse_osu_text(text, "osu.txt", 4)
