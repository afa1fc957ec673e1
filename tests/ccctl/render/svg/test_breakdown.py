"""Pictures of where the time went: predicted beside measured, and nothing else."""

from dataclasses import replace

from ccctl.render.svg import draw


def words(drawing):
    return "".join(drawing.parts)


def test_the_way_from_the_bound_to_the_measured_time(samples):
    _, waterfall, path, ranks = draw("report", samples["report"])
    assert "from the bound to the measured time" in waterfall.title
    for said in (">500 us<", ">+100 us<", ">+10 us<", ">−10 us<", ">+300 us<", ">1 ms<", ">bound: cut<"):
        assert said in words(waterfall), said
    for said in ("links, predicted", "links, measured", "not predicted", ">900 us<", ">700 us<"):
        assert said in words(path), said
    assert "most of the difference of +100 us: late ranks +200 us, most at rank 0" in words(path)
    assert "rank 1, slowest" in words(ranks)


def test_without_a_network_nothing_is_predicted(samples):
    (row,) = samples["report"].rows
    alone = replace(row, breakdown=replace(row.breakdown, forecast=None))
    _, *drawn = draw("report", replace(samples["report"], rows=(alone,)))
    assert len(drawn) == 2
    assert not any("predicted<" in words(one) for one in drawn)


def test_a_row_without_a_breakdown_has_curves_alone(samples):
    (row,) = samples["report"].rows
    report = replace(samples["report"], rows=(replace(row, breakdown=None),))
    assert len(draw("report", report)) == 1
