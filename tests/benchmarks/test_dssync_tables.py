"""The benchmark beside DS-Sync's tables prints a row for each method, and refuses what it does not know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dssync_tables
import pytest
from limits import HANG_S

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "dssync_tables.py"


def printed(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return the printed output of the script, run as a user would."""
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)


def test_tables_stand_beside_the_papers() -> None:
    done = printed()
    assert done.returncode == 0, done.stderr
    for title in ("Table I,", "Table II,", "Table III,", "Table IV,", "Table V,", "Lemma IV.1"):
        assert title in done.stdout
    # The cost model agrees with the formulas wherever these are consistent.
    rows = [
        line.split() for line in done.stdout.splitlines() if line.startswith(("  ring ", "  hierarchical  "))
    ]
    assert rows
    for row in rows:
        numbers = [float(word) for word in row if word.replace(".", "").isdigit()]
        assert max(numbers) == min(numbers), row
    [ours] = [line for line in done.stdout.splitlines() if "2 x 4 representatives" in line]
    assert "0.1975" in ours
    assert done.stdout.count("never agree") == 2


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
    done = printed("--quick")
    assert done.returncode == 1
    assert "usage" in done.stderr
