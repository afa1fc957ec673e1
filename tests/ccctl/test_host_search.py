"""Detection on several hosts: here with starts that fail, on two ranks, and in a lab of two hosts."""

import json
import os
import subprocess
import sys
from itertools import permutations

import pytest
from limits import HANG_S

from ccctl import host_search
from ccctl.errors import TimeoutExpired
from ccctl.runs import profile
from exec.launcher.run import World
from probes.base.errors import LostRankError, UnavailableError
from probes.detection.gather import DetectRequest, HostDetection
from probes.profiling.assemble import assemble
from probes.profiling.options import Effort
from probes.sampling.packet_trains import Trains
from probes.sampling.samples import Place, Samples
from probes.topology import Host, Topology

CCCTL = [sys.executable, "-P", "-m", "ccctl"]


def look(name):
    return HostDetection(name, f"boot of {name}", Topology((Host(name, "t"),)))


class Cluster:
    """Stands where run_ranks stands: hosts that are down fail every start that has them."""

    def __init__(self, down=(), hung=(), dies=()):
        self.down, self.hung, self.dies = set(down), set(hung), set(dies)
        self.starts = []

    def __call__(self, task, request, world, *, label, timeout_s, keep, below=tuple):
        hosts = [entry.partition(":")[0] for entry in world.hosts.split(",")]
        self.starts.append(hosts)
        if self.down & set(hosts):
            raise UnavailableError("0 of 9 ranks started; missing: 0, 1; mpirun ended with status 255")
        if self.dies & set(hosts):
            keep(look(hosts[0])) if hosts[0] not in self.dies else None
            raise LostRankError("rank 1 died")
        for host in hosts:
            if host not in self.hung:
                keep(look(host))
        if self.hung & set(hosts):
            raise TimeoutExpired("not done within 60 s")
        return [look(host) for host in hosts]


@pytest.mark.parametrize(
    ("faults", "missing", "most_starts"),
    [
        ({}, set(), 1),
        ({"down": ["n3"]}, {"n3"}, 7),
        ({"down": ["n1", "n8"]}, {"n1", "n8"}, 13),
        ({"hung": ["n5"]}, {"n5"}, 1),
        ({"hung": ["n5", "n6"]}, {"n5", "n6"}, 1),
        ({"dies": ["n4"]}, {"n4"}, 9),
    ],
)
def test_what_is_missing_is_named_and_the_rest_is_kept(monkeypatch, faults, missing, most_starts):
    ranks = Cluster(**faults)
    monkeypatch.setattr(host_search, "run_ranks", ranks)
    found = host_search.look_everywhere(World(hosts="n[1-8]:4"), DetectRequest(), None)
    assert {host.name for host in found.hosts} == {f"n{n}" for n in range(1, 9)} - missing
    assert {one.where for one in found.findings} == missing
    assert {one.what for one in found.findings} <= {"host-missing"}
    assert len(ranks.starts) <= most_starts
    assert ranks.starts[0] == [f"n{n}" for n in range(1, 9)]


def test_where_no_host_answers_it_is_unavailable_and_names_all(monkeypatch):
    monkeypatch.setattr(host_search, "run_ranks", Cluster(down=["n1", "n2"]))
    with pytest.raises(UnavailableError, match=r"none of n\[1-2\] answered") as caught:
        host_search.look_everywhere(World(hosts="n[1-2]"), DetectRequest(), None)
    assert "ssh" in caught.value.hint


def test_when_the_time_is_over_nothing_more_is_tried(monkeypatch):
    ranks = Cluster(down=["n1"])
    monkeypatch.setattr(host_search, "run_ranks", ranks)
    with pytest.raises(UnavailableError):
        host_search.look_everywhere(World(hosts="n[1-8]"), DetectRequest(), 1e-9)
    assert len(ranks.starts) == 1


def test_a_number_of_ranks_takes_the_first_hosts(monkeypatch):
    ranks = Cluster()
    monkeypatch.setattr(host_search, "run_ranks", ranks)
    host_search.look_everywhere(World(2, "n[1-8]"), DetectRequest(), None)
    assert ranks.starts == [["n1", "n2"]]


@pytest.mark.parametrize("down", [["n3"], ["n1", "n8"], ["n5", "n6", "n7"]])
def test_hosts_that_start_no_rank_are_named(monkeypatch, down):
    ranks = Cluster(down=down)
    monkeypatch.setattr(host_search, "run_ranks", ranks)
    missing = host_search.answering([f"n{n}" for n in range(1, 9)], "profile", None)
    assert set(missing) == set(down)
    assert "mpirun ended with status 255" in missing[down[0]]
    # The failure of all hosts together is known.
    assert len(ranks.starts[0]) == 4


