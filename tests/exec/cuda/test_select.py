"""The executor and the wires, from tables of machines."""

from dataclasses import replace

import pytest
from sample_schedules import ring_all_reduce

from exec.cuda.select import Facts, choose, refuse_multicast
from probes.base.errors import UnavailableError
from synth.collective import collective
from synth.compiler.lowering import lower
from synth.methods import nvls
from synth.networks.dgx import pod

PROGRAM = lower(ring_all_reduce(4))
BOX = Facts(
    hosts=("a",) * 4,
    gpus=("0", "1", "2", "3"),
    reachable=frozenset(("a", str(one), str(two)) for one in range(4) for two in range(4) if one != two),
    room=(264,) * 4,
    nccl=False,
    cuda_aware=False,
    ordered=True,
)
PAIRS = {"hosts": ("a", "a", "b", "b"), "gpus": ("0", "1", "0", "1")}
PAIRS["reachable"] = frozenset((host, *pair) for host in "ab" for pair in (("0", "1"), ("1", "0")))


def test_a_box_of_peers_gets_the_persistent_kernel():
    found = choose(PROGRAM, BOX)
    assert found.executor == "interpreter"
    assert set(found.wires) == {(0, 1), (1, 2), (2, 3), (3, 0)}
    assert set(found.wires.values()) == {"peer"}


@pytest.mark.parametrize(
    ("changes", "why", "wires"),
    [
        (
            {**PAIRS, "cuda_aware": True},
            "rank 1 sends to rank 2 on another host, out of its GPU's memory by MPI",
            ["peer", "direct", "peer", "direct"],
        ),
        (
            {**PAIRS, "cuda_aware": True, "nccl": True},
            "rank 1 sends to rank 2 on another host, out of its GPU's memory by NCCL",
            ["peer", "nccl", "peer", "nccl"],
        ),
        (
            {"reachable": frozenset()},
            "rank 0 sends to rank 1, whose memory its GPU cannot reach",
            ["staged"] * 4,
        ),
        (
            {**PAIRS, "ordered": False},
            "rank 1 sends to rank 2 on another host, and a CPU that is not x86",
            ["peer", "staged", "peer", "staged"],
        ),
        ({"gpus": ("0",) * 4, "nccl": True}, "ranks 0 and 1 share GPU 0 of a", ["peer"] * 4),
        ({"gpus": ("0", "0", "1", "1"), "nccl": True}, "ranks 0 and 1 share", ["peer"] * 4),
        ({"room": (264, 0, 264, 264)}, "rank 1 has 1 threadblocks, its GPU holds 0 at once", ["peer"] * 4),
    ],
)
def test_what_the_kernel_cannot_do_goes_to_contexts(changes, why, wires):
    found = choose(PROGRAM, replace(BOX, **changes))
    assert found.executor == "contexts"
    assert why in found.why
    assert [found.wires[pair] for pair in sorted(found.wires)] == wires


def test_without_proxies_the_order_of_a_cpus_stores_does_not_matter():
    assert choose(PROGRAM, replace(BOX, ordered=False)).executor == "interpreter"


def test_what_is_staged_between_hosts_is_carried_by_proxies_of_the_kernel():
    found = choose(PROGRAM, replace(BOX, **PAIRS))
    assert found.executor == "interpreter"
    assert "proxies" in found.why
    assert [found.wires[pair] for pair in sorted(found.wires)] == ["peer", "staged", "peer", "staged"]


def test_nccl_is_not_used_where_ranks_share_a_gpu():
    shared = replace(BOX, hosts=("a", "a", "b", "b"), gpus=("0", "0", "0", "0"), nccl=True)
    found = choose(PROGRAM, shared)
    assert found.wires[1, 2] == "staged"
    assert found.wires[0, 1] == "peer"


def test_programs_for_switches_are_refused_by_the_name_of_the_gpu():
    network = pod("dgx-h100+nvls")
    program = lower(nvls.synthesize(network, collective("all_reduce", 8, 8), 1 << 12))
    names = ["NVIDIA H100 80GB HBM3"] * 7 + ["NVIDIA A100-SXM4-80GB"]
    with pytest.raises(UnavailableError, match="the NVIDIA A100-SXM4-80GB of rank 7 has no multicast memory"):
        refuse_multicast(program, names, [True] * 7 + [False])
    with pytest.raises(UnavailableError, match="ccctl cannot map the multicast memory of GPUs yet"):
        refuse_multicast(program, names, [True] * 8)
    refuse_multicast(PROGRAM, names, [False] * 8)
