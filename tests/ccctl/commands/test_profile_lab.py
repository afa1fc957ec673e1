"""`ccctl profile` on emulated clusters whose rates are known: what it reads, finds, and survives."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from limits import HANG_S

from ccctl.artifacts import codec
from ccctl.lab.toml import read_lab
from exec.lab import lifecycle
from probes.detection.declared import reconcile
from probes.topology import Host, Nic, Topology

pytestmark = [pytest.mark.netns, pytest.mark.mpi, pytest.mark.alone]
NUMBERS = count()
# 1448 bytes of each frame of 1514 are ours.
GOODPUT = 0.956
EVERY = "100Mbit/s"
# A bucket holds 4 KiB: at this rate a timer may be 1.6 ms late before the link loses time.
PATIENT_MBIT = 20


@pytest.fixture
def lab(tmp_path):
    """A function that makes a lab and gives its commands; it goes with the test."""
    name = f"p{os.getpid()}-{next(NUMBERS)}"

    def command(*words, **options):
        line = [sys.executable, "-P", "-m", "ccctl", "lab", *map(str, words)]
        environment = {**os.environ, "CCCTL_LAB": name}
        return subprocess.run(
            line, capture_output=True, text=True, timeout=HANG_S, env=environment, **options
        )

    def profile(*words, file="profile.json"):
        path = tmp_path / file
        ccctl = [sys.executable, "-P", "-m", "ccctl", "profile", "--timeout", "90", "-o", path]
        done = command("run", "--", *ccctl, *words)
        body = codec.read(str(path), "profile").body if path.exists() else None
        return done, body

    def up(hosts, *lines, every=EVERY, **rates):
        described = [f'name = "{name}"', f'hosts = "{hosts}"', f'rate = "{every}"', *lines, "[rates]"]
        described += [f'"{target}" = "{rate}Mbit/s"' for target, rate in rates.items()]
        (tmp_path / "lab.toml").write_text("\n".join(described) + "\n")
        made = command("up", tmp_path / "lab.toml")
        assert made.returncode == 0, made.stderr
        return SimpleNamespace(command=command, profile=profile, folder=tmp_path)

    yield up
    command("down")


def bandwidths(profile):
    """GB/s by (host, host)."""
    hosts = [entry.host for entry in profile.ranks]
    links = profile.links
    speeds = 1e-9 / links.beta_s_per_byte
    return {
        (hosts[src], hosts[dst]): speed for src, dst, speed in zip(links.src, links.dst, speeds, strict=True)
    }


def assert_near(found, truth):
    """Assert the rates of the wires. A machine that pauses makes some links slower, none faster."""
    off = np.array(found) / truth - 1
    assert np.abs(np.median(off)) < 0.03 and off.max() < 0.06 and off.min() > -0.2, off


def slow_of(profile):
    """The findings about slow rates; a busy machine adds doubts, and delays messages of some hosts."""
    told = zip(profile.findings, profile.finding_kinds, strict=True)
    return [text for text, kind in told if kind == "slow" and not text.startswith("messages ")]


def test_mixed_rates_are_read_and_told_apart(lab):
    percent = {"gpu1 -> gpu2": 20, "gpu2 -> gpu4": 60, "gpu3.egress": 40}
    rates = {part: PATIENT_MBIT * of // 100 for part, of in percent.items()}
    done, profile = lab("gpu[1-4]", every=f"{PATIENT_MBIT}Mbit/s", **rates).profile()
    assert done.returncode == 0, done.stderr
    found = bandwidths(profile)
    assert len(found) == 12
    truth = [
        min(PATIENT_MBIT, *(rates.get(part, PATIENT_MBIT) for part in (f"{src} -> {dst}", f"{src}.egress")))
        for src, dst in found
    ]
    assert_near(list(found.values()), np.array(truth) * GOODPUT / 8e3)
    named = {}
    for text in slow_of(profile):
        said = re.match(
            r"(?:the link )?(\S+(?: → \S+)?)(?: sends at| carries) (\d+) % of the normal rate", text
        )
        assert said is not None, text
        named[said[1]] = int(said[2])
    expected = {"gpu1 → gpu2": 20, "gpu2 → gpu4": 60, "gpu3": 40}
    assert named["gpu3"] == pytest.approx(40, abs=5)
    assert {part: pytest.approx(expected[part], rel=0.15, abs=3) for part in named} == named
    # Single links whose ends always waited for a core are doubted, not named.
    assert len(named) == 3 or any("starved" in flags for flags in profile.links.flags), profile.findings


@pytest.mark.long
def test_one_slow_link_of_56_is_found_and_then_a_host_drifts(lab):
    made = lab("gpu[1-8]", **{"gpu6 -> gpu7": 30})
    done, profile = made.profile()
    assert done.returncode == 0, done.stderr
    assert len(profile.links.src) == 56
    (finding,) = slow_of(profile)
    assert finding.startswith("the link gpu6 → gpu7 carries 3"), finding
    (flagged,) = (row for row, flags in enumerate(profile.links.flags) if "outlier" in flags)
    assert "retested" in profile.links.flags[flagged]
    made.command("shape", "gpu8.egress = 60Mbit/s")
    words = ("--quick", "--baseline", made.folder / "profile.json", "--prometheus", made.folder / "now.prom")
    done, _ = made.profile(*words, file="now.json")
    assert done.returncode == 1, done.stderr
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("drift: ")]
    assert told.startswith("drift: host gpu8 sends (5 of 5 links): bandwidth 0.01")
    assert 'ccctl_exit_code{command="profile"} 1' in (made.folder / "now.prom").read_text()


def test_a_thin_trunk_between_two_racks_is_a_port_that_the_links_across_share(lab):
    racks = 'racks = ["gpu[1-2]", "gpu[3-4]"]'
    every = f"{PATIENT_MBIT}Mbit/s"
    done, profile = lab("gpu[1-4]", racks, f'trunk = "{every}"', every=every).profile()
    assert done.returncode == 0, done.stderr
    hosts = [entry.host for entry in profile.ranks]
    links = profile.links
    found = {
        frozenset((hosts[links.src[row]], hosts[links.dst[row]]) for row in port.links)
        for port in profile.ports
        if port.method == "measured"
    }
    near, far = ("gpu1", "gpu2"), ("gpu3", "gpu4")
    assert found == {
        frozenset((a, b) for a in near for b in far),
        frozenset((b, a) for a in near for b in far),
    }
    # Alone, each link has the whole trunk.
    assert_near(list(bandwidths(profile).values()), PATIENT_MBIT * GOODPUT / 8e3)
    assert slow_of(profile) == []


@pytest.mark.long
@pytest.mark.parametrize("each", [2, 3])
def test_links_across_a_trunk_thinner_than_a_nic_are_what_they_are_alone(lab, each):
    near, far = range(each), range(each, 2 * each)
    racks = f'racks = ["gpu[1-{each}]", "gpu[{each + 1}-{2 * each}]"]'
    done, profile = lab(f"gpu[1-{2 * each}]", racks, 'trunk = "50Mbit/s"').profile()
    assert done.returncode == 0, done.stderr
    links = profile.links
    pairs = list(zip(links.src.tolist(), links.dst.tolist(), strict=True))
    across = [(src in near) != (dst in near) for src, dst in pairs]
    truth = np.where(across, 50, 100) * GOODPUT / 8e3
    assert np.allclose(1e-9 / links.beta_s_per_byte, truth, rtol=0.08), done.stderr
    found = {frozenset(pairs[row] for row in port.links) for port in profile.ports if "trunk" in port.name}
    assert found == {
        frozenset((a, b) for a in near for b in far),
        frozenset((b, a) for a in near for b in far),
    }
    (finding,) = slow_of(profile)
    assert finding.startswith("the trunk between gpu")
    assert " carries 50 % of the normal rate (if it is not planned so)" in finding


@pytest.mark.long
def test_a_host_that_is_cut_off_is_named_and_what_was_measured_is_kept(lab):
    made = lab("gpu[1-4]")
    cut = threading.Thread(target=cut_off, args=(made, "gpu3", 2_000_000))
    cut.start()
    done, profile = made.profile("--json")
    cut.join()
    # A host that does not answer is missed long before the limit of 90 s, which would be status 124.
    assert done.returncode == 1, done.stderr
    assert "(host gpu3, pid" in done.stderr
    assert "profile.json holds the " in done.stderr
    assert profile.problems() == []
    assert profile.findings[0].startswith("interrupted: rank 2 (host gpu3")
    assert json.loads(done.stdout)["findings"] == list(profile.findings)


@pytest.mark.long
def test_a_dead_host_of_four_is_named_and_the_others_are_measured(lab):
    made = lab("gpu[1-4]")
    made.command("shape", "--down-host", "gpu3")
    done, profile = made.profile("--quick", "--json")
    assert done.returncode == 1, done.stderr
    assert "gpu3 did not answer; 3 of 4 hosts were measured" in done.stderr
    assert [entry.host for entry in profile.ranks] == ["gpu1", "gpu2", "gpu4"]
    assert len(profile.links.src) == 6
    assert profile.findings[0].startswith("host gpu3 is not measured: ")
    assert json.loads(done.stdout)["findings"] == list(profile.findings)


@pytest.mark.long
def test_where_few_hosts_are_equal_the_worst_is_named_first(lab):
    rates = {"gpu1.egress": 40, "gpu1.ingress": 40, "gpu3.egress": 10}
    done, profile = lab("gpu[1-4]", **rates).profile()
    assert done.returncode == 0, done.stderr
    assert [text.partition(" % of")[0] for text in slow_of(profile)] == [
        "gpu3 sends at 10",
        "gpu1 sends and receives at 40",
    ]


def cut_off(made, host, after_bytes):
    """Pull the cable of ``host`` once it has sent so much."""
    lab = read_lab(str(made.folder / "lab.toml"))
    for _ in range(1000):
        if lifecycle.traffic(lab)[host][0] > after_bytes:
            break
        time.sleep(0.02)
    made.command("shape", "--down-host", host)


@pytest.mark.long
def test_ranks_leave_by_their_own_nic_and_the_profile_knows_it(lab):
    done, profile = lab("gpu[1-3]:2", "nics = 2").profile("--topology", "live", "--budget", "5", "--no-ports")
    assert done.returncode == 0, done.stderr
    assert profile.topology == "live"
    assert [(entry.host, entry.nic) for entry in profile.ranks] == [
        (f"gpu{host}", f"eth{nic}") for host in (1, 2, 3) for nic in (0, 1)
    ]
    leaving = {port.name: port for port in profile.ports if port.method == "topology"}
    for name, port in leaving.items():
        host, _, nic, way = name.split()
        ends = profile.links.src if way == "egress" else profile.links.dst
        assert {(profile.ranks[ends[row]].host, profile.ranks[ends[row]].nic) for row in port.links} == {
            (host, nic)
        }
    inferred = [row for row, flags in enumerate(profile.links.flags) if flags == "inferred"]
    assert all(profile.links.samples[row] == 0 for row in inferred)


def declared(hosts, mbit):
    """Hosts with one NIC each of the speeds that are declared for them."""
    return Topology(
        tuple(
            Host(name, "test", nics=(Nic("eth1", "test", physical=True, speed_mbit=mbit.get(name, 100)),))
            for name in hosts
        )
    )


@pytest.mark.long
def test_what_was_declared_of_nics_is_held_against_what_the_lab_carries(lab):
    here = lab("gpu[1-4]", gpu3=25)
    done, profile = here.profile()
    assert done.returncode == 0, done.stderr
    names = [f"gpu{number}" for number in range(1, 5)]
    # gpu3's NIC is slower than declared, and nothing is wrong with a file that says so.
    found = reconcile(declared(names, {}), profile)
    assert [(edit.what, edit.host) for edit in found.edits] == [("nic", "gpu3")] and not found.unexplained
    assert 20 < found.topology.hosts[2].nics[0].speed_mbit < 27
    right = declared(names, {"gpu3": 25})
    assert reconcile(right, profile).findings == () and reconcile(right, profile).pairs == 12


@pytest.mark.long
def test_a_slow_way_in_the_lab_is_no_slow_nic(lab):
    done, profile = lab("gpu[1-4]", **{"gpu1 -> gpu2": 20}).profile()
    assert done.returncode == 0, done.stderr
    found = reconcile(declared([f"gpu{number}" for number in range(1, 5)], {}), profile)
    assert found.edits == () and [one.where for one in found.unexplained] == ["gpu1/eth1"]
