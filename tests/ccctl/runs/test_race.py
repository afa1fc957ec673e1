"""`ccctl synth --race`: schedules run on ranks, and the artifact says which were how fast."""

import json

import pytest

from ccctl.artifacts import codec
from probes.columns import floats, ints
from probes.link_costs import Links, Profile, ProfiledRank

PAIR = ("--network", "pair.json")


@pytest.fixture
def pair(tmp_path):
    """A profile of two ranks of one host, as pair.json."""
    costs = [floats([1e-6, 1e-6])] * 3 + [floats([1e-10, 1e-10])] * 5 + [floats([0, 0])]
    links = Links(ints([0, 1]), ints([1, 0]), *costs, ints([9, 9]), ("", ""))
    ranks = tuple(ProfiledRank(rank, "host") for rank in range(2))
    codec.write(str(tmp_path / "pair.json"), "profile", Profile(ranks, links, (), "mpi", "test", 1.0, 1))


@pytest.mark.mpi
def test_a_selection_is_of_what_was_measured(run_ccctl, pair):
    made = run_ccctl("synth", *PAIR, "--sizes", "1K:16K", "-f", 16, "--race", "-o", "table.json", "--json")
    assert made.returncode == 0, made.stderr
    races = [one["race"] for one in json.loads(made.stdout)["sizes"]]
    assert [race["size_bytes"] for race in races] == [1024, 16384]
    for race in races:
        times = [entry["time_s"] for entry in race["entries"]]
        assert min(times) > 0
        assert race["iterations"] > 0
    assert "measured" in run_ccctl("show", "table.json").stdout


@pytest.mark.mpi
def test_a_schedule_holds_the_race_that_it_won(run_ccctl, pair, tmp_path):
    made = run_ccctl("synth", *PAIR, "--collective", "broadcast", "--size", "4K", "--race", "-o", "one.json")
    assert made.returncode == 0, made.stderr
    body = json.loads((tmp_path / "one.json").read_text())["body"]
    assert body["race"]["entries"][0]["method"] == body["method"]
    assert body["race"]["iterations"] > 0
    assert run_ccctl("verify", "one.json").returncode == 0
    assert "raced with 4K" in run_ccctl("show", "one.json").stdout


def test_hosts_are_for_races_and_several_must_be_named(run_ccctl, pair):
    refused = run_ccctl("synth", *PAIR, "--hosts", "a:2")
    assert refused.returncode == 2
    assert "add --race" in refused.stderr
    refused = run_ccctl("synth", "--network", "dgx-a100:2", "--race")
    assert refused.returncode == 2
    assert "name them with --hosts" in refused.stderr
