"""Faults of a job in NCCL's log, each with its host, rank or NIC."""

import pytest
from nccl_debug_logs import hosts, nccl_debug_log

from exec.benchmark.foreign.nccl_debug import parse_nccl_debug
from probes.topology import FabricLink, Gpu, Host, Nic, Topology

NAMES = ("gpu1", "gpu2", "gpu3")


def findings(topology=None, names=NAMES, **changed):
    text = nccl_debug_log(hosts(*names, **changed))
    return parse_nccl_debug({"nccl.log": text.encode()}).findings(topology)


def all_of(**changed):
    return dict.fromkeys(NAMES, changed)


def machine(nics=("mlx5_0", "mlx5_1"), links=18, name="host"):
    """A topology of one host, which stands for each: four GPUs on NVSwitches, NICs of 400 Gbit/s."""
    buses = [f"0000:{0x1B + 0x10 * at:02x}:00.0" for at in range(4)]
    gpus = tuple(Gpu(bus, "m", index=at, arch="sm_90") for at, bus in enumerate(buses))
    fabric = (
        tuple(FabricLink(bus, "nvswitch", "switch", "nvlink", links, "m") for bus in buses) if links else ()
    )
    cards = tuple(
        Nic(nic, "m", physical=True, speed_mbit=400_000, state="up", rdma_device=nic) for nic in nics
    )
    return Topology((Host(name, "m", gpus=gpus, nics=cards, fabric=fabric),))


SOCKET = {"network": "Socket", "net": "NET/Socket"}


@pytest.mark.parametrize(
    ("name", "changed", "host", "kind", "severity", "said"),
    [
        (
            "sockets though NICs",
            {"gpu2": SOCKET},
            "gpu2",
            "socket_fallback",
            "fault",
            "NCCL found mlx5_0, mlx5_1",
        ),
        (
            "sockets, no NIC here",
            {"gpu2": {**SOCKET, "nics": ()}},
            "gpu2",
            "socket_fallback",
            "fault",
            "(eth0, veth9): NCCL found no RDMA device",
        ),
        (
            "sockets, asked for",
            all_of(**SOCKET, nics=(), environment=(("NCCL_IB_DISABLE", "1"),)),
            "gpu1",
            "socket_fallback",
            "remark",
            "NCCL_IB_DISABLE=1 is set",
        ),
        (
            "a NIC fewer",
            {"gpu3": {"nics": ("mlx5_0:1/IB",)}},
            "gpu3",
            "nics_differ",
            "fault",
            "without mlx5_1:1",
        ),
        (
            "another NIC",
            {"gpu3": {"nics": ("mlx5_0:1/IB", "mlx5_7:1/IB")}},
            "gpu3",
            "nics_differ",
            "remark",
            "without mlx5_1:1, with mlx5_7:1 instead",
        ),
        (
            "host memory though NVLink",
            {"gpu2": {"inside": "SHM/direct/direct", "environment": (("NCCL_P2P_DISABLE", "1"),)}},
            "gpu2",
            "host_memory",
            "fault",
            "although the host has NVLinks: 4 -> 5, 5 -> 6, 6 -> 7; NCCL_P2P_DISABLE=1 is set",
        ),
        (
            "GDR off on one",
            {"gpu1": {"gdr": "no module"}},
            "gpu1",
            "gdr_off",
            "fault",
            "mlx5_0 (no module), mlx5_1 (no module); neither the module nvidia_peermem nor DMA-BUF",
        ),
        ("GDR off on all", all_of(gdr=""), "gpu1", "gdr_off", "remark", "2 of 2 connections to other hosts"),
        ("NVLS off on one", {"gpu3": {"nvls": False}}, "gpu3", "nvls_off", "fault", "on for gpu1, gpu2"),
        (
            "fewer channels",
            {"gpu2": {"channels": 1}},
            "gpu2",
            "channels_differ",
            "fault",
            "rank 4 has 1 channel (its search found), most ranks have 2",
        ),
        (
            "other version",
            {"gpu2": {"version": "2.18.1+cuda12.1"}},
            "gpu2",
            "versions_differ",
            "fault",
            "NCCL version 2.18.1+cuda12.1 runs on gpu2",
        ),
        (
            "plugin on all but one",
            {name: {"plugin": "Loaded net plugin AWS Libfabric (v8)"} for name in ("gpu1", "gpu2")},
            "gpu3",
            "plugin_missing",
            "fault",
            "other hosts loaded AWS Libfabric",
        ),
        (
            "plugin asked for",
            {"gpu3": {"environment": (("NCCL_NET_PLUGIN", "aws-ofi"),)}},
            "gpu3",
            "plugin_missing",
            "fault",
            "NCCL_NET_PLUGIN=aws-ofi is set",
        ),
        (
            "setting differs",
            {
                name: {"environment": (("NCCL_IB_TC", tc),)}
                for name, tc in zip(NAMES, ("106", "106", "0"), strict=True)
            },
            "gpu3",
            "environment_differs",
            "remark",
            "NCCL_IB_TC is 0, 106 on 2 hosts",
        ),
    ],
)
def test_what_is_wrong_is_named(name, changed, host, kind, severity, said):
    found = [one for one in findings(**changed) if (one.host, one.kind) == (host, kind)]
    assert [one.severity for one in found][:1] == [severity], name
    assert said in found[0].text


