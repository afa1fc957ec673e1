from xml.etree import ElementTree

from ccctl.render.svg.drawing import document
from ccctl.render.svg.schedule import pictures

SVG = "{http://www.w3.org/2000/svg}"


def test_a_curve_for_each_class_and_a_lane_for_each_rank(schedule):
    root = ElementTree.fromstring(document(pictures(schedule, 960)))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    # In a ring every link and every NIC is busy but for the time in flight.
    assert [text.partition(":")[0] for text in texts if "mean 9" in text] == ["links", "ports"]
    assert [text for text in texts if text.startswith("rank")] == [f"rank {rank}" for rank in range(4)]
    assert len([path for path in root.iter(f"{SVG}path") if path.get("fill") != "none"]) == 2
