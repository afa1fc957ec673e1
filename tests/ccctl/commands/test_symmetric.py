"""Symmetric schedules as a user makes, judges, times and compiles them."""

import json

import pytest

from ccctl.artifacts import codec

TORUS = ("--network", "torus:4x3", "--bandwidth", "50GB/s", "--alpha", "0.5us")
MADE = ("synth", *TORUS, "--method", "symmetric", "--size", "1M")


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
def test_it_is_made_judged_timed_shown_and_compiled(run_ccctl, tmp_path, kind):
    done = run_ccctl(*MADE, "--collective", kind, "-o", "s.json", "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["method"] == "symmetric"
    assert made["translations"] == 12
    judged = run_ccctl("verify", "s.json")
    assert judged.returncode == 0
    assert "each with 11 shifted copies" in judged.stdout
    timed = json.loads(run_ccctl("simulate", "s.json", "--json").stdout)
    assert timed["time_s"] == pytest.approx(made["time_s"])
    assert timed["bound_s"] == pytest.approx(made["bound_s"], rel=1e-3)
    larger = json.loads(run_ccctl("simulate", "s.json", "--size", "8M", "--json").stdout)
    assert larger["size_bytes"] >= 8 << 20
    assert larger["time_s"] > timed["time_s"]
    shown = run_ccctl("show", "s.json")
    assert "digits 4*x3*" in shown.stdout
    compiled = run_ccctl("compile", "s.json", "-o", "p.json")
    assert compiled.returncode == 0, compiled.stderr
    assert run_ccctl("verify", "p.json").returncode == 0


def test_where_no_table_of_sends_would_end_it_is_taken_by_itself(run_ccctl):
    asked = ("synth", "--network", "torus:16x8x16", "--bandwidth", "50GB/s", "--size", "1G")
    done = run_ccctl(*asked, "-o", "s.json")
    assert done.returncode == 0, done.stderr
    assert "sends are listed, each for 2048 that start together" in done.stderr
    assert "checked independently: 8384512 sends proven" in done.stderr
    compiled = run_ccctl("compile", "s.json", "-o", "p.json")
    assert compiled.returncode == 2
    assert "8384512 sends" in compiled.stderr


def test_what_is_wrong_is_refused(run_ccctl, tmp_path):
    assert run_ccctl(*MADE, "-o", "s.json").returncode == 0
    document = json.loads((tmp_path / "s.json").read_text())
    document["body"]["op"][0] = 0
    (tmp_path / "s.json").write_text(json.dumps(document))
    judged = run_ccctl("verify", "s.json")
    assert judged.returncode == 1
    assert "this symmetric schedule is wrong" in judged.stderr
    for command in (("simulate",), ("compile", "-o", "p.json")):
        assert run_ccctl(command[0], "s.json", *command[1:]).returncode == 1
    shown = run_ccctl("show", "s.json")
    assert "not proven" in shown.stderr
    assert "% of optimal" not in shown.stdout
    codec.read(str(tmp_path / "s.json"), "symmetric")


def test_what_it_is_not_made_for_is_said(run_ccctl):
    for more, words in (
        (("--sizes", "1K:1M"), "--sizes"),
        (("--size", "1M", "--without", "rank:3"), "--without"),
        (("--size", "1M", "--collective", "broadcast"), "all_gather"),
    ):
        done = run_ccctl("synth", *TORUS, "--method", "symmetric", *more)
        assert done.returncode == 2
        assert words in done.stderr
    mesh = run_ccctl("synth", "--network", "mesh:4x4", "--bandwidth", "1GB/s", "--method", "symmetric")
    assert mesh.returncode == 2
    assert "no translation" in mesh.stderr


def test_on_another_network_all_its_sends_are_timed(run_ccctl):
    made = json.loads(run_ccctl(*MADE, "-o", "s.json", "--json").stdout)
    held = json.loads(run_ccctl("simulate", "s.json", "--hold-alpha", "--json").stdout)
    assert held["time_s"] > made["time_s"]
    assert held["sends"] == made["sends"]
    refused = run_ccctl("simulate", "s.json", "--protocol", "LL")
    assert refused.returncode == 2
    assert "symmetric" in refused.stderr


def test_its_trace_has_all_sends(run_ccctl, tmp_path):
    assert run_ccctl(*MADE, "-o", "s.json").returncode == 0
    assert run_ccctl("simulate", "s.json", "--trace", "t.json", "-q").returncode == 0
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_a_list_of_links_may_have_translations(run_ccctl, tmp_path):
    ring = [f"{rank},{(rank + step) % 6},1us,50GB/s" for rank in range(6) for step in (1, 5)]
    (tmp_path / "ring.csv").write_text("\n".join(ring))
    asked = ("synth", "--method", "symmetric", "--size", "1M", "--collective", "all_gather")
    done = run_ccctl(*asked, "--network", "ring.csv", "-o", "s.json", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["translations"] == 6
    assert run_ccctl("verify", "s.json").returncode == 0
    (tmp_path / "line.csv").write_text("\n".join(ring[2:-2]))
    refused = run_ccctl(*asked, "--network", "line.csv")
    assert refused.returncode == 2
    assert "no translation carries line.csv into itself" in refused.stderr
