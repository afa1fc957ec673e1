"""A report as a table: which columns are shown, and how they stand."""

from dataclasses import replace

import pytest

from ccctl.render.text.report import ColumnTable, draw_foot, draw_head, summary
from ccctl.render.units import bandwidth
from exec.benchmark.report import Measurement


def measured(time_s):
    return Measurement(time_s, time_s, time_s, 1, 1.0, 2.0, 0, mean_s=time_s)


@pytest.fixture
def rows(samples):
    row = replace(
        samples["report"].rows[0],
        out_of_place=measured(0.001),
        in_place=measured(0.002),
        predicted_s=0.0005,
        peers={"mpi": measured(0.003), "mpi:recursive_doubling": measured(0.004)},
    )
    return [replace(row, program=f"ccctl: {name}") for name in ("ring", "bidirectional")]


WIDEST = {"size (B)": "16777216", "count": "4194304", "type": "float32", "program": "ccctl: bidirectional"}


@pytest.mark.parametrize("widest", [None, WIDEST])
@pytest.mark.parametrize("width", [70, 80, 100, 120, 160, 200, 1000])
def test_a_narrow_table_leaves_out_what_tells_least_and_says_so(rows, widest, width):
    table = ColumnTable(rows, widest, width)
    lines = table.lines(rows)
    assert max(map(len, lines)) <= width
    heads = lines[1].split()
    # The size, the first time and bandwidth, and the ratio to each peer stay in any case.
    assert heads[0] == "size" and "busbw" in heads and heads.count("ours") >= 2
    notes = list(table.notes())
    assert bool(notes) == (lines != ColumnTable(rows, widest).lines(rows))
    assert not notes or "root" in notes[0]


def test_the_program_is_shown_if_there_are_several_or_it_was_chosen(rows):
    def heads(names):
        named = [replace(rows[0], program=name) for name in names]
        return ColumnTable(named).lines(named)[1]

    assert "program" not in heads(["ring.py"])
    assert "program" in heads(["ccctl: ring"])
    assert "program" in heads(["ring.py", "tree.json"])


def test_a_line_for_each_peer_says_at_which_sizes_who_is_faster(rows, samples, capsys):
    def row(size, peer_s, crowded=""):
        return replace(rows[0], size_bytes=size, peers={"mpi": measured(peer_s)}, crowded=crowded)

    several = [row(1024, 0.003), row(2048, 0.0005), row(4096, 0.00101), row(8192, 0.003, "4 ranks, 2 cores")]
    draw_foot(replace(samples["report"], rows=tuple(several)))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# beside mpi")]
    assert line.partition(": ")[2] == (
        "ccctl is faster at 1K; mpi is faster at 2K; as fast at 4K; cannot tell which is faster at 8K"
    )


def test_wide_tables_have_all_columns_and_narrow_ones_their_cells_under_their_names(rows):
    assert list(ColumnTable(rows).notes()) == []
    everything = ColumnTable(rows).lines(rows)
    assert "root" in everything[1] and "predicted" in everything[0]
    names, heads, first, _ = ColumnTable(rows, WIDEST, 80).lines(rows)
    for line in (heads, first):
        assert len(line.split("  ")) >= 6
    at = heads.index("time (us)")
    assert names.index("out of place") == at
    assert first[: at + len("time (us)")].endswith("1000.00")
    assert heads.rindex("ours") + len("ours") == len(first)
    assert first.endswith("4.00x")


@pytest.mark.parametrize(
    ("gbs", "shown"),
    [
        (0.0, "0.00"),
        (0.0004, "0.0004"),
        (0.00715, "0.00715"),
        (0.0991, "0.0991"),
        (0.1, "0.10"),
        (182.4, "182.40"),
    ],
)
def test_slow_networks_keep_the_digits_of_their_bandwidth(gbs, shown):
    assert bandwidth(gbs) == shown


def test_names_of_groups_do_not_touch(rows):
    for width in (70, 80, 100, 140, 300):
        names = ColumnTable(rows, WIDEST, width).lines(rows)[0]
        assert "mpi  " in names and names.endswith("  mpi:recursive_doubling")


def test_a_row_whose_ranks_share_cores_says_so_in_place_of_ratios(rows, samples, capsys):
    crowded = [replace(row, crowded="4 ranks share 2 cores") for row in rows]
    lines = ColumnTable(crowded).lines(crowded)
    assert all(line.split().count("cores") == 3 and "x" not in line.split()[-1] for line in lines[2:])
    report = replace(samples["report"], rows=tuple(crowded))
    draw_foot(report)
    why = "# ours: cores          : no ratio, because ranks waited for cores (4 ranks share 2 cores)"
    assert why in capsys.readouterr().out
    told = summary(report)["rows"][0]
    assert told["achieved"] is None and set(told["peers_over_ours"].values()) == {None}
    assert told["why_no_ratio"] == dict.fromkeys(["predicted", *rows[0].peers], "cores")


def test_a_row_whose_iterations_differ_too_much_says_so_in_place_of_ratios(rows, samples, capsys):
    unsteady = replace(rows[0], out_of_place=replace(rows[0].out_of_place, p99_s=0.9))
    assert ColumnTable([unsteady]).lines([unsteady])[-1].split().count("spread") == 3
    draw_foot(replace(samples["report"], rows=(unsteady,)))
    assert "# ours: spread         : no ratio, because iterations differ too much" in capsys.readouterr().out
    draw_foot(replace(samples["report"], rows=(rows[0],)))
    assert "# spread" not in capsys.readouterr().out


def test_an_uneven_collective_is_named_and_its_count_explained(samples, capsys):
    (row,) = samples["report"].rows
    uneven = replace(samples["report"], rows=(replace(row, collective="custom"),), label="uneven all_gather")
    draw_head(uneven)
    head = capsys.readouterr().out.splitlines()
    assert head[0].startswith("# uneven all_gather on ")
    assert "# size: all blocks of the fullest buffer; count: elements of the largest block" in head
    draw_head(samples["report"])
    assert "largest block" not in capsys.readouterr().out
