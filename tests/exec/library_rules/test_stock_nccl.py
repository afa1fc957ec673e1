"""Stock NCCL's files: only what gains something, and a tuner file that covers all sizes."""

from dataclasses import replace
from itertools import pairwise

from gpu_boxes import ODD, box

from exec.library_rules import nccl, nccl_choice, plan_stock, planned_tuner_file
from probes.base.columns import floats
from probes.topology import Topology
from synth.nccl_tuning import NcclWorld, plan_tuning
from synth.networks import from_topology
from synth.networks.dgx import pod

SIZES = [1 << bit for bit in range(10, 33, 2)]


def slow_uplink(network):
    """A network whose first host sends at an eighth of the rate."""
    hosts, beta = network.host_of, network.beta_s_per_byte.copy()
    beta[(hosts[network.src] == 0) & (hosts[network.dst] != 0)] *= 8
    return replace(network, name="slow uplink", beta_s_per_byte=floats(beta))


def test_a_nominal_machine_needs_no_file():
    plan = plan_stock(pod("dgx-a100:2"), None, SIZES, "nccl", spec="dgx-a100:2")
    assert (plan.files, plan.doubts) == ((), ())
    assert plan.tuning.world.architecture == "ampere"


def test_the_choice_of_nccl_has_a_time_where_the_gpus_are_known():
    choice = nccl_choice(pod("dgx-a100:2"), "all_reduce", 1 << 24)
    plan = plan_stock(pod("dgx-a100:2"), None, [1 << 24], "", spec="dgx-a100:2")
    assert (choice,) == plan.tuning.choices["all_reduce"]
    assert nccl_choice(slow_uplink(pod("dgx-a100:2")), "all_reduce", 1 << 24) is None
    assert nccl_choice(pod("dgx-a100:2"), "all_to_all", 1 << 24) is None


def test_a_gain_whose_file_would_need_the_number_of_channels_is_a_doubt():
    plan = plan_stock(slow_uplink(pod("dgx-a100:4")), None, SIZES, "nccl", spec="dgx-a100:4")
    assert plan.files == ()
    assert plan.tuning.most_gain > 1.5
    assert plan.doubts[0].startswith("no tuner file, although")


def test_an_order_that_gains_is_a_hostfile():
    network = pod("dgx-a100:4")
    hosts, beta = network.host_of, network.beta_s_per_byte.copy()
    pair = (hosts[network.src] < 2) & (hosts[network.dst] < 2) & (hosts[network.src] != hosts[network.dst])
    beta[pair] *= 8
    plan = plan_stock(replace(network, beta_s_per_byte=floats(beta)), None, SIZES, "nccl", spec="dgx-a100:4")
    assert [one.name for one in plan.files] == ["hosts"]
    assert plan.files[0].gain > 4
    names = [line.split()[0] for line in plan.files[0].content.decode().splitlines() if line[:1] != "#"]
    assert abs(names.index(network.hosts[0]) - names.index(network.hosts[8])) == 2


def test_uneven_hosts_get_a_graph_file():
    machine = Topology((box(**ODD["4 GPUs, bridges crossed"]),))
    plan = plan_stock(from_topology(machine), machine, SIZES, "/nccl")
    assert [one.name for one in plan.files] == ["graph.xml", "nccl.env"]
    assert b"NCCL_GRAPH_FILE=/nccl/graph.xml" in plan.files[1].content


def test_a_tuner_file_covers_every_size_with_a_number_of_channels():
    network = pod("dgx-a100:4")
    tuning = plan_tuning(
        slow_uplink(network), NcclWorld(32, 4, "ampere", channels=24), SIZES, believed=network
    )
    table = nccl.read_lines(planned_tuner_file(tuning), "tuner.csv")
    assert {key[0] for key in table} == {"allreduce", "allgather", "reducescatter"}
    for lines in table.values():
        cells = [line.split(",") for line in lines]
        assert cells[0][1] == "0"
        assert all(int(a[2]) + 1 == int(b[1]) for a, b in pairwise(cells))
        assert int(cells[-1][2]) == (1 << 64) - 1
        assert {cell[5] for cell in cells} == {"24"}
    assert table["allreduce", "4", "32"][-1].split(",")[3:5] == ["tree", "simple"]
