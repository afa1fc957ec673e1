"""`ccctl training stragglers` as a user runs it."""

import csv
import io
import json
from dataclasses import replace

import pytest
from sample_schedules import ring_all_reduce

from ccctl.artifacts import codec

TRACE = "iteration,rank 0 (ms),rank 1 (ms),rank 2 (ms)\n0,0,0,0\n1,0,0,1000\n2,5,0,30\n3,0,1000,1000\n"


@pytest.fixture
def trace(tmp_path):
    (tmp_path / "trace.csv").write_text(TRACE)
    return "trace.csv"


def test_a_trace_with_a_constant_cost(run_ccctl, trace):
    done = run_ccctl("training", "stragglers", trace, "--buy", "40ms", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["iterations"], told["ranks"], told["cycle_s"]) == (4, 3, 0.005)
    means = {name: one["cost_s"]["mean"] for name, one in told["policies"].items()}
    assert means == {
        "break_even": pytest.approx((0.08 + 0.03 + 0.08) / 4),
        "break_even_extra": pytest.approx((0.08 + 0.03 + 0.08) / 4),
        "break_even_published": pytest.approx((0.08 + 0.03 + 0.08) / 4),
        "always_wait": pytest.approx((1 + 0.03 + 1) / 4),
        "always_go": pytest.approx(3 * 0.04 / 4),
        "optimum": pytest.approx((0.04 + 0.03 + 0.04) / 4),
    }
    assert told["relay_probability"] == [0.0, 0.25, 0.5]
    assert told["policies"]["break_even"]["ratio"]["max"] == pytest.approx(2.0)
    assert told["ratio_bound_max"] == pytest.approx(2 + 5 / 40)
    assert "completion_s" not in told["policies"]["break_even"]


def test_a_trace_through_a_pipe_is_drawn(run_ccctl):
    done = run_ccctl("training", "stragglers", "-", "--buy", "40ms", stdin=TRACE)
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("4 iterations of 3 ranks", "break even", "always wait", "optimum", "50.0 %", "2.12 times"):
        assert words in done.stdout
    assert "complete" not in done.stdout


@pytest.mark.parametrize("how", [[], ["--volume"], ["--size", "4M"]])
def test_the_phases_of_a_schedule(run_ccctl, tmp_path, how):
    codec.write(str(tmp_path / "schedule.json"), "schedule", ring_all_reduce(4))
    drawn = ["--exponential", "20ms", "--ranks", 4, "--iterations", 200, "--seed", 3]
    done = run_ccctl("training", "stragglers", *drawn, "--schedule", "schedule.json", "--json", *how)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    policies = told["policies"]
    assert told["whole_s"] > 0
    assert told["relay_probability"][:3] == [0.0, 0.0, 0.0] and told["relay_probability"][3] > 0
    for one in policies.values():
        assert one["after_last_ready_s"]["mean"] >= 0
        assert one["cost_s"]["mean"] >= policies["optimum"]["cost_s"]["mean"]
        assert one["completion_s"]["mean"] >= policies["optimum"]["completion_s"]["mean"]
    assert policies["always_wait"]["after_last_ready_s"]["max"] == pytest.approx(told["whole_s"])
    assert policies["break_even"]["ratio"]["max"] <= told["ratio_bound_max"]
    text = run_ccctl("training", "stragglers", *drawn, "--schedule", "schedule.json", *how).stdout
    assert "after last rank" in text


