"""`ccctl training averaging` as a user runs it."""

import json
import re

import pytest
from given_profile import profile_of_links
from racked_networks import SIZE_BYTES, racked

from ccctl.artifacts import codec
from synth.groups.planner import plan_groups

FAT = ["fat_tree:4x2/4", "--bandwidth", "20Gbit/s", "--alpha", "20us"]


def profiled(network):
    """A profile of the network, without its ports."""
    pairs = zip(network.src, network.dst, strict=True)
    return profile_of_links(network.hosts, pairs, network.alpha_s, network.beta_s_per_byte)


def test_the_summary(run_ccctl):
    done = run_ccctl("training", "averaging", *FAT, "--size", "146M", "--compare", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["pattern"], told["period"], told["rho"]) == (
        "representatives",
        4,
        pytest.approx(0.1975, abs=1e-4),
    )
    assert told["racks"] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert told["predicted_s"] < min(told["peers_s"].values())
    assert set(told["peers_s"]) == {"ps", "ring", "double_tree", "hierarchical", "gossip", "asp"}
    assert told["patterns"]["butterfly"]["rho"] == 0
    text = run_ccctl("training", "averaging", *FAT, "--size", "146M", "--compare").stdout
    for words in ("{0,4} {1-3} {5-7}", "rho 0.1975", "ring all_reduce", "butterfly"):
        assert words in text


def test_the_artifact_is_verified_and_drawn(run_ccctl, tmp_path):
    done = run_ccctl("training", "averaging", *FAT, "-o", "groups.json", "--svg", "groups.svg")
    assert done.returncode == 0, done.stderr
    for command, words in (("verify", "Lemma IV.1"), ("show", "rho 0.1975")):
        said = run_ccctl(command, "groups.json")
        assert said.returncode == 0 and words in said.stdout
    assert run_ccctl("show", "groups.json", "-o", "-").stdout == (tmp_path / "groups.svg").read_text()
    document = json.loads((tmp_path / "groups.json").read_text())
    document["body"]["rho"] = 0.01
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    wrong = run_ccctl("verify", "wrong.json")
    assert wrong.returncode == 1 and "rho: the file says 0.01" in wrong.stdout
    assert "rho" not in run_ccctl("show", "wrong.json").stdout
    document["body"]["iterations"][1][0] = [0, 9]
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    refused = run_ccctl("verify", "wrong.json")
    assert refused.returncode == 65
    assert "body.iterations[1][0][1]: there is no rank 9" in refused.stderr
    assert "body.iterations[1]: rank 2 is in none" in refused.stderr


def test_a_profile_adjusts_groups_only_when_it_differs(run_ccctl, tmp_path):
    sizes = [5] * 3
    codec.write(str(tmp_path / "even.json"), "profile", profiled(racked(sizes)))
    slow = racked(sizes, slow_ranks=[2], slow_racks=[1])
    codec.write(str(tmp_path / "slow.json"), "profile", profiled(slow))
    first = run_ccctl("training", "averaging", "even.json", "--size", SIZE_BYTES, "-o", "groups.json")
    assert first.returncode == 0, first.stderr
    same = run_ccctl("training", "averaging", "even.json", "--previous", "groups.json", "--json")
    assert json.loads(same.stdout)["changed"] is False and "the groups stay" in same.stderr
    other = json.loads(
        run_ccctl("training", "averaging", "slow.json", "--previous", "groups.json", "--json").stdout
    )
    assert other["changed"] is True
    assert (other["slow_ranks"], other["slow_racks"]) == ([2], [1])
    refused = run_ccctl("training", "averaging", "even.json", "--previous", "groups.json", "--size", "1M")
    assert refused.returncode == 2 and "--size" in refused.stderr


def test_racks_of_two(run_ccctl):
    asked = ["training", "averaging", "switch:6", "--bandwidth", "1GB/s", "--racks", "0-1/2-3/4-5"]
    done = run_ccctl(*asked, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["rho"] < 1
    assert "not the paper's pattern" in done.stderr
    refused = run_ccctl(*asked, "--pattern", "representatives")
    assert refused.returncode == 2
    assert re.search(r"rho = 1.*\(0, 2, 4\) and 3 ranks \(1, 3, 5\)", refused.stderr)


@pytest.mark.parametrize(
    "words, said",
    [
        (["--racks", "0-3/4-6"], "rank 7 in none"),
        (["--racks", "0-3/3-7"], "rank 3 is in racks 0 and 1"),
        (["--racks", "0-3/4-8"], "there is no rank 8"),
        (["--racks", "n[0-3]/gpu[4-7]"], "there is no host 'gpu4'"),
        (["--racks", "0-3//4-7"], "--racks"),
        (["--pattern", "best"], "--pattern: expected one of"),
        (["--pattern", "butterfly", "--period", "4"], "expected a multiple"),
        (["--svg", "-", "-o", "-"], "one of them"),
        (["--size", "0"], "--size"),
    ],
)
def test_what_is_refused(run_ccctl, words, said):
    done = run_ccctl("training", "averaging", *FAT, *words)
    assert done.returncode == 2 and said in done.stderr
    assert done.stdout == ""


def test_racks_by_their_hosts(run_ccctl):
    told = json.loads(
        run_ccctl("training", "averaging", *FAT, "--racks", "n[0-1]/n[2-4]/n[5-7]", "--json").stdout
    )
    assert told["racks"] == [[0, 1], [2, 3, 4], [5, 6, 7]]


def test_ranks_that_no_link_joins(run_ccctl):
    done = run_ccctl("training", "averaging", "ring:6", "--bandwidth", "1GB/s")
    assert done.returncode == 2 and "from 0 to 2" in done.stderr


def test_picture_marks_what_is_slow():
    from ccctl.render.svg.drawing import document
    from ccctl.render.svg.training import groups

    made = plan_groups(racked([5] * 3, slow_ranks=[2], slow_racks=[1]), SIZE_BYTES).groups
    drawn = document([*groups(made, 960)])
    assert "rank 2, slow" in drawn and "rack 1, slow" in drawn
    # A cell for each rank and iteration holds the number of its group.
    assert drawn.count("font-size='11'") == made.ranks * made.period
    narrow = document([*groups(made, 358)])
    assert "more iterations" in narrow
