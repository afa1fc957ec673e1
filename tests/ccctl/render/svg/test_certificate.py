"""A certificate as pictures: the costs of culprits in proportion, and none where nothing is known."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from certificates import CABLE, WHOLE, accepted, certificates, refused
from hypothesis import given

from ccctl.render.svg import NARROW, WIDE, draw
from ccctl.render.svg.drawing import document


def test_each_cost_and_each_collective_with_a_bound_is_drawn():
    costs, shares = draw("certificate", refused())
    assert costs.title == "cost of 3 culprits"
    assert any("34 ms, not 21 ms" in part for part in costs.parts)
    assert any("55.9 %" in part for part in shares.parts)
    one = draw("certificate", replace(accepted(), culprits=(CABLE,)))
    assert [drawing.title for drawing in one] == ["cost of 1 culprit"]


def test_bars_of_costs_are_in_proportion():
    twice = replace(CABLE, cost=replace(CABLE.cost, with_s=42e-3))
    (drawing,) = draw("certificate", replace(accepted(), culprits=(CABLE, twice)))
    root = ElementTree.fromstring(document([drawing]))
    bars = [box for box in root.iter("{http://www.w3.org/2000/svg}rect") if box.find("{*}title") is not None]
    widths = [float(box.get("width")) for box in bars]
    assert widths[1] / widths[0] == pytest.approx(42 / 34, rel=0.02)


def test_without_costs_and_bounds_there_is_no_picture():
    bare = replace(WHOLE[0], bound_s=None, bought_bound_s=None)
    assert draw("certificate", replace(accepted(), whole=(bare,))) == []


def test_a_factor_beyond_all_numbers_is_drawn():
    at_once = replace(CABLE, cost=replace(CABLE.cost, with_s=4.0, without_s=1e-308))
    drawings = draw("certificate", replace(accepted(), culprits=(at_once,)))
    ElementTree.fromstring(document(drawings))


@pytest.mark.parametrize("width", [WIDE, NARROW])
@given(certificate=certificates())
def test_any_certificate_is_xml(width, certificate):
    if drawings := draw("certificate", certificate, width):
        ElementTree.fromstring(document(drawings))
