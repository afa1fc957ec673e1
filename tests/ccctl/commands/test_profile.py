import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest
from faulty_profile import Faulty
from limits import HANG_S
from slow_host import profile_with_slow_host

from ccctl.artifacts import codec
from ccctl.commands.profile import ProfileOptions, profile
from ccctl.errors import TimeoutExpired
from ccctl.render.text.profile import draw
from ccctl.runs import profile as runs
from exec.errors import RankFailed
from probes.base.columns import floats
from probes.base.errors import CcctlError, LostRankError, UnavailableError
from probes.files.host_lock import HostLock, _host
from probes.profiling.assemble import assemble
from probes.profiling.task import Begun
from probes.sampling.packet_trains import Trains
from probes.sampling.samples import Place, Samples

# Betas of a link whose samples differ by a third, as multiples of the best.
WIDE = {"": 1.0, "_median": 1.3, "_p90": 1.9, "_low": 0.85, "_high": 1.15}
CCCTL = [sys.executable, "-P", "-m", "ccctl"]
# Two ranks, one pass, and nothing about memory: for what does not depend on how well links were measured.
BRIEF = ("-n", "2", "--quick", "--budget", "0.2s")


@pytest.mark.mpi
def test_a_profile_is_written_and_drawn(run_ccctl, tmp_path):
    path = tmp_path / "profile.json"
    done = run_ccctl("profile", "-n", "2", "--quick", "-o", str(path))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    body = codec.read(str(path), "profile").body
    assert len(body.ranks) == 2
    assert len(body.links.src) == 2
    assert "2 links" in done.stderr
    drawn = run_ccctl("show", str(path))
    assert drawn.returncode == 0, drawn.stderr
    assert "bandwidth, GB/s" in drawn.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["profile.json"]


def test_all_links_are_slow_only_against_what_was_bought_or_planned(run_ccctl, tmp_path):
    path, plan = tmp_path / "profile.json", tmp_path / "topology.conf"
    codec.write(str(path), "profile", Faulty(6).profile(scale=0.6))
    plan.write_text("SwitchName=s1 Nodes=gpu[1-3]\nSwitchName=s2 Nodes=gpu[4-6]\n")
    words = ("profile", "--from", str(path), "--json")
    assert json.loads(run_ccctl(*words, "--plan", str(plan)).stdout)["findings"] == []
    done = run_ccctl(*words, "--spec", "8Gbit/s", "-o", str(tmp_path / "judged.json"))
    assert done.returncode == 0, done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding.startswith("all links carry 64 % of what was bought: 30 of 30 links between hosts carry")
    flags = codec.read(str(tmp_path / "judged.json"), "profile").body.links.flags
    assert set(flags) == {"outlier"}
    assert run_ccctl(*words, "--spec", "fast").returncode == 2
    codec.write(str(path), "profile", Faulty(6).profile())
    done = run_ccctl("profile", "--from", str(path), "--spec", "8Gbit/s")
    assert "compared with 8Gbit/s: no link between hosts falls short" in done.stderr


def test_an_offer_that_no_link_can_be_compared_with_is_named(run_ccctl, tmp_path):
    path = tmp_path / "profile.json"
    codec.write(str(path), "profile", profile_with_slow_host(hosts=1, ranks_a_host=4))
    words = ("profile", "--from", str(path), "--spec")
    done = run_ccctl(*words, "8x400")
    assert done.returncode == 0
    assert "8x400 was not compared: all links are inside one host" in done.stderr
    (doubt,) = json.loads(run_ccctl(*words, "8x400", "--json").stdout)["findings"]
    assert doubt.startswith("8x400 was not compared")


@pytest.mark.mpi
def test_only_the_pairs_of_a_file_with_the_sizes_asked_for(run_ccctl, tmp_path):
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("1 0 1\n1 2 0  # back\n2 1 2\n")
    done = run_ccctl("profile", "-n", "3", "--quick", "--pairs", pairs, "--sizes", "256K:1M", "-o", "-")
    assert done.returncode == 0, done.stderr
    found = codec.decode(done.stdout.encode(), "stdin", "profile").body
    assert list(zip(found.links.src, found.links.dst, strict=True)) == [(0, 1), (1, 2), (2, 0)]
    assert found.findings[0] == f"left out ({pairs} names the pairs): 3 links not measured"


