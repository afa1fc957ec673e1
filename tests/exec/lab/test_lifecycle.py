"""A lab is real: shaped wires that bytes cross, and nothing left when it goes."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab_traffic import python_in, rate_mbit, sample_lab

from exec.errors import NameTakenError
from exec.lab import lifecycle as kernel
from exec.lab.iproute import namespaces
from exec.lab.model import Lab
from probes.base.errors import UnavailableError

pytestmark = pytest.mark.netns
# Headers take 66 of each 1514 bytes on the wire.
GOODPUT = 1448 / 1514


@pytest.fixture
def build():
    """A function that makes a lab, which goes with the test."""
    made = []

    def up(lab):
        made.append(lab)
        kernel.up(lab)
        return lab

    yield up
    for lab in made:
        kernel.down(lab.name)


def traces(lab):
    """All that a lab leaves on this machine outside its own namespaces."""
    found = [name for name in namespaces() if lab.name in name]
    found += [path.name for path in Path("/etc/netns").glob(f"*{lab.name}*")]
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    return [*found, *(line for line in links.splitlines() if lab.name in line)]


def links_here():
    return subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout


# Labs of other tests come and go among the links of this machine.
def test_down_leaves_nothing_and_may_be_repeated(build):
    before = links_here()
    lab = build(sample_lab(3, pairs=[("a", "b", 10)]))
    assert len(kernel.standing(lab.name)) == 4
    assert links_here() == before
    assert kernel.down(lab.name)
    assert (traces(lab), links_here()) == ([], before)
    assert not kernel.down(lab.name)


def test_down_ends_what_runs_inside(build):
    lab = build(sample_lab(1))
    with python_in(lab, "a", "print(flush=True); input()", stdin=subprocess.PIPE) as inside:
        inside.stdout.readline()
        kernel.down(lab.name)
        assert inside.wait(60) == -signal.SIGKILL
    assert traces(lab) == []


def test_down_spares_a_lab_whose_name_begins_alike(build):
    lab = build(sample_lab(1))
    longer = build(dataclasses.replace(lab, name=f"{lab.name}0"))
    kernel.down(lab.name)
    assert kernel.standing(longer.name) == [longer.namespace("a"), longer.switch]


def test_a_taken_name_is_refused_and_what_has_it_is_left_alone(build):
    lab = build(sample_lab(1))
    with pytest.raises(NameTakenError, match=lab.name):
        kernel.up(lab)
    assert len(kernel.standing(lab.name)) == 2


@pytest.mark.alone
def test_rates_of_hosts_and_pairs_are_those_described(build):
    lab = build(sample_lab(3, pairs=[("a", "b", 20)]))
    slow, fast = rate_mbit(lab, "a", "b", 400_000), rate_mbit(lab, "a", "c", 2_000_000)
    assert slow == pytest.approx(20 * GOODPUT, rel=0.15)
    assert 4 < fast / slow < 6
    assert 4 < rate_mbit(lab, "b", "a", 2_000_000) / slow < 6


@pytest.mark.alone
def test_a_trunk_is_what_racks_share(build):
    lab = build(sample_lab(3, racks=(("a", "b"), ("c",)), trunk_bytes_per_s=2_500_000))
    assert rate_mbit(lab, "a", "c", 400_000) == pytest.approx(20 * GOODPUT, rel=0.15)
    assert rate_mbit(lab, "c", "b", 400_000) == pytest.approx(20 * GOODPUT, rel=0.15)
    assert rate_mbit(lab, "a", "b", 2_000_000) > 60


@pytest.mark.alone
def test_ingress_is_what_senders_share(build):
    lab = sample_lab(2)
    slow = dataclasses.replace(lab.hosts[1], ingress_bytes_per_s=2_500_000)
    lab = build(dataclasses.replace(lab, hosts=(lab.hosts[0], slow)))
    assert rate_mbit(lab, "a", "b", 400_000) == pytest.approx(20 * GOODPUT, rel=0.15)
    assert rate_mbit(lab, "b", "a", 2_000_000) > 60


@pytest.mark.alone
def test_a_rate_changes_while_the_lab_is_up(build):
    lab = build(sample_lab(2, pairs=[("a", "b", 10)]))
    assert rate_mbit(lab, "a", "b", 200_000) == pytest.approx(10 * GOODPUT, rel=0.15)
    faster = dataclasses.replace(lab, pairs=(dataclasses.replace(lab.pairs[0], bytes_per_s=5_000_000),))
    kernel.shape(lab, faster)
    assert rate_mbit(lab, "a", "b", 800_000) == pytest.approx(40 * GOODPUT, rel=0.15)
    free = dataclasses.replace(lab, pairs=())
    kernel.shape(faster, free)
    assert rate_mbit(lab, "a", "b", 2_000_000) > 60


def test_the_switch_counts_what_crosses_it(build):
    lab = build(sample_lab(3))
    before = kernel.traffic(lab)
    rate_mbit(lab, "a", "b", 300_000, tries=1)
    after = kernel.traffic(lab)
    crossed = {host: (after[host][0] - before[host][0], after[host][1] - before[host][1]) for host in before}
    assert 300_000 <= crossed["a"][0] < 345_000
    assert 300_000 <= crossed["b"][1] < 345_000
    assert max(crossed["a"][1], *crossed["c"]) < 30_000


def test_a_pulled_cable_cuts_a_host_off_until_it_is_put_back(build):
    reach = "import socket, sys; socket.create_connection((sys.argv[1], 5000), timeout=float(sys.argv[2]))"
    serve = "import socket; s = socket.create_server(('', 5000)); print(flush=True); input()"
    lab = build(sample_lab(2))
    with python_in(lab, "b", serve, stdin=subprocess.PIPE) as server:
        server.stdout.readline()
        kernel.set_cable(lab, "b", connected=False)
        assert kernel.cables(lab) == {"a": True, "b": False}
        assert python_in(lab, "a", reach, lab.address("b"), 0.5, stderr=subprocess.DEVNULL).wait() != 0
        kernel.set_cable(lab, "b", connected=True)
        assert kernel.cables(lab) == {"a": True, "b": True}
        assert python_in(lab, "a", reach, lab.address("b"), 30).wait() == 0
        server.communicate("\n")


@pytest.fixture
def other_tc(tmp_path, monkeypatch):
    """A function that puts a program of our own in the place of tc."""

    def put(script):
        (tmp_path / "tc").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "tc").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return put


def test_a_kernel_without_htb_is_told_and_nothing_is_left(other_tc):
    other_tc("echo 'Error: Specified qdisc kind is unknown.' >&2; exit 2")
    lab = sample_lab(2)
    with pytest.raises(UnavailableError, match="qdisc kind is unknown") as caught:
        kernel.up(lab)
    assert "htb" in caught.value.hint
    assert traces(lab) == []


def test_an_interrupted_up_leaves_nothing(other_tc):
    other_tc("echo waiting; exec sleep 60")
    lab = sample_lab(2)
    script = f"from exec.lab import lifecycle as lab\nfrom exec.lab.model import *\nlab.up({lab!r})"
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL) as building:
        deadline_s = time.monotonic() + 100
        while len(kernel.standing(lab.name)) < 3 and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert len(kernel.standing(lab.name)) == 3
        building.send_signal(signal.SIGINT)
        building.wait(100)
    assert building.returncode != 0
    assert traces(lab) == []


def test_a_lab_needs_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UnavailableError, match="needs root"):
        kernel.up(Lab("never", ()))


# A buffer for all packets: a receiver that waits for a core loses none. Packets stay in order, so the first
# that marks the end comes after all others.
ARRIVED = """
import socket
SO_RCVBUFFORCE = 33
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
    receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
    receiver.bind(("", 5001))
    receiver.settimeout(30)
    print("listening", flush=True)
    got = 0
    while receiver.recv(100) != b"end":
        got += 1
    print(got)
