"""`ccctl synth --race`: schedules run on ranks, and the artifact says which were how fast."""

import json

import numpy as np
import pytest
from given_profile import profile_of_links

from ccctl.artifacts import codec

PAIR = ("--network", "pair.json")
# A collective of which few schedules race.
FEW = ("--collective", "broadcast")


@pytest.fixture
def pair(tmp_path):
    """A profile of two ranks of one host, as pair.json."""
    profile = profile_of_links(["host"] * 2, [(0, 1), (1, 0)], 1e-6, 1e-10)
    codec.write(str(tmp_path / "pair.json"), "profile", profile)


@pytest.mark.mpi
def test_a_selection_is_of_what_was_measured(run_ccctl, pair):
    made = run_ccctl(
        "synth", *PAIR, *FEW, "--sizes", "1K:16K", "-f", 16, "--race", "-o", "table.json", "--json"
    )
    assert made.returncode == 0, made.stderr
    races = [one["race"] for one in json.loads(made.stdout)["sizes"]]
    assert [race["size_bytes"] for race in races] == [1024, 16384]
    for race in races:
        times = [entry["time_s"] for entry in race["entries"]]
        assert min(times) > 0
        assert race["iterations"] > 0
        assert "mpi" in [entry["method"] for entry in race["entries"]]
    assert "measured" in run_ccctl("show", "table.json").stdout


@pytest.mark.mpi
def test_a_schedule_holds_the_race_that_it_won(run_ccctl, pair, tmp_path):
    made = run_ccctl("synth", *PAIR, *FEW, "--size", "4K", "--race", "-o", "one.json")
    assert made.returncode == 0, made.stderr
    body = json.loads((tmp_path / "one.json").read_text())["body"]
    raced = [entry["method"] for entry in body["race"]["entries"]]
    assert next(method for method in raced if method != "mpi") == body["method"]
    assert body["race"]["iterations"] > 0
    assert run_ccctl("verify", "one.json").returncode == 0
    assert "raced with 4K" in run_ccctl("show", "one.json").stdout


@pytest.mark.mpi
def test_a_library_that_a_selection_names_is_called(run_ccctl, pair, tmp_path):
    made = run_ccctl("synth", *PAIR, "--sizes", "1K:4K", "-f", 4, "--method", "ring", "-o", "table.json")
    assert made.returncode == 0, made.stderr
    content = json.loads((tmp_path / "table.json").read_text())
    for one in content["body"]["ranges"]:
        one["library"] = "mpi"
    (tmp_path / "table.json").write_text(json.dumps(content))
    assert "mpi, else ring" in run_ccctl("show", "table.json").stdout

    for how, ran in (("--explain",), "mpi"), (("--wires", "sockets"), "ring"):
        timed = run_ccctl("bench", "table.json", "--sizes", "4K", "--iters", 3, "-o", "report.json", *how)
        assert timed.returncode == 0, timed.stderr
        [row] = codec.read(str(tmp_path / "report.json"), "report").body.rows
        assert row.program == f"table.json: {ran}"
        assert (row.predicted_s is None) == (ran == "mpi")
        assert ("no log of steps is kept" in timed.stdout) == (ran == "mpi")

    np.save(tmp_path / "x.npy", np.arange(2048, dtype=np.float32).reshape(2, 1024))
    for op, told in ("sum", True), ("avg", False):
        done = run_ccctl("run", "table.json", "--input", "x.npy", "-o", "y.npy", "--op", op)
        assert done.returncode == 0, done.stderr
        assert ("by mpi's own collective" in done.stderr) == told
        summed = np.load(tmp_path / "x.npy").sum(axis=0) / (2 if op == "avg" else 1)
        assert np.array_equal(np.load(tmp_path / "y.npy"), np.stack([summed, summed]))


def test_several_hosts_must_be_named(run_ccctl, pair):
    refused = run_ccctl("synth", "--network", "dgx-a100:2", "--race")
    assert refused.returncode == 2
    assert "name them with --hosts" in refused.stderr
