"""Two hosts of a lab no longer reach each other, or slowly: named, gone round, and back."""

import dataclasses
import itertools
import json
import sys
import time

import pytest
from lab_traffic import sample_lab, standing

from exec.lab import lifecycle
from exec.lab.iproute import ip
from exec.lab.model import PairRate
from exec.lab.run import started

# A host that has no core for seconds is as good as cut off, too.
pytestmark = [pytest.mark.netns, pytest.mark.alone, pytest.mark.long]

# A locally administered address.
NOBODY = "02:00:00:00:ff:ff"

PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from exec import launch

if __name__ == "__main__":
    how = {"hosts": "a,b,c", "wires": "sockets", "survive": True, "timeout_s": 400}
    found = launch("job_with_a_cut:" + sys.argv[2], sys.argv[1], **how)
    open(sys.argv[1] + "/found.part", "w").write(json.dumps(found))
"""

# Goes on with exact results; rank 0 tells by files what has happened.
JOB = """
from pathlib import Path
import numpy as np
from exec.adaptive.coordinator import WaitPolicy
from exec.adaptive.session import Session

COUNT = 100_003

def is_cut(comm, arguments, progress):
    return works(comm, arguments, progress, ("severed", "healed", "swapped"))

def is_slow(comm, arguments, progress):
    return works(comm, arguments, progress, ("slow", "recovered"))

def works(comm, arguments, progress, awaited):
    session = Session(comm, policy=WaitPolicy(silent_s=3.0), fence=progress.fence, replan_s=1.0)
    session.setup(COUNT)
    rank, size, seq = comm.Get_rank(), comm.Get_size(), 0

    def run(flag=False):
        nonlocal seq
        data = np.random.default_rng([seq, rank]).integers(-1000, 1000, COUNT).astype(np.float32)
        every = [np.random.default_rng([seq, of]).integers(-1000, 1000, COUNT) for of in range(size)]
        data[-1] = flag
        found = session.all_reduce(data).wait(300)
        assert (found[:-1] == np.sum(every, axis=0)[:-1]).all(), seq
        seq += 1
        return found[-1] > 0

    def has_come(what):
        told = [event for event in session.events if event.what == what]
        if what != "swapped":
            return bool(told)
        # Others may have been found before the cut was healed.
        (cut,) = [set(event.detail["ranks"]) for event in session.events if event.what == "severed"]
        links = [link for schedule in session.schedules.values() for link in used(schedule)]
        return bool(told) and cut in map(set, links)

    def until(what):
        # All leave the loop after the same request, as they see the same results.
        while not run(rank == 0 and has_come(what)):
            pass
        if rank == 0:
            Path(arguments, what).touch()

    for _ in range(5):
        run()
    if rank == 0:
        Path(arguments, "runs").touch()
    session.profile(every=20 if "slow" in awaited else 0)
    schedules = []
    for what in awaited:
        until(what)
        schedules.append([used(schedule) for schedule in session.schedules.values()])
    events = [(event.what, event.detail) for event in session.events]
    left = session.members, session.epoch, session.severed
    session.close()
    return [events, schedules, left]

def used(schedule):
    network = schedule.network
    rows = sorted(set(schedule.link.tolist()))
    return sorted({(int(network.src[row]), int(network.dst[row])) for row in rows})
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Three hosts, and a folder with what their commands need."""
    with standing(sample_lab(3, rate_mbit=100), tmp_path_factory.mktemp("lab")) as found:
        yield found


def waited_for(file, process):
    deadline_s = time.monotonic() + 150
    while not file.exists():
        assert time.monotonic() < deadline_s and process.poll() is None, f"no {file.name}"
        time.sleep(0.02)


def set_route(lab, host, other, *, connected):
    """Cut the way between two hosts, both of which reach all others, or mend it."""
    for src, dst in ((host, other), (other, host)):
        # Frames to an address that nobody has vanish at the switch, and no end hears of it.
        where = ("-netns", lab.namespace(src), "neigh")
        for nic, device in itertools.product(range(lab.nics), lab.devices()):
            what = ("to", lab.address(dst, nic), "dev", device)
            if connected:
                ip(*where, "del", *what)
            else:
                ip(*where, "replace", *what, "lladdr", NOBODY, "nud", "permanent")


@pytest.mark.parametrize("pair", [(1, 2), (0, 2)])
def test_a_pair_of_hosts_that_is_cut_is_named_gone_round_and_used_again(lab, tmp_path, pair):
    made, folder = lab
    (tmp_path / "job_with_a_cut.py").write_text(JOB)
    hosts = [made.hosts[rank].name for rank in pair]
    with started(
        made, "a", [sys.executable, "-P", "-c", PROGRAM, str(tmp_path), "is_cut"], folder
    ) as process:
        try:
            waited_for(tmp_path / "runs", process)
            set_route(made, *hosts, connected=False)
            waited_for(tmp_path / "severed", process)
        finally:
            set_route(made, *hosts, connected=True)
        assert process.wait(350) == 0
    events, (around, _, whole), left = json.loads((tmp_path / "found.part").read_text())
    assert left == [[0, 1, 2], 1, []]
    (severed,) = [detail for what, detail in events if what == "severed"]
    assert severed["ranks"] == list(pair)
    assert not any(what == "lost" for what, _ in events)
    for schedules, uses in ((around, False), (whole, True)):
        found = {tuple(link) for schedule in schedules for link in schedule}
        assert bool(found & {pair, pair[::-1]}) == uses


@pytest.mark.parametrize("fault", [("b",), ("a", "c")])
def test_a_host_or_link_that_becomes_slow_is_named_and_so_is_its_recovery(lab, tmp_path, fault):
    made, folder = lab
    rate = made.hosts[0].egress_bytes_per_s
    pairs = tuple(PairRate(*fault, rate / 4) for _ in fault[1:])
    hosts = made.hosts
    if not pairs:
        slow = dataclasses.replace(hosts[1], egress_bytes_per_s=rate / 4, ingress_bytes_per_s=rate / 4)
        hosts = (hosts[0], slow, hosts[2])
    after = dataclasses.replace(made, hosts=hosts, pairs=pairs)
    (tmp_path / "job_with_a_cut.py").write_text(JOB)
    command = [sys.executable, "-P", "-c", PROGRAM, str(tmp_path), "is_slow"]
    with started(made, "a", command, folder) as process:
        waited_for(tmp_path / "runs", process)
        lifecycle.shape(made, after)
        try:
            waited_for(tmp_path / "slow", process)
        finally:
            lifecycle.shape(after, made)
        assert process.wait(350) == 0
    events, _, left = json.loads((tmp_path / "found.part").read_text())
    assert left == [[0, 1, 2], 0, []]
    for what in ("slow", "recovered"):
        assert list(fault) in [detail["hosts"] for told, detail in events if told == what]
