"""Networks drawn for the table of sizes, cells that are kept between runs, and the picture."""

import re
import sys

import pytest
import sizes


@pytest.mark.parametrize("seed", range(1, 16))
def test_what_is_drawn_is_whole_and_the_same_each_time(seed):
    network = sizes.drawn(seed)
    assert network.problems() == []
    assert 6 <= network.ranks <= 40
    again = sizes.drawn(seed)
    assert (again.name, again.src.tolist(), again.beta_s_per_byte.tolist()) == (
        network.name,
        network.src.tolist(),
        network.beta_s_per_byte.tolist(),
    )


def test_five_seeds_in_a_row_draw_five_kinds():
    names = [sizes.drawn(seed).name.partition(" ")[2] for seed in range(1, 6)]
    assert len({re.sub(r"[0-9]+", "", name) for name in names}) == 5


def test_cells_are_measured_once_and_drawn(tmp_path, capsys, monkeypatch):
    cells, picture = tmp_path / "cells.jsonl", tmp_path / "percent.svg"
    asked = ["sizes", "--networks", "ring:4", "--random", "0", "--collectives", "all_gather"]
    monkeypatch.setattr(sys, "argv", [*asked, "--sizes", "1K,16K", "--cells", str(cells), "--below", "101"])
    sizes.main()
    printed = capsys.readouterr().out
    assert "| ring:4 | all_gather |" in printed
    assert "2 of 2 cells are below 101 %" in printed
    monkeypatch.setattr(sizes, "measured", lambda *_: pytest.fail("a known cell is measured again"))
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--picture", str(picture)])
    sizes.main()
    assert capsys.readouterr().out == printed
    found = list(sizes.known_cells(cells).values())
    assert [cell.size_bytes for cell in found] == [1 << 10, 1 << 14]
    assert all(0 < cell.percent <= 100 for cell in found)
    assert "ring:4" in picture.read_text()
