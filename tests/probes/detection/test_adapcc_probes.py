"""The active probes on machines whose contention is simulated: the decisions are ours, the times are not."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import psutil
import pytest
from machine_changes import recorded

from probes.base.errors import UnavailableError
from probes.base.identifiers import cpu_numbers
from probes.detection import merge
from probes.detection.active import contradictions, probe_host
from probes.detection.adapcc_probes import REPETITIONS, ProbeTrials, gpu_switches, nic_numa, nic_switches
from probes.live.affinity import bound_to
from probes.live.loopback import SocketLoopback
from probes.topology import Gpu, Host, Nic, NumaNode

TRIALS = ProbeTrials(seed=5)


class SimulatedCopies:
    """GPUs on switches that halve, on sockets that cost a little, each copy with noise and a slow drift."""

    def __init__(self, switch_of, socket_of=None, nic_switch=None, noise=0.01):
        self._switch, self._socket = switch_of, socket_of or {}
        self._nic_switch, self._noise = nic_switch or {}, noise
        self._random = np.random.default_rng(1)
        self.busy_nic, self.asked = "", []

    def alone_gbs(self, gpu):
        return self._gbs(gpu, "")

    def beside_gbs(self, gpu, other):
        return self._gbs(gpu, other)

    def _gbs(self, gpu, other):
        self.asked.append((gpu, other))
        level = 24.0 * (1 - 0.0002 * len(self.asked))
        if other and self._switch[gpu] == self._switch[other]:
            level *= 0.45
        elif other and self._socket.get(gpu, 0) == self._socket.get(other, 1):
            level *= 0.9
        if self._switch[gpu] == self._nic_switch.get(self.busy_nic):
            level *= 0.6
        return level * (1 + self._noise * self._random.standard_normal())


class SimulatedLoopback:
    def __init__(self, copies=None, near=None, refused=""):
        self._copies, self._near, self._refused = copies, near or {}, refused
        self._random = np.random.default_rng(2)

    def refusal(self, nic):
        return self._refused

    def round_trip_s(self, nic, node):
        seconds = 10e-6 if node == self._near[nic] else 12e-6
        return seconds * (1 + 0.01 * self._random.standard_normal())

    @contextmanager
    def busy(self, nic):
        self._copies.busy_nic = nic
        yield
        self._copies.busy_nic = ""


EIGHT = [f"0000:{n:02x}:00.0" for n in range(1, 9)]
FOUR_SWITCHES = {gpu: n // 2 for n, gpu in enumerate(EIGHT)}
TWO_SOCKETS = {gpu: n // 4 for n, gpu in enumerate(EIGHT)}


def test_gpus_on_one_switch_are_told_from_those_on_one_socket():
    copies = SimulatedCopies(FOUR_SWITCHES, TWO_SOCKETS)
    found = gpu_switches(EIGHT, copies, TRIALS)
    assert len(found) == 28
    for one in found:
        a, b = one.devices
        assert one.answer == ("yes" if FOUR_SWITCHES[a] == FOUR_SWITCHES[b] else "no")
        assert one.confidence > 0.9
        assert (one.seed, one.repetitions, one.method, one.reason) == (5, REPETITIONS, "active", "")
    assert len(copies.asked) == REPETITIONS * (56 + 8)
    assert len({tuple(copies.asked[at : at + 64]) for at in range(0, 448, 64)}) == REPETITIONS


@pytest.mark.parametrize(
    ("switches", "answers"),
    [({"a": 0, "b": 0}, ["yes"]), ({"a": 0, "b": 1}, ["no"]), ({"a": 0, "b": 1, "c": 2}, ["no"] * 3),
     ({"a": 0, "b": 0, "c": 0}, ["yes"] * 3)],
)  # fmt: skip
def test_all_or_none_on_one_switch(switches, answers):
    found = gpu_switches(list(switches), SimulatedCopies(switches), TRIALS)
    assert [one.answer for one in found] == answers


def test_the_same_seed_gives_the_same_decisions():
    one, other = (gpu_switches(EIGHT, SimulatedCopies(FOUR_SWITCHES), TRIALS) for _ in range(2))
    assert one == other


def test_nics_are_found_on_their_node_and_their_switch():
    copies = SimulatedCopies(FOUR_SWITCHES, nic_switch={"ib0": 1, "ib1": 3})
    loopback = SimulatedLoopback(copies, {"ib0": 0, "ib1": 1})
    assert [one.answer for one in nic_numa(["ib0", "ib1"], [0, 1], loopback, TRIALS)] == ["0", "1"]
    found = nic_switches(EIGHT, ["ib0", "ib1"], copies, loopback, TRIALS)
    assert [one.answer for one in found] == [",".join(EIGHT[2:4]), ",".join(EIGHT[6:8])]
    assert all(one.confidence > 0.9 for one in found)


def test_a_nic_that_disturbs_nobody_gives_no_answer():
    copies = SimulatedCopies(FOUR_SWITCHES)
    (found,) = nic_switches(EIGHT, ["ib0"], copies, SimulatedLoopback(copies), TRIALS)
    assert (found.answer, found.confidence) == ("", None)
    assert "suffer" in found.reason


def test_nodes_that_are_alike_give_no_answer():
    alike = SimulatedLoopback(near={"ib0": -1})
    (found,) = nic_numa(["ib0"], [0, 1, 2], alike, TRIALS)
    assert found.answer == ""
    assert found.measured.keys() == {"0", "1", "2"}


def test_where_traffic_cannot_reach_the_nic_nothing_is_measured():
    copies = SimulatedCopies(FOUR_SWITCHES)
    refusing = SimulatedLoopback(copies, refused="it never gets there")
    probed = [
        *nic_numa(["ib0"], [0, 1], refusing, TRIALS),
        *nic_switches(EIGHT, ["ib0"], copies, refusing, TRIALS),
    ]
    assert [(one.answer, one.reason, one.repetitions) for one in probed] == [
        ("", "it never gets there", 0)
    ] * 2
    assert copies.asked == []


def dgx_copies(host):
    """The recorded DGX A100: two GPUs to a switch, as its tree says."""
    return SimulatedCopies({gpu.bus_id: (gpu.index or 0) // 2 for gpu in host.gpus})


def test_answers_stand_beside_the_facts_and_agree_with_them():
    host = recorded().hosts[0]
    done = probe_host(host, dgx_copies, SimulatedLoopback(refused="no way"), TRIALS)
    assert replace(done, probed=()) == host
    assert {one.what for one in done.probed} == {"nic_numa", "gpu_switch", "nic_switch"}
    assert sum(one.answer == "yes" for one in done.probed) == 4
    assert list(contradictions(done)) == []


def test_a_contradiction_is_a_finding_where_the_probe_is_sure():
    host = recorded().hosts[0]
    wrong = {gpu.bus_id: {0: 9, 7: 9}.get(gpu.index, gpu.index) for gpu in host.gpus}
    done = probe_host(host, lambda _: SimulatedCopies(wrong), SimulatedLoopback(refused="no"), TRIALS)
    found = list(contradictions(done))
    assert {one.what for one in found} == {"disagree"}
    assert any("they share a PCIe switch, the passive facts say" in one.text for one in found)
    unsure = replace(done, probed=tuple(replace(one, confidence=0.6) for one in done.probed))
    assert list(contradictions(unsure)) == []


def test_a_nic_on_another_node_than_sysfs_says_is_a_finding():
    nic = Nic("ib0", "sysfs", physical=True, numa=1)
    host = Host("h", "sysfs", numa=(NumaNode(0, "t", "0"), NumaNode(1, "t", "1")), nics=(nic,))
    done = probe_host(host, dgx_copies, SimulatedLoopback(near={"ib0": 0}), TRIALS)
    (found,) = contradictions(done)
    assert found.where == "h/ib0"
    assert "NUMA node 0" in found.text
    assert "NUMA node 1" in found.text


def test_without_cuda_the_probes_of_gpus_refuse_with_the_reason():
    def no_cuda(host):
        raise UnavailableError("CuPy is not installed")

    gpu = Gpu("0000:01:00.0", "t", index=0)
    done = probe_host(Host("h", "t", gpus=(gpu,)), no_cuda, SimulatedLoopback(), TRIALS)
    assert [(one.what, one.reason) for one in done.probed] == [("gpu_switch", "CuPy is not installed")]


def test_a_socket_loopback_on_this_machine_is_refused_by_its_own_counters():
    (host,) = merge.live().hosts
    loopback = SocketLoopback(host)
    for nic in host.physical_nics:
        if not any(":" not in address for address in nic.addresses):
            assert "no IPv4 address" in loopback.refusal(nic.name)
            continue
        before = psutil.net_io_counters(pernic=True)
        assert "never reaches the NIC" in loopback.refusal(nic.name)
        after = psutil.net_io_counters(pernic=True)
        assert after["lo"].bytes_sent - before["lo"].bytes_sent >= 20 << 20
    assert "no IPv4 address" in loopback.refusal("nonesuch")


@pytest.fixture
def counted(tmp_path):
    """A NIC with the address of the loopback interface whose counter a test can set."""
    for name in ("eth9", "lo"):
        folder = tmp_path / "sys/class/net" / name / "statistics"
        folder.mkdir(parents=True)
        (folder / "tx_bytes").write_text("0\n")
    nic = Nic("eth9", "t", physical=True, addresses=("127.0.0.1",))
    nodes = (NumaNode(0, "t", "0"),)
    return SocketLoopback(Host("h", "t", nics=(nic,), numa=nodes), tmp_path), tmp_path / "sys/class/net"


def test_traffic_that_the_counter_shows_is_believed_and_timed(counted, monkeypatch):
    loopback, _ = counted
    reads = iter([0, 0, 30 << 20, 0])
    monkeypatch.setattr("probes.live.loopback.decimal", lambda path: next(reads))
    assert loopback.refusal("eth9") == ""
    assert loopback.refusal("eth9") == ""
    assert 0 < loopback.round_trip_s("eth9", 0) < 1
    with loopback.busy("eth9"):
        pass


def test_a_nic_without_a_counter_proves_nothing(counted):
    loopback, folder = counted
    (folder / "eth9/statistics/tx_bytes").unlink()
    assert "no byte counter" in loopback.refusal("eth9")


def test_a_process_is_bound_only_for_a_while():
    import os

    before = os.sched_getaffinity(0)
    one = str(min(before))
    with bound_to(one):
        assert os.sched_getaffinity(0) == set(cpu_numbers(one))
    assert os.sched_getaffinity(0) == before
    with bound_to("99999"):
        assert os.sched_getaffinity(0) == before