"""
SEND = """
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for number in range(int(sys.argv[2])):
        sender.sendto(b"x", (sys.argv[1], 5001))
        if number % 50 == 49:
            time.sleep(0.005)
    for _ in range(100):
        sender.sendto(b"end", (sys.argv[1], 5001))
"""
ECHO = """
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.bind(("", 5002))
    print("listening", flush=True)
    for _ in range(5):
        one.sendto(*one.recvfrom(100))
"""
ROUND_TRIP = """
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    best_s = 9
    for _ in range(5):
        started_s = time.perf_counter()
        one.sendto(b"x", (sys.argv[1], 5002))
        one.recv(100)
        best_s = min(best_s, time.perf_counter() - started_s)
    print(best_s)
"""
ACCEPT = """
import socket
with socket.create_server(("", 5003)) as listener:
    print("listening", flush=True)
    listener.accept()[0].recv(1)
"""
SEGMENT = """
import socket, sys
with socket.create_connection((sys.argv[1], 5003)) as connection:
    print(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))
"""


def arrived_share(lab, src, dst, packets=4000):
    """The share of small packets from src that arrive at dst."""
    with python_in(lab, dst, ARRIVED) as receiver:
        assert receiver.stdout.readline() == "listening\n"
        with python_in(lab, src, SEND, lab.address(dst), packets) as sender:
            assert sender.wait() == 0
        return int(receiver.communicate(timeout=30)[0]) / packets


def with_hosts(lab, **changes):
    """The same lab with other fields of host a."""
    return dataclasses.replace(lab, hosts=(dataclasses.replace(lab.hosts[0], **changes), *lab.hosts[1:]))


def test_packets_get_lost_in_the_direction_that_is_lossy(build):
    lab = build(with_hosts(sample_lab(2, rate_mbit=None), egress_loss=0.2))
    assert arrived_share(lab, "a", "b") == pytest.approx(0.8, abs=0.04)
    assert arrived_share(lab, "b", "a") == 1
    after = with_hosts(lab, egress_loss=0.0, ingress_loss=0.5)
    kernel.shape(lab, after)
    assert arrived_share(after, "a", "b") == 1
    assert arrived_share(after, "b", "a") == pytest.approx(0.5, abs=0.04)
    final = with_hosts(after, ingress_loss=0.1)
    kernel.shape(after, final)
    assert arrived_share(final, "b", "a") == pytest.approx(0.9, abs=0.04)


def segment_bytes(lab, src, dst):
    """The payload of a full TCP segment from src to dst."""
    with python_in(lab, dst, ACCEPT) as accepting:
        assert accepting.stdout.readline() == "listening\n"
        with python_in(lab, src, SEGMENT, lab.address(dst)) as connecting:
            found = int(connecting.communicate(timeout=30)[0])
        assert accepting.wait() == 0
    return found


def test_a_host_with_a_small_mtu_sends_smaller_packets(build):
    """A busy machine makes a flow slower, never faster than its headers leave room for."""
    lab = build(with_hosts(sample_lab(2), mtu_bytes=576))
    # Headers take 52 of each packet, and 14 more on the wire.
    assert segment_bytes(lab, "a", "b") == 576 - 52
    assert rate_mbit(lab, "a", "b", 2_000_000) < 100 * 524 / 590 * 1.03
    after = with_hosts(lab, mtu_bytes=1500)
    kernel.shape(lab, after)
    assert segment_bytes(after, "a", "b") == 1500 - 52


def round_trip_s(lab, src, dst):
    with python_in(lab, dst, ECHO) as echo:
        assert echo.stdout.readline() == "listening\n"
        with python_in(lab, src, ROUND_TRIP, lab.address(dst)) as asking:
            found = float(asking.communicate(timeout=30)[0])
        assert echo.wait() == 0
    return found


def test_a_delay_makes_packets_late(build):
    """Without netem in the kernel, a process holds the packets."""
    lab = build(sample_lab(2))
    late = with_hosts(lab, egress_delay_s=5e-3, ingress_delay_s=20e-3)
    kernel.shape(lab, late)
    # A busy machine makes packets later, never earlier.
    assert round_trip_s(late, "a", "b") >= 25e-3
    kernel.shape(late, with_hosts(late, egress_delay_s=0.0))
    assert round_trip_s(late, "b", "a") >= 20e-3


def test_a_delay_of_the_trunk_is_that_of_both_uplinks(build):
    lab = build(sample_lab(3, racks=(("a", "b"), ("c",)), trunk_bytes_per_s=1e7, trunk_delay_s=10e-3))
    assert round_trip_s(lab, "a", "c") >= 40e-3
    assert kernel.down(lab.name)
    assert traces(lab) == []


def test_rates_losses_and_cables_stay_those_of_a_wire_that_gets_a_delay(build):
    lab = build(with_hosts(sample_lab(2), ingress_bytes_per_s=2_500_000))
    late = with_hosts(lab, ingress_delay_s=2e-3, egress_loss=0.5)
    kernel.shape(lab, late)
    kernel.shape(late, with_hosts(late, egress_loss=0.0))
    assert rate_mbit(lab, "b", "a", 400_000) < 25
    kernel.set_cable(lab, "a", connected=False)
    assert kernel.cables(lab) == {"a": False, "b": True}


def test_racks_may_hold_interfaces(build):
    lab = sample_lab(2, nics=2, racks=(("a/eth0", "b/eth1"), ("a/eth1", "b/eth0")), trunk_delay_s=10e-3)
    assert (lab.rack("a", 0), lab.rack("a", 1), lab.rack("b", 0), lab.rack("b", 1)) == (0, 1, 1, 0)
    build(lab)
    assert round_trip_s(lab, "a", "b") >= 40e-3