@pytest.mark.mpi
def test_a_budget_is_kept_and_what_it_left_out_is_told(run_ccctl, tmp_path):
    path = tmp_path / "profile.json"
    done = run_ccctl("profile", "-n", "3", "--budget", "0.2s", "-o", str(path))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("3 ranks share") == (len(os.sched_getaffinity(0)) < 3)
    body = codec.read(str(path), "profile").body
    assert body.findings[0].startswith("left out (budget of 0.2 s): ")
    assert 1 <= len(body.links.src) <= 6


def test_links_that_carry_less_than_expected_are_found(run_ccctl, tmp_path, samples):
    path = tmp_path / "profile.json"
    codec.write(str(path), "profile", samples["profile"])
    done = run_ccctl("profile", "--from", str(path), "--expect", "48GB/s")
    assert done.returncode == 1
    assert "finding: 2 of 2 links below 48 GB/s: " in done.stdout
    assert done.stderr == "ccctl: links carry less than 48GB/s\n"
    # A rate in bits is a line's, of which headers take 82 of 4178 bytes with RoCE.
    told = run_ccctl("profile", "--from", str(path), "--expect", "400Gbit/s", "--json")
    assert told.returncode == 1
    assert json.loads(told.stdout)["findings"][0].startswith("2 of 2 links below 49.02 GB/s: ")
    well = run_ccctl("profile", "--from", str(path), "--expect", "1kB/s")
    assert (well.returncode, well.stderr, "below" in well.stdout) == (0, "", False)
    assert run_ccctl("profile", "--from", str(path), "--expect", "48").returncode == 2


def test_headers_may_take_their_share_of_an_expected_line_rate(run_ccctl, tmp_path, samples):
    links, path = samples["profile"].links, str(tmp_path / "profile.json")
    # 1448 of 1514 bytes are payload on an emulated link of 100 Mbit/s.
    beta = floats(np.full(len(links.src), 1514 / 1448 / 12.5e6))
    full = dataclasses.replace(links, **{f"beta{name}_s_per_byte": beta for name in WIDE})
    codec.write(path, "profile", dataclasses.replace(samples["profile"], links=full))
    for rate, status in (("100Mbit/s", 0), ("100Mbit/s,tcp9000", 1), ("11.9MB/s", 0), ("12.5MB/s", 1)):
        done = run_ccctl("profile", "--from", path, "--expect", rate)
        assert done.returncode == status, (rate, done.stdout)
    wrong = run_ccctl("profile", "--from", path, "--expect", "8x400")
    assert wrong.returncode == 2
    assert "--expect: expected a rate with its unit, from 1bit/s" in wrong.stderr


