"""Parts of every picture: letters are legible on each colour, and ticks are numbers that occur."""

import pytest

from ccctl.render.svg import draw
from ccctl.render.svg.drawing import COLOURS, above


@pytest.mark.parametrize("colour", COLOURS)
def test_letters_stand_out_from_their_ground(colour):
    def brightness(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (
            ((part + 0.055) / 1.055) ** 2.4 if part > 0.04 else part / 12.92 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05

    darker, brighter = sorted((brightness(colour), brightness(above(colour))))
    # WCAG 2.2 asks for this contrast at level AA.
    assert brighter / darker >= 4.5


@pytest.mark.parametrize("kind", ["model", "tuning"])
def test_there_is_no_half_of_a_layer_or_trial(samples, kind):
    (drawn,) = draw(kind, samples[kind], 960)
    assert not [part for part in drawn.parts if ">0.5<" in part or ">1.5<" in part]
