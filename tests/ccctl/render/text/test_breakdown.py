"""The explanation of a report's rows, as text."""

from dataclasses import replace

from ccctl.render.text.breakdown import largest_difference
from ccctl.render.text.report import draw


def drawn(report, capsys):
    draw(report)
    return capsys.readouterr().out.partition("# explained")[2].splitlines()


def with_breakdown(report, **changes):
    row = report.rows[0]
    return replace(report, rows=(replace(row, breakdown=replace(row.breakdown, **changes)),))


def test_each_step_says_what_comes_to_the_one_before(samples, capsys):
    lines = drawn(samples["report"], capsys)
    assert lines[0].endswith("ring, all_reduce of 1024 bytes, out of place")
    assert "run 4" in lines[1] and lines[1].split(";")[1] == " its slowest rank: 1"
    steps = {line[:10].strip(): line[10:].split()[:2] for line in lines[3:9]}
    assert steps == {
        "bound": ["500.0", "-"],
        "schedule": ["600.0", "+100.0"],
        "+ steps": ["610.0", "+10.0"],
        "+ sharing": ["600.0", "-10.0"],
        "+ memory": ["900.0", "+300.0"],
        "measured": ["1000.0", "+100.0"],
    }


def test_kinds_are_compared_and_their_places_named(samples, capsys):
    lines = drawn(samples["report"], capsys)
    links = next(line for line in lines if line.startswith("links"))
    assert links.split() == ["links", "900.0", "700.0", "-200.0", "0", "->", "1", "700.0"]
    late = next(line for line in lines if line.startswith("late ranks"))
    assert late.split()[2:] == ["-", "200.0", "+200.0", "rank", "0", "200.0"]
    together = next(line for line in lines if line.startswith("together"))
    assert together.split() == ["together", "900.0", "1000.0", "+100.0"]
    most = "# most of the difference of +100.0: late ranks +200.0, most at rank 0"
    assert f"{most}; all else together -100.0, less than predicted" in lines
    assert "# busiest links and ports, by the rates of the network: port nic 90 %, link 0 -> 1 45 %" in lines
    assert lines[-1].split() == ["1", "0.0", "800.0", "0.0", "100.0", "50.0", "50.0", "1000.0"]


def test_what_is_not_known_is_said(samples, capsys):
    report = samples["report"]
    plain = "\n".join(drawn(with_breakdown(report, forecast=None), capsys))
    assert "--profile" in plain and "most of the difference" not in plain and "0 -> 1 700.0" in plain
    why_empty = "\n".join(drawn(with_breakdown(report, parts=(), ranks=(), why_empty="no log"), capsys))
    assert "no breakdown: no log" in why_empty and "late" not in why_empty
    apart = "\n".join(drawn(with_breakdown(report, clock_error_s=5e-5), capsys))
    assert "50.0 us apart" in apart
    faster = replace(report.rows[0].breakdown, time_s=8e-4)
    assert largest_difference(faster).startswith("most of the difference of -100.0: links -200.0")
    assert largest_difference(replace(report.rows[0].breakdown, parts=())) == ""