@pytest.mark.parametrize(
    "changed", [{"gpu2": SOCKET}, {"gpu1": {"gdr": ""}}, {"gpu3": {"nics": ("mlx5_0:1/IB",)}}]
)
def test_sound_hosts_are_not_blamed(changed):
    assert {one.host for one in findings(**changed)} == set(changed)


@pytest.mark.parametrize(
    ("line", "kind", "severity"),
    [
        (
            "HEAD net_ib.cc:1 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<7> with status=12 "
            "opcode=1 len=0 vendor err 129",
            "ib_timeout",
            "fault",
        ),
        ("HEAD net_ib.cc:7 NCCL WARN NET/IB : mlx5_1:1 async fatal event: port error", "ib_port", "fault"),
        ("HEAD init.cc:7 NCCL WARN Cuda failure 'out of memory'", "cuda", "fault"),
        (
            "HEAD misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer b<53>",
            "peer_lost",
            "fault",
        ),
        ("HEAD misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]", "warning", "remark"),
    ],
)
def test_warnings_are_faults_where_they_name_a_cause(line, kind, severity):
    found = [one for one in findings(gpu2={"more": (line,)}) if one.host == "gpu2"]
    assert [(one.kind, one.severity) for one in found] == [(kind, severity)]
    assert "(4 times)" in found[0].text


def test_pairs_that_nvlink_joins_in_the_topology():
    shared = {"gpu2": {"inside": "SHM"}}
    assert [one.kind for one in findings(machine(), **shared)] == ["host_memory"]
    [found] = findings(machine(links=0), **shared)
    assert found.severity == "remark"


def test_nics_are_compared_with_those_of_the_topology():
    assert findings(machine()) == []
    found = findings(machine(nics=("mlx5_0", "mlx5_1", "mlx5_2")))
    assert {(one.kind, one.part, one.severity) for one in found} == {("nic_unused", "mlx5_2", "remark")}
    assert {one.host for one in found} == set(NAMES) and "400 Gbit/s" in found[0].text
    found = findings(machine(nics=("mlx5_0",)))
    assert {one.kind for one in found} == {"nic_unknown"} and "mlx5_1" in found[0].text
    found = findings(machine(), **all_of(**SOCKET, nics=()))
    assert {one.kind for one in found if one.severity == "fault"} == {"socket_fallback"}


def test_switches_that_offer_sharp_which_is_off():
    found = findings(machine(), **all_of(nvls=False))
    assert {(one.kind, one.severity) for one in found} == {("nvls_off", "remark")}
    assert findings(**all_of(nvls=False)) == []


@pytest.mark.parametrize("order", [("gpu1", "gpu2"), ("gpu2", "gpu1")])
def test_of_two_hosts_the_one_with_fewer_nics_is_named(order):
    found = findings(names=order, gpu2={"nics": ("mlx5_0:1/IB",)})
    assert [(one.host, one.value, one.normal) for one in found] == [("gpu2", 1, 2)]


def test_a_rank_with_other_nics_than_its_host_is_named():
    lines = nccl_debug_log(hosts("gpu1", "gpu2")).splitlines()
    changed = [
        line.replace(" [1]mlx5_1:1/IB", "") if line.startswith("gpu2:1005:") else line for line in lines
    ]
    [found] = parse_nccl_debug({"f": "\n".join(changed).encode()}).findings()
    assert (found.host, found.part, found.kind, found.severity) == ("gpu2", "rank 5", "nics_differ", "fault")
    assert found.text == "rank 5 finds mlx5_0:1, most ranks of its host mlx5_0:1, mlx5_1:1"


def test_interfaces_that_end_at_their_host_are_told():
    found = [one for one in findings(gpu2={**SOCKET, "nics": ()}) if one.kind == "local_interface"]
    assert [(one.host, one.part, one.severity) for one in found] == [("gpu2", "veth9", "remark")]
    assert "local_interface" not in {
        one.kind for one in findings(names=("gpu2",), gpu2={**SOCKET, "nics": ()})
    }


def test_ranks_that_did_not_finish():
    lines = nccl_debug_log(hosts("gpu1", "gpu2")).splitlines()
    cut = [
        line
        for line in lines
        if not line.startswith("gpu2:1006:") or ("COMPLETE" not in line and "coll channels" not in line)
    ]
    [found] = parse_nccl_debug({"f": "\n".join(cut).encode()}).findings()
    assert (found.host, found.part, found.kind) == ("gpu2", "rank 6", "unfinished")


def test_faults_come_first():
    severities = [
        one.severity for one in findings(gpu2={"gdr": "", "environment": (("NCCL_DEBUG", "INFO"),)})
    ]
    assert severities == sorted(severities)
