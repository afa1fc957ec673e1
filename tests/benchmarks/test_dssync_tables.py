"""The benchmark beside DS-Sync's tables prints a row for each method, and refuses what it does not know."""

from __future__ import annotations

import dssync_tables
import pytest


def test_tables_stand_beside_the_papers(capsys: pytest.CaptureFixture[str]) -> None:
    dssync_tables.main()
    printed = capsys.readouterr().out
    for title in ("Table I,", "Table II,", "Table III,", "Table IV,", "Table V,", "Lemma IV.1"):
        assert title in printed
    # The cost model agrees with the formulas wherever these are consistent.
    rows = [line.split() for line in printed.splitlines() if line.startswith(("  ring ", "  hierarchical  "))]
    assert rows
    for row in rows:
        numbers = [float(word) for word in row if word.replace(".", "").isdigit()]
        assert max(numbers) == min(numbers), row
    [ours] = [line for line in printed.splitlines() if "2 x 4 representatives" in line]
    assert "0.1975" in ours
    assert printed.count("never agree") == 2


def test_gradients_stay_below_the_bound_of_the_theorem_where_racks_mix() -> None:
    ranks, racks = 8, (range(4), range(4, 8))
    layout = dssync_tables.RackLayout(tuple(map(tuple, racks)))
    periods = {
        "one group": ((tuple(range(ranks)),),),
        "ds-sync": dssync_tables.pattern_named("representatives", layout),
        "apart": (layout.racks,),
    }
    found = {
        name: dssync_tables.descended(
            ranks, [dssync_tables.mixing_product(ranks, (one,)) for one in divisions], 1024
        )
        for name, divisions in periods.items()
    }
    mean, worst, bound = found["one group"]
    assert mean == pytest.approx(worst)
    assert found["ds-sync"][0] == pytest.approx(mean, rel=0.02)
    assert worst < found["ds-sync"][1] < 1.1 * worst < found["apart"][1]
    assert max(found["ds-sync"]) == bound


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(SystemExit, match="usage"):
        dssync_tables.main("--quick")