def test_a_network_and_a_size(run_ccctl):
    on = ["--network", "ring:4", "--alpha", "1us", "--bandwidth", "1GB/s", "--size", "1M"]
    drawn = ["--bimodal", "1s:0.5", "--ranks", 4, "--stragglers", 2, "--iterations", 50]
    done = run_ccctl("training", "stragglers", *drawn, *on, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["policies"]["always_wait"]["went_early"] == 0
    assert 0 < told["policies"]["break_even"]["went_early"] < 1
    assert told["policies"]["always_wait"]["cost_s"]["max"] == pytest.approx(1 + told["whole_s"])
    # A second is long for phase 1 of a megabyte: the straggler would have been given up.
    assert told["declared_faulty"] > 0
    again = run_ccctl("training", "stragglers", *drawn, *on, "--json", "--fault-factor", "1e9")
    assert json.loads(again.stdout)["declared_faulty"] == 0


def test_decisions_as_a_table(run_ccctl, trace, tmp_path):
    done = run_ccctl("training", "stragglers", trace, "--buy", "40ms", "-o", "decisions.csv", "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "decisions.csv").read_text())))
    assert [row["relays"] for row in rows] == ["", "2", "", "1 2"]
    assert [row["went_early"] for row in rows] == ["0", "1", "0", "1"]
    assert [float(row["optimum_cost_s"]) for row in rows] == pytest.approx([0, 0.04, 0.03, 0.04])
    piped = run_ccctl("training", "stragglers", trace, "--buy", "40ms", "-o", "-", "--json")
    assert piped.stdout == (tmp_path / "decisions.csv").read_text()


def test_the_same_seed_draws_the_same(run_ccctl):
    drawn = ["--exponential", "20ms", "--ranks", 3, "--iterations", 20, "--buy", "5ms", "--json"]
    one, two, three = (
        run_ccctl("training", "stragglers", *drawn, "--seed", seed).stdout for seed in (1, 1, 2)
    )
    assert one == two != three


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--buy", "1ms"], 2, "expected one of TRACE, --exponential and --bimodal"),
        (["trace.csv", "--exponential", "1ms", "--buy", "1ms"], 2, "expected one of TRACE"),
        (["trace.csv"], 2, "expected one of --buy, --schedule and --network"),
        (["trace.csv", "--buy", "1ms", "--volume"], 2, "--volume: expected a --schedule"),
        (["trace.csv", "--buy", "0"], 2, "--buy: expected a time > 0"),
        (["trace.csv", "--buy", "0s"], 2, "--buy: expected a time > 0, found 0s"),
        (["trace.csv", "--buy", "1ms", "--cycle", "0"], 2, "--cycle: expected a time > 0"),
        (["trace.csv", "--buy", "1ms", "--unit", "h"], 2, "--unit: expected one of s, ms, us"),
        (["trace.csv", "--buy", "1ms", "--ranks", "4"], 2, "has 3 ranks"),
        (["trace.csv", "--network", "ring:3"], 2, "depends on the size"),
        (["trace.csv", "--schedule", "schedule.json"], 2, "for 4 of 4 ranks, 3 arrive"),
        (["trace.csv", "--schedule", "schedule.json", "--network", "ring:3"], 2, "exclude each other"),
        (["--exponential", "1ms", "--buy", "1ms"], 2, "expected --ranks"),
        (["--exponential", "1ms", "--ranks", "2", "--stragglers", "3", "--buy", "1ms"], 2, "--stragglers: "),
        (
            ["--exponential", "1ms", "--ranks", "1024", "--iterations", "1000000", "--buy", "1ms"],
            2,
            "at most 5",
        ),
        (["--bimodal", "1s", "--ranks", "2", "--buy", "1ms"], 2, "expected TIME:PROBABILITY"),
        (["--bimodal", "1s:2", "--ranks", "2", "--buy", "1ms"], 2, "expected TIME:PROBABILITY"),
        (["none.csv", "--buy", "1ms"], 66, "there is no such file"),
        (["wrong.csv", "--buy", "1ms"], 65, "line 1: moment: expected a time"),
    ],
)
def test_what_is_wrong_is_said(run_ccctl, trace, tmp_path, arguments, status, message):
    (tmp_path / "wrong.csv").write_text("0,1 parsec\n")
    codec.write(str(tmp_path / "schedule.json"), "schedule", ring_all_reduce(4))
    done = run_ccctl("training", "stragglers", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr


def test_a_schedule_that_is_wrong_is_not_used(run_ccctl, trace, tmp_path):
    ring = ring_all_reduce(3)
    codec.write(str(tmp_path / "s.json"), "schedule", replace(ring, op=ring.op[::-1].copy()))
    done = run_ccctl("training", "stragglers", trace, "--schedule", "s.json")
    assert done.returncode == 1
    assert "not proven" in done.stderr
