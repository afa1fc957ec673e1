"""Periodic schedules as a user meets them: synthesized, judged, timed at any size, drawn, compiled, run."""

import json

import numpy as np
import pytest

from ccctl.artifacts import codec

MESH = ("--network", "mesh:3x3", "--bandwidth", "50GB/s", "--alpha", "0.5us")
MADE = ("synth", *MESH, "--method", "periodic", "--size", "16M")


@pytest.fixture
def made(run_ccctl, tmp_path):
    done = run_ccctl(*MADE, "-o", "p.json", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_is_proven_bounded_and_told(made, run_ccctl, tmp_path):
    assert made["method"] == "periodic"
    assert made["size_bytes"] >= 16 << 20
    assert made["percent_of_optimal"] > 95
    assert made["chunks"] == made["periods"] * (made["chunks"] // made["periods"])
    body = codec.read(str(tmp_path / "p.json"), "periodic").body
    assert (body.sends, body.periods) == (made["sends"], made["periods"])
    judged = run_ccctl("verify", "p.json")
    assert judged.returncode == 0
    assert "or any other number" in judged.stdout
    told = run_ccctl(*MADE).stdout
    assert f"repeated {made['periods']} times" in told


def test_a_mutant_is_refused_wherever_it_goes(made, run_ccctl, tmp_path):
    document = json.loads((tmp_path / "p.json").read_text())
    document["body"]["period_s"] *= 0.9
    (tmp_path / "bad.json").write_text(json.dumps(document))
    judged = run_ccctl("verify", "bad.json")
    assert judged.returncode == 1
    assert "of two periods" in judged.stdout
    assert "this periodic schedule is wrong" in judged.stderr
    for command in ("simulate", "compile"):
        refused = run_ccctl(command, "bad.json")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "of two periods" in refused.stderr
    shown = run_ccctl("show", "bad.json")
    assert "not proven, so no times are shown" in shown.stderr
    assert "time  " not in shown.stdout


def test_it_is_timed_at_any_size_and_on_another_network(made, run_ccctl):
    own = json.loads(run_ccctl("simulate", "p.json", "--json").stdout)
    assert own["time_s"] == pytest.approx(made["time_s"])
    large = json.loads(run_ccctl("simulate", "p.json", "--size", "16T", "--json").stdout)
    assert large["size_bytes"] >= 16 << 40
    assert large["time_s"] == pytest.approx(large["periods"] * large["period_s"], rel=1e-3)
    assert large["percent_of_optimal"] >= own["percent_of_optimal"]
    slower = ("--network", "mesh:3x3", "--bandwidth", "25GB/s", "--alpha", "0.5us")
    elsewhere = json.loads(run_ccctl("simulate", "p.json", *slower, "--json").stdout)
    assert elsewhere["time_s"] == pytest.approx(2 * own["time_s"], rel=0.1)
    assert elsewhere["sends"] == made["sends"]
    lacking = run_ccctl("simulate", "p.json", "--without", "link:0-1")
    assert lacking.returncode == 2
    assert "0" in lacking.stderr and "1" in lacking.stderr
    told = json.loads(run_ccctl("compile", "p.json", "--to", "goal", "--json").stdout)
    assert told["messages"] == made["sends"]


def test_expanded_for_a_size_it_compiles_and_its_program_is_right(made, run_ccctl):
    assert run_ccctl("compile", "p.json", "--size", "512K", "-o", "program.json").returncode == 0
    judged = run_ccctl("verify", "program.json")
    assert judged.returncode == 0, judged.stdout
    refused = run_ccctl("compile", "p.json", "--size", "64G")
    assert refused.returncode == 2
    assert "expected at most 500000" in refused.stderr
    assert "--size" in refused.stderr
    other = run_ccctl("compile", "program.json", "--size", "1M")
    assert other.returncode == 2
    assert "only periodic and symmetric schedules" in other.stderr


def test_it_is_drawn_and_reported(made, run_ccctl, tmp_path):
    assert run_ccctl("show", "p.json", "-o", "p.svg").returncode == 0
    assert "periods</title>" in (tmp_path / "p.svg").read_text()
    page = run_ccctl("report", "p.json", "-o", "page.html")
    assert page.returncode == 0
    assert "0 findings" in page.stderr
    assert run_ccctl("simulate", "p.json", "--size", "512K", "--trace", "t.json", "-q").returncode == 0
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


@pytest.mark.mpi
def test_it_runs_on_ranks(run_ccctl, tmp_path):
    asked = ("--network", "ring:3", "--bandwidth", "1GB/s", "--alpha", "1us", "--size", "64K")
    assert run_ccctl("synth", *asked, "--method", "periodic", "-o", "p.json").returncode == 0
    np.save(tmp_path / "x.npy", np.arange(3 * 8192, dtype=np.float64).reshape(3, 8192))
    done = run_ccctl("run", "p.json", "--input", "x.npy", "-o", "y.npy")
    assert done.returncode == 0, done.stderr
    given = np.load(tmp_path / "x.npy")
    assert (np.load(tmp_path / "y.npy") == given.sum(axis=0)).all()


def test_what_it_is_not_made_for_is_said(run_ccctl):
    for more, words in (
        (("--sizes", "1K:1M"), "--sizes"),
        (("--size", "1M", "--collective", "all_gather"), "all_reduce"),
    ):
        done = run_ccctl("synth", *MESH, "--method", "periodic", *more)
        assert done.returncode == 2
        assert words in done.stderr
