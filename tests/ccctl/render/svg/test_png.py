"""SVG as PNG: as large as it says, with letters, and a clear word where that cannot be."""

import struct
import sys

import pytest
from missing_tools import no_png

from ccctl.render.svg import draw
from ccctl.render.svg.drawing import document
from probes.base.errors import UnavailableError

resvg = pytest.importorskip("resvg_py")


@pytest.mark.skipif(bool(no_png()), reason=no_png())
def test_it_is_twice_as_large_as_the_drawing_and_not_empty(samples):
    from ccctl.render.svg.files import png

    drawn = draw("fusion", samples["fusion"])
    content = png(document(drawn))
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    wide, high = struct.unpack(">II", content[16:24])
    assert wide == 2 * 960 and abs(high - 2 * (drawn[0].height + 50)) <= 4
    # The words are there: without them it has fewer bytes.
    silent = document(drawn).replace("<text", "<desc").replace("</text", "</desc")
    assert len(png(silent)) < len(content)


def test_without_resvg_the_command_that_installs_it_is_told(monkeypatch):
    from ccctl.render.svg.files import png

    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(UnavailableError, match="not installed") as told:
        png("<svg/>")
    assert "pip install 'resvg-py>=0.5'" in told.value.hint


def test_without_a_font_it_is_refused(monkeypatch):
    from ccctl.render.svg.files import png

    monkeypatch.setattr(resvg, "svg_to_bytes", lambda svg, **_: b"the same")
    with pytest.raises(UnavailableError, match="font"):
        png("<svg/>")