def test_two_files_are_compared_without_measuring(run_ccctl, tmp_path, samples):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    codec.write(str(good), "profile", samples["profile"])
    links = samples["profile"].links
    slow = floats(4 * links.beta_s_per_byte)
    changed = {name: slow for name in vars(links) if name.startswith("beta")}
    worse = dataclasses.replace(samples["profile"], links=dataclasses.replace(links, **changed))
    codec.write(str(bad), "profile", worse)
    same = run_ccctl("profile", "--from", str(good), "--baseline", str(good))
    assert (same.returncode, same.stderr) == (0, "")
    assert "no drift: 2 links" in same.stdout
    done = run_ccctl("profile", "--from", str(bad), "--baseline", str(good), "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    part = "inside host host (2 of 2 links): bandwidth 0.00075 → 0.000188 GB/s, 25% of the baseline"
    assert told["findings"][0].startswith(part)
    assert [change["worse"] for change in told["drift"]["changes"]] == [True]
    assert done.stderr == f"ccctl: worse than {good}\n"
    assert run_ccctl("profile", "--from", str(good), "--baseline", str(bad)).returncode == 0


def test_a_median_that_noise_hides_is_told_in_place_of_no_drift(run_ccctl, tmp_path, samples):
    good, noisy = str(tmp_path / "good.json"), str(tmp_path / "noisy.json")
    crowded = [dataclasses.replace(entry, cores=1) for entry in samples["profile"].ranks]
    links = samples["profile"].links
    beta = floats(1 / np.full(len(links.src), 6.09e9))
    wide = {f"beta{name}_s_per_byte": floats(beta * by) for name, by in WIDE.items()}
    now = dataclasses.replace(links, **wide)
    before = dataclasses.replace(now, **{name: floats(value * 6.09 / 9.47) for name, value in wide.items()})
    for path, measured in ((good, before), (noisy, now)):
        profile = dataclasses.replace(samples["profile"], ranks=tuple(crowded), links=measured)
        codec.write(path, "profile", profile)
    done = run_ccctl("profile", "--from", noisy, "--baseline", good)
    assert (done.returncode, done.stderr) == (0, "")
    assert "median 6.09 GB/s, was 9.47 GB/s: too noisy to tell (2 ranks share 1 core of host)" in done.stdout
    assert "no drift" not in done.stdout
    told = json.loads(run_ccctl("profile", "--from", noisy, "--baseline", good, "--json").stdout)
    assert [one["quantity"] for one in told["drift"]["unsure"]] == ["bandwidth"]


@pytest.mark.mpi
def test_its_own_timeout_is_124(run_ccctl, tmp_path):
    done = run_ccctl("profile", "-n", "2", "--timeout", "0.2", "-o", str(tmp_path / "profile.json"))
    assert done.returncode == 124
    assert "not done within 0.2 s" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.mpi
def test_a_lost_rank_ends_the_command_and_is_named(tmp_path):
    command = [*CCCTL, "profile", "-n", "2", "-o", str(tmp_path / "profile.json")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as started:
        workers = at_work(started.pid, 2)
        scratch = workers[1].environ()["CCCTL_SCRATCH"]
        workers[1].kill()
        _, said = started.communicate(timeout=HANG_S)
    assert started.returncode == 1, said
    assert f"rank 1 (host {os.uname().nodename}, pid {workers[1].pid})" in said
    assert "SIGKILL" in said
    # Links may have been measured by then.
    assert [one.name for one in tmp_path.iterdir()] in ([], ["profile.json"])
    assert not os.path.exists(scratch)  # noqa: PTH110 - a string from an environment
    _, alive = psutil.wait_procs(workers.values(), timeout=HANG_S)
    assert alive == []


@pytest.mark.mpi
def test_a_signal_ends_it_with_what_was_measured(tmp_path):
    path = tmp_path / "profile.json"
    command = [*CCCTL, "profile", "-n", "2", "-o", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as started:
        at_work(started.pid, 2)
        time.sleep(1.5)
        started.send_signal(signal.SIGINT)
        _, said = started.communicate(timeout=HANG_S)
    assert started.returncode == 130, said
    assert "ended by Ctrl-C" in said
    # On a busy machine nothing may have been measured by then.
    if path.exists():
        partial = codec.read(str(path), "profile").body
        assert partial.findings[0].startswith("interrupted: Ctrl-C; ")
        assert partial.seconds > 0
        assert f"{path} holds the {len(partial.links.src)} links that were measured until then" in said
    assert [one.name for one in tmp_path.iterdir()] in ([], ["profile.json"])


class Interrupted:
    """Stands where run_ranks stands: ranks measure two links, then ``error`` ends the run."""

    def __init__(self, error):
        self.error = error

    def __call__(self, task, arguments, world, *, keep, **options):
        found = Samples()
        for pair in ((0, 1), (1, 0)):
            found.trains[pair] = Trains({size << 17: [1e-9 * (size << 17)] for size in (1, 2, 4)})
        found.round_trips_s[0, 1] = [2e-6]
        keep(Begun((Place("a", 4), Place("b", 4), Place("c", 4)), "Some MPI", 6))
        keep(found)
        raise self.error


ENDS = [
    (LostRankError("rank 1 died", hint="Nothing was written."), "rank 1 died"),
    (TimeoutExpired(["not done within 3 s", "rank 1 waited"]), "not done within 3 s"),
    (UnavailableError("rank 2: not enough memory"), "rank 2: not enough memory"),
    (RankFailed("rank 0 failed\nTraceback"), "rank 0 failed"),
    (KeyboardInterrupt(), "Ctrl-C"),
    (SystemExit(129), "SIGHUP"),
]


@pytest.mark.parametrize(("error", "why"), ENDS)
@pytest.mark.parametrize("written", [True, False])
def test_any_end_leaves_what_was_measured(tmp_path, monkeypatch, capsys, error, why, written):
    monkeypatch.setattr(runs, "run_ranks", Interrupted(error))
    path = str(tmp_path / "profile.json") if written else None
    with pytest.raises(type(error)) as caught:
        profile(ProfileOptions(ranks=3, output=path))
    assert caught.value is error
    said = capsys.readouterr()
    if written:
        partial = codec.read(path, "profile").body
        assert partial.findings[0] == f"interrupted: {why}; 4 of 6 links not measured"
        told = f"{path} holds the 2 links that were measured until then."
    else:
        assert f"finding: interrupted: {why}; 4 of 6 links not measured" in said.out
        told = "what was printed holds the 2 links that were measured until then."
    assert getattr(error, "hint", told) == told
    assert isinstance(error, CcctlError | RankFailed) or told in said.err


@pytest.mark.mpi
def test_where_the_file_cannot_be_written_what_was_measured_goes_elsewhere(run_ccctl, tmp_path):
    done = run_ccctl("profile", *BRIEF, "-o", "/dev/full", TMPDIR=tmp_path)
    assert done.returncode == 73, done.stderr
    (kept,) = tmp_path.iterdir()
    assert f"hint: What was measured is in {kept}." in done.stderr
    assert len(codec.read(str(kept), "profile").body.links.src) == 2


@pytest.mark.mpi
def test_of_two_profiles_at_once_the_second_ends_with_75_or_waits(run_ccctl, tmp_path):
    lock = HostLock(_host())
    assert lock.take() == ""
    try:
        done = run_ccctl("profile", *BRIEF)
        assert (done.returncode, done.stdout) == (75, "")
        assert f"another measurement of this user is under way (pid {os.getpid()}, since" in done.stderr
        assert "--wait SECONDS" in done.stderr
        threading.Timer(0.5, lock.release).start()
        done = run_ccctl("profile", *BRIEF, "--wait", "60", "--json")
        assert done.returncode == 0, done.stderr
    finally:
        lock.release()
    summary = json.loads(done.stdout)
    assert summary.keys() >= {"ranks", "links", "findings", "seconds"}
    assert (summary["ranks"], summary["links"]) == (2, 2)
    assert list(tmp_path.iterdir()) == []


def at_work(pid, ranks):
    """The workers of a command by rank, once each has said hello: its heartbeat thread starts after that."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        children = psutil.Process(pid).children(recursive=True)
        found = {}
        for child in children:
            try:
                if "exec.launcher.worker" in child.cmdline() and child.num_threads() > 1:
                    found[int(child.environ()["OMPI_COMM_WORLD_RANK"])] = child
            except (psutil.Error, KeyError):
                continue
        if len(found) == ranks:
            return found
        time.sleep(0.05)
    raise AssertionError(f"only ranks {sorted(found)} came to work")


def test_many_ranks_are_drawn_by_kind_of_link(capsys):
    found = Samples()
    places = [Place(f"host{rank // 10}", 64) for rank in range(20)]
    for pair in ((0, 1), (1, 0), (0, 10), (10, 0)):
        cost = 1e-10 if places[pair[0]] == places[pair[1]] else 1e-9
        found.trains[pair] = Trains({size << 17: [cost * (size << 17)] for size in (1, 2, 4)})
        found.round_trips_s[pair] = [2e-6]
    draw(assemble(found, places, library="Some MPI", seconds=1.0, rounds=1))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "20 ranks on 2 hosts (host0, host1), 4 links, Some MPI"
    assert [line.split()[:5] for line in lines if line.startswith(("inside", "between"))] == [
        ["inside", "a", "host", "2", "10"],
        ["between", "hosts", "2", "1", "1"],
    ]
