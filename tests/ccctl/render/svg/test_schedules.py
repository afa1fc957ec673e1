import re
from xml.etree import ElementTree

import pytest

from ccctl.render.svg.drawing import document
from ccctl.render.svg.schedules import schedule as pictures

SVG = "{http://www.w3.org/2000/svg}"


def test_a_curve_for_each_class_and_a_lane_for_each_rank(schedule):
    root = ElementTree.fromstring(document([*pictures(schedule, 960)]))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    # In a ring every link and every NIC is busy but for the time in flight.
    assert [text.partition(":")[0] for text in texts if "mean 9" in text] == [
        "links (pairs of ranks; the ports below are the bottleneck)",
        "ports",
    ]
    assert [text for text in texts if text.startswith("rank")] == [f"rank {rank}" for rank in range(4)]
    assert texts.count("100 %") == 2


def test_ticks_are_at_round_times(schedule):
    unit_s = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    (drawn,) = pictures(schedule, 960)
    found = re.findall(r">([\d.]+) (s|ms|us|ns)<", " ".join(drawn.parts))
    times_s = [float(value) * unit_s[unit] for value, unit in found]
    assert len(times_s) >= 3
    assert times_s == pytest.approx([times_s[0] * number for number in range(1, len(times_s) + 1)])
    assert f"{times_s[0]:e}"[:8] in {"1.000000", "2.000000", "5.000000"}
