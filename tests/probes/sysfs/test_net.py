"""Rates of network ports."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.sysfs.net import read_nics


@pytest.mark.parametrize(
    ("rate", "speed_mbit"),
    [
        ("100 Gb/sec (4X EDR)", 100_000),
        ("2.5 Gb/sec (1X SDR)", 2_500),
        (f"{'9' * 400} Gb/sec", None),
        (f"1.{'9' * 400} Gb/sec", None),
    ],
)
def test_the_rate_of_an_rdma_port_is_that_of_its_attribute(
    tmp_path: Path, rate: str, speed_mbit: int | None
) -> None:
    """A rate that no float holds is no rate."""
    port = tmp_path / "class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "rate").write_text(rate + "\n")
    (port / "state").write_text("4: ACTIVE\n")
    (nic,) = read_nics(tmp_path, {}, "sysfs")
    assert nic.speed_mbit == speed_mbit
