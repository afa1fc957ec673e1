"""The benchmark that stands beside TACOS's tables still reads its command line and measures a row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tacos_tables
from limits import HANG_S

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "tacos_tables.py"


def printed(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return the printed output of the script, run as a user would."""
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)


def test_a_row_stands_beside_the_papers() -> None:
    done = printed("--quick", "Table IV")
    assert done.returncode == 0, done.stderr
    head, broadcast, gather = done.stdout.splitlines()
    assert head.split()[:3] == ["where", "network", "collective"]
    assert broadcast.split()[3] == "broadcast"
    # Direct sends take 39 and 30 steps, the best 10 and 18 (the paper's Table IV).
    # The last two words are a ratio of measured times and a remark.
    assert broadcast.split()[:-2].count("3.90x") == 2
    assert gather.split()[:-2].count("1.67x") == 2


def test_quick_leaves_out_the_large_ones(capsys: pytest.CaptureFixture[str]) -> None:
    tacos_tables.main("--quick", "Table II torus")
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize("given", [("--quik",), ("--mechanisms", "--quick")])
def test_unknown_options_and_mechanisms_without_seconds_are_refused(given: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit, match="usage"):
        tacos_tables.main(*given)
