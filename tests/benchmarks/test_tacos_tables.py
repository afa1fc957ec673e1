"""The benchmark that stands beside TACOS's tables still reads its command line and measures a row."""

from __future__ import annotations

import pytest
import tacos_tables


def test_a_row_stands_beside_the_papers(capsys: pytest.CaptureFixture[str]) -> None:
    tacos_tables.main("--quick", "Table IV")
    head, broadcast, gather = capsys.readouterr().out.splitlines()
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
