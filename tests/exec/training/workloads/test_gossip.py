"""Gossip on the dynamic exponential graph, on four ranks of this host."""

from __future__ import annotations

from pathlib import Path

import pytest

from exec.launcher.run import launch

pytest.importorskip("torch")
# The start of ranks compiles some loops if none has been compiled yet.
LIMIT_S = 300


def test_ranks_average_with_the_one_before_and_agree_after_two_iterations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "helpers"))
    found = launch("gossip_ranks:means", 3, ranks=4, wires="sockets", timeout_s=LIMIT_S)
    first = [(rank + (rank - 1) % 4) / 2 for rank in range(4)]
    assert found == [first, [1.5] * 4, [1.5] * 4]