class Measured(Cluster):
    """Measures a profile where no host is down, and answers the search for those that are."""

    def __call__(self, task, request, world, *, label, timeout_s, keep, stall_s=None, below=tuple):
        listed = ",".join(f"{entry.host}:{entry.slots}" for entry in world.placed()[1])
        world = World(world.ranks, listed)
        super().__call__(task, request, world, label=label, timeout_s=timeout_s, keep=lambda look: None)
        if task.endswith(":answer_task"):
            return None
        self.measured = world
        places = [Place(entry.partition(":")[0], 4) for entry in world.hosts.split(",")]
        found = Samples()
        for pair in permutations(range(len(places)), 2):
            found.trains[pair] = Trains({size << 17: [1e-9 * (size << 17)] for size in (1, 2, 4)})
            found.round_trips_s[pair] = [2e-6]
        return assemble(found, places, library="Some MPI", seconds=1.0, rounds=1)


def measured(monkeypatch, world, down, timeout_s=None):
    ranks = Measured(down=down)
    for module in (host_search, profile):
        monkeypatch.setattr(module, "run_ranks", ranks)
    measurement = profile.ProfileRun(Effort(), world, timeout_s)
    return measurement, measurement.result(), ranks


def test_a_dead_host_is_named_and_the_others_are_measured(monkeypatch):
    measurement, found, ranks = measured(monkeypatch, World(hosts="n[1-4]:2"), ["n3"])
    assert [entry.host for entry in found.ranks] == ["n1", "n2", "n4"]
    assert found.findings[0].startswith("host n3 is not measured: mpirun could not start a rank there")
    assert measurement.problem() == "n3 did not answer; 3 of 4 hosts were measured"
    assert ranks.measured == World(None, "n1:2,n2:2,n4:2")
    assert measured(monkeypatch, World(7, "n[1-4]:2"), ["n3"])[2].measured.ranks == 6


def test_with_too_few_hosts_left_nothing_is_measured(monkeypatch):
    with pytest.raises(UnavailableError, match=r"n\[1-2,4\] of 4 hosts cannot be reached, too few are left"):
        measured(monkeypatch, World(hosts="n[1-4]"), ["n1", "n2", "n4"])


def test_where_every_host_answers_the_first_error_stands(monkeypatch):
    error = UnavailableError("rank 0: no GPU here")
    ranks = Measured()

    def refusing(task, *arguments, **options):
        if task.endswith(":profile"):
            raise error
        return ranks(task, *arguments, **options)

    for module in (host_search, profile):
        monkeypatch.setattr(module, "run_ranks", refusing)
    with pytest.raises(UnavailableError) as caught:
        profile.ProfileRun(Effort(), World(hosts="n[1-4]"), None).result()
    assert caught.value is error


@pytest.mark.mpi
def test_two_ranks_of_this_host_are_one_host(run_ccctl):
    done = run_ccctl("detect", "-n", "2", "--json")
    assert done.returncode == 0, done.stderr
    found, alone = json.loads(done.stdout), json.loads(run_ccctl("detect", "--json").stdout)
    assert found["hosts"] == 1
    assert {key: found[key] for key in ("host_names", "gpus", "nics", "pci_devices")} == {
        key: alone[key] for key in ("host_names", "gpus", "nics", "pci_devices")
    }


@pytest.mark.mpi
def test_inside_mpirun_rank_0_alone_prints_one_topology(run_ccctl, tmp_path):
    from exec.launcher.starters import mpirun

    environment = mpirun.variables(2, str(tmp_path), str(tmp_path))
    launched = mpirun.command(mpirun.find(), 2, (), [*CCCTL, "detect", "--json"])
    done = subprocess.run(
        launched, capture_output=True, text=True, timeout=HANG_S, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["hosts"] == 1


@pytest.mark.netns
@pytest.mark.mpi
def test_a_lab_of_two_hosts_folds_into_one_line_and_a_missing_host_is_named(run_ccctl, tmp_path):
    lab = f"detect-{os.getpid()}"
    (tmp_path / "l.toml").write_text(f'name = "{lab}"\nhosts = "gpu[1-2]"\n')
    assert run_ccctl("lab", "up", "l.toml").returncode == 0
    try:
        within = ("lab", "run", "--lab", lab, "--", *CCCTL, "detect")
        drawn = run_ccctl(*within)
        assert drawn.returncode == 0, drawn.stderr
        assert drawn.stdout.startswith("gpu[1-2]: 2 alike: ")
        found = run_ccctl(*within, "--hosts", "gpu[1-3]", "--json")
        assert found.returncode == 1
        summary = json.loads(found.stdout)
        assert (summary["hosts"], summary["host_names"]) == (2, "gpu[1-2]")
        assert [(one["what"], one["where"]) for one in summary["findings"]] == [("host-missing", "gpu3")]
        assert "gpu3 did not answer; 2 of 3 hosts did" in found.stderr
    finally:
        run_ccctl("lab", "down", "--lab", lab)
