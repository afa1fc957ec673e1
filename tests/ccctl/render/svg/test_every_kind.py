"""Kinds of artifacts have pictures, wide and narrow: valid XML, within their width, titled, escaped."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from ccctl.artifacts import codec
from ccctl.render.svg import NARROW, WIDE, WITHOUT_PICTURE, draw
from ccctl.render.svg.drawing import document

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("kind", [kind for kind in codec.KINDS if kind not in WITHOUT_PICTURE])
def test_it_is_drawn(kind, width, samples):
    drawn = draw(kind, samples[kind], width)
    assert drawn
    for one in drawn:
        assert one.title and one.about and one.width == width and one.height > 0
        assert any("legend" in part for part in one.parts)
    root = ElementTree.fromstring(document(drawn))
    assert root.find(f"{SVG}title").text
    for box in root.iter(f"{SVG}rect"):
        assert float(box.get("width")) >= 0
        assert 0 <= float(box.get("x", 0)) <= width


@pytest.mark.parametrize("kind", WITHOUT_PICTURE)
def test_what_is_only_read_has_none(kind, samples):
    assert draw(kind, samples[kind]) == []


@pytest.mark.parametrize("kind", ["topology", "program", "model", "tuning", "report", "certificate"])
def test_names_with_marks_are_text(kind, samples):
    odd, value = "<script>&'\x1b", samples[kind]
    if kind == "topology":
        (host,) = value.hosts
        value = replace(value, hosts=(replace(host, name=odd, nics=(replace(host.nics[0], name=odd),)),))
    elif kind == "tuning":
        value = replace(value, subject=odd)
    elif kind == "certificate":
        value = replace(value, culprits=tuple(replace(one, part=odd) for one in value.culprits))
    elif kind == "report":
        value = replace(value, rows=tuple(replace(row, program=odd) for row in value.rows))
    else:
        value = replace(value, name=odd)
    written = document(draw(kind, value))
    ElementTree.fromstring(written)
    assert "<script" not in written and "&lt;script" in written
