"""The benchmark that stands beside TACOS's tables still reads its command line and measures a row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
    assert broadcast.count("3.90x") == 2
    assert gather.count("1.67x") == 2


def test_quick_leaves_out_the_large_ones() -> None:
    done = printed("--quick", "Table II torus")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1


def test_an_unknown_option_is_refused() -> None:
    done = printed("--quik")
    assert done.returncode == 1
    assert "usage" in done.stderr


def test_mechanisms_need_their_seconds():
    done = printed("--mechanisms", "--quick")
    assert done.returncode == 1
