"""Speeds of ethtool's link modes."""

import re
from pathlib import Path

import pytest

from probes.health.link_modes import most_speed_mbit, speed_of_modes

HEADER = Path("/usr/include/linux/ethtool.h")


@pytest.mark.parametrize(
    ("bits", "speed"),
    [
        ([5, 6, 12, 31, 36], 100_000),
        ([0, 1, 2, 3, 6, 7, 13], None),
        ([62, 89], 400_000),
        ([93], 800_000),
        ([120], 800_000),
        ([49, 50, 51, 74], None),
        ([], None),
    ],
)
def test_the_highest_speed_counts(bits, speed):
    assert speed_of_modes(sum(1 << bit for bit in bits)) == speed


@pytest.mark.skipif(not HEADER.exists(), reason="the kernel's headers are not installed")
def test_every_mode_of_the_kernels_header_has_its_speed():
    modes = re.findall(r"ETHTOOL_LINK_MODE_(\w+)_BIT\s*= (\d+)", HEADER.read_text())
    assert len(modes) > 50
    for name, bit in modes:
        speed = re.match(r"(\d+)base", name)
        expected = int(speed[1]) if speed and int(speed[1]) >= 1000 else None
        assert speed_of_modes(1 << int(bit)) == expected, name


def test_an_interface_that_is_not_there_or_says_nothing_has_no_speed():
    assert most_speed_mbit("lo") is None
    assert most_speed_mbit("no-such-interface-of-any-kind") is None
