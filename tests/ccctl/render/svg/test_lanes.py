"""The grammar of charts: blocks lie where the axis says, words only where they fit, ticks at round values."""

import re
from itertools import pairwise

import pytest

from ccctl.render.svg.axes import TIME, Axis, short
from ccctl.render.svg.chart import Chart, Series, charts
from ccctl.render.svg.drawing import fitted, text_width
from ccctl.render.svg.lanes import Block, Lane, LaneChart, bar, heading, lanes

WIDTH = 960


def boxes(drawing, colour):
    """(x, width) of the boxes of this colour, without those of the legend."""
    found = re.findall(
        r"<rect x='([\d.]+)' y='[\d.]+' width='([\d.]+)'[^>]*fill='([^']*)'", "".join(drawing.parts)
    )
    return [(float(x), float(wide)) for x, wide, fill in found if fill == colour and x != "1"]


def test_blocks_lie_where_the_axis_says():
    chart = LaneChart([Lane("a", (Block(1.0, 2.0, "#111111"), Block(2.0, 4.0, "#222222")))], TIME)
    drawn, x = lanes("title", "about", chart, WIDTH), chart.scale(WIDTH)
    assert boxes(drawn, "#111111") == [pytest.approx((x.at(1.0), x.at(2.0) - x.at(1.0)), abs=0.1)]
    assert boxes(drawn, "#222222") == [pytest.approx((x.at(2.0), x.at(4.0) - x.at(2.0)), abs=0.1)]


def test_pieces_of_a_bar_follow_each_other_and_a_negative_one_extends_to_the_left():
    row = bar("a", [("up", 3.0, "#111111"), ("down", -1.0, "#222222")], "2 s", begin=1.0)
    assert [(block.begin, block.end) for block in row.blocks] == [(1.0, 4.0), (4.0, 3.0)]
    (only,) = boxes(lanes("title", "about", LaneChart([row], TIME), WIDTH), "#222222")
    assert only[1] > 0


def test_a_word_stands_in_a_block_only_where_it_fits():
    blocks = (Block(0.0, 9.0, "#111111", word="long enough"), Block(9.0, 9.1, "#222222", word="too short"))
    parts = "".join(lanes("title", "about", LaneChart([Lane("a", blocks)], TIME), WIDTH).parts)
    assert ">long enough<" in parts and ">too short<" not in parts


def test_the_legend_explains_each_kind_of_block_once():
    rows = [heading("both"), *(Lane(name, (Block(0, 1, "#111111", "busy"),)) for name in "ab")]
    parts = "".join(lanes("title", "about", LaneChart(rows, TIME), WIDTH, [("", ""), ("", "a note")]).parts)
    legend = re.findall(r"class='legend[^>]*>([^<]*)<", parts)
    assert legend == ["busy", "a note"]


def test_columns_have_whole_numbers():
    axis = Axis("step", short, counted=True)
    ticks = axis.until(7, 0, 700).ticks
    assert ticks == tuple(range(7))
    assert {tick % 1 for tick in axis.until(1000, 0, 700).ticks} == {0}


@pytest.mark.parametrize(
    ("values", "base"), [([0.03, 7.0], 10), ([1, 3000], 2), ([1e-9, 1e9], 10), ([5.0], 2)]
)
def test_ticks_of_a_logarithmic_axis_enclose_the_values_evenly(values, base):
    scale = Axis("size", short, base).around(values, 0, 400, 60)
    assert scale.ticks[0] <= min(values) and scale.ticks[-1] >= max(values)
    assert all(first < last for first, last in pairwise(map(scale.at, scale.ticks)))


def test_an_axis_of_nothing_but_zeros_ends_at_1():
    assert Axis("lost", short).around([0.0, 0.0], 0, 400, 60).ticks == (0.0, 1.0)


def test_a_line_of_one_point_is_seen():
    size, rate = Axis("size", short, 2), Axis("rate", short, 10)
    one = Series("bound", "#111111", ((1024, 5.0),), dashed=True)
    drawn = charts("title", "about", [Chart(size, rate, [one])], WIDTH)
    (path,) = re.findall(
        r"<path d='M([\d.]+) [\d.]+L([\d.]+) [\d.]+' fill='none' stroke='#111111'", "".join(drawn.parts)
    )
    assert float(path[1]) - float(path[0]) == pytest.approx(18)


@pytest.mark.parametrize("words", ["iiiiiiii", "MMMMMMMM", "0000:17:00.0", "節点一号"])
def test_words_are_cut_to_the_width_that_they_have(words):
    assert fitted(words, text_width(words)) == words
    cut = fitted(words, 0.6 * text_width(words))
    assert cut.endswith("…") and text_width(cut) <= 0.6 * text_width(words)
