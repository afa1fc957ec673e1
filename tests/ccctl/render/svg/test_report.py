"""The picture of a report: every series is in it, in its place, and it is XML."""

from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from ccctl.render.svg.drawing import document
from ccctl.render.svg.report import pictures

SVG = "{http://www.w3.org/2000/svg}"


def plot(report, width=960, bounds_s=None):
    return document([*pictures(report, width, bounds_s)])


def marks(root):
    """The paths of the marks of points."""
    return [path.get("d") for path in root.iter(f"{SVG}path") if path.get("class") == "mark"]


def grown(report, sizes):
    """The sample's row at several sizes; time grows with size."""
    (row,) = report.rows
    rows = []
    for size in sizes:
        one = replace(row.out_of_place, time_s=size * 1e-9, p50_s=size * 1e-9, busbw_gbs=size / 1e6)
        peer = replace(one, p50_s=2 * one.p50_s)
        rows.append(
            replace(
                row,
                size_bytes=size,
                out_of_place=one,
                predicted_s=size * 0.9e-9,
                peers={"mpi": peer},
                breakdown=None,
            )
        )
    return replace(report, rows=tuple(rows))


def test_ours_the_peers_and_predictions_are_lines_of_their_own(samples):
    root = ElementTree.fromstring(plot(grown(samples["report"], (1024, 4096, 1 << 20))))
    words = [text.text for text in root.iter(f"{SVG}text")]
    for expected in ("ring", "mpi", "ring, predicted", "bus bandwidth (GB/s)", "time, median", "1M"):
        assert expected in words
    # Two charts, each with three sizes of ours and three of the peer, by other shapes; and the legend.
    shapes = Counter(place.partition("m")[2] for place in marks(root))
    assert list(shapes.values()) == [6 + 1, 6 + 1]
    dashed = [path for path in root.iter(f"{SVG}path") if path.get("stroke-dasharray")]
    # One line a chart, and its entry in the legend.
    assert len(dashed) == 3


def test_what_is_larger_stands_higher_and_farther_right(samples):
    root = ElementTree.fromstring(plot(grown(samples["report"], (1024, 4096, 16384))))
    first = next(root.iter(f"{SVG}g"))
    places = [tuple(map(float, place.partition("m")[0][1:].split())) for place in marks(first)][:3]
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    assert [y for _, y in places] == sorted((y for _, y in places), reverse=True)


def test_one_size_alone_and_names_with_marks_are_drawn(samples):
    (row,) = samples["report"].rows
    named = replace(samples["report"], rows=(replace(row, program="<a & b>"),))
    root = ElementTree.fromstring(plot(named))
    assert "<a & b>" in [text.text for text in root.iter(f"{SVG}text")]


def test_the_same_report_is_the_same_bytes(samples):
    assert plot(samples["report"]) == plot(samples["report"])


def test_a_report_without_rows_has_no_picture(samples):
    assert not [*pictures(replace(samples["report"], rows=()), 960)]


def test_each_collective_has_a_picture_and_the_bound_a_line_in_both_panels(samples):
    report = grown(samples["report"], (1024, 4096))
    gathers = tuple(replace(row, collective="all_gather") for row in report.rows)
    both = replace(report, rows=report.rows + gathers)
    first, second = pictures(both, 960, {("all_reduce", 1024): 1e-7, ("all_reduce", 4096): 4e-7})
    assert first.title.startswith("all_reduce") and second.title.startswith("all_gather")
    assert "proven bound" in "".join(first.parts) and "proven bound" not in "".join(second.parts)


@pytest.mark.parametrize(
    ("time_s", "size_bytes"), [(0.0, 1024), (1e-3, 0), (0.0, 0), (1e15, 1), (1e-300, 1 << 60)]
)
def test_a_picture_has_no_place_for_what_is_not_above_zero(samples, time_s, size_bytes):
    row = samples["report"].rows[0]
    shown = replace(row.out_of_place, time_s=time_s, busbw_gbs=time_s)
    row = replace(row, size_bytes=size_bytes, out_of_place=shown, predicted_s=0.0)
    picture = plot(replace(samples["report"], rows=(row,)))
    assert "nan" not in picture and "inf" not in picture


@pytest.mark.parametrize("value", [-1.0, 1e308])
def test_a_report_of_what_cannot_be_measured_is_refused(samples, value):
    row = samples["report"].rows[0]
    shown = replace(row.out_of_place, time_s=value)
    found = replace(samples["report"], rows=(replace(row, out_of_place=shown),))
    assert found.problems()[0].startswith("rows[0].out_of_place.time_s: expected a number from 0")


def test_every_word_of_the_axes_lies_within_its_panel(samples):
    """The largest sizes stand at the right end of an axis; a letter of 12 points is 7 wide at most."""
    root = ElementTree.fromstring(plot(grown(samples["report"], (1 << 20, 256 << 20))))
    panels = [group for group in root.iter(f"{SVG}g") if group.find(f"{SVG}text") is not None]
    assert len(panels) == 2
    for panel in panels:
        for text in panel.iter(f"{SVG}text"):
            if text.get("text-anchor") == "middle":
                assert float(text.get("x")) + 7 * len(text.text) / 2 <= 480


def test_both_panels_are_of_one_statistic(samples):
    """A mean of ten times the median moves neither."""
    report = grown(samples["report"], (1024, 4096))
    rows = tuple(
        replace(row, out_of_place=replace(row.out_of_place, mean_s=10 * row.out_of_place.time_s))
        for row in report.rows
    )
    assert plot(report) == plot(replace(report, rows=rows))


@pytest.mark.parametrize(
    ("size_bytes", "time_s", "rate_gbs"), [(0, 0.0, 0.0), (1, 5e-324, 1e308), (8, 1e308, 5e-324)]
)
def test_numbers_without_a_place_on_the_axes_are_left_out(samples, size_bytes, time_s, rate_gbs):
    (row,) = samples["report"].rows
    measured = replace(row.out_of_place, time_s=time_s, p50_s=time_s, algbw_gbs=rate_gbs, busbw_gbs=rate_gbs)
    report = replace(samples["report"], rows=(replace(row, size_bytes=size_bytes, out_of_place=measured),))
    text = plot(report)
    ElementTree.fromstring(text)
    assert "nan" not in text and "inf'" not in text


def test_names_that_no_xml_may_hold_are_shown_escaped(samples):
    report = samples["report"]
    odd = replace(
        report, rows=tuple(replace(row, redop="\x00\ud800", program="\x1b[31m") for row in report.rows)
    )
    root = ElementTree.fromstring(plot(grown(odd, (1024, 4096))).encode())
    assert any("\\x00\\ud800" in (text.text or "") for text in root.iter(f"{SVG}text"))


def test_a_size_with_wrong_elements_is_marked_in_both_panels(samples):
    report = grown(samples["report"], (1024, 4096, 1 << 20))
    assert ">wrong<" not in plot(report)
    first, second, third = report.rows
    wrong = replace(second, in_place=replace(second.out_of_place, wrong=3))
    assert plot(replace(report, rows=(first, wrong, third))).count(">wrong<") == 2
