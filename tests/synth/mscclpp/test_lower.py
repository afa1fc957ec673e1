"""Plans made of programs: proven by the judge, right on real numbers in orders drawn by chance."""

import json
from dataclasses import replace

import pytest
from sample_networks import named

from exec.runtimes.mscclpp import run_plan
from probes.base.errors import UsageError
from synth import compile as compiled, family, synthesize
from synth.mscclpp import examine_plan, plan_of, read_plan, write_plan
from synth.mscclpp.well_formed import MOST_OPERATIONS
from synth.networks.dgx import pod
from synth.networks.failures import Failures, without

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")


def program_on(network, kind, **how):
    method = "paths" if kind == "all_to_all" else "greedy"
    how = {"chunk_bytes": 4096, "chunks": 1, "method": method} | how
    return compiled(synthesize(network, kind, **how).schedule)


def hosts_of(network, width):
    return [rank // width for rank in range(network.ranks)]


def broken(network):
    """The network without its first link."""
    return without(network, Failures(links=((int(network.src[0]), int(network.dst[0])),)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fails", [False, True], ids=["whole", "broken"])
@pytest.mark.parametrize("name", ["ring of 5", "fully connected", "hosts of two"])
def test_the_plan_is_proven_and_right_in_every_order(name, fails, kind):
    network = broken(named(name)) if fails else named(name)
    program = program_on(network, kind)
    for width in (1, network.ranks, 2):
        plan = plan_of(program, hosts_of(network, width))
        verdict = examine_plan(plan)
        assert (verdict.findings, verdict.cautions) == ((), ())
    assert run_plan(plan, seed=1).right


@pytest.mark.parametrize("kind", ["all_gather", "all_reduce"])
@pytest.mark.parametrize(
    "network",
    [family("switch_switch:8x3", [1e-6, 3e-6], [100e9, 25e9]), pod("dgx-a100:2")],
    ids=["3x8", "dgx"],
)
def test_the_plan_of_a_cluster_is_proven(network, kind):
    plan = plan_of(program_on(network, kind), network.host_of.tolist())
    assert examine_plan(plan).findings == ()
    hosts = network.host_of.tolist()
    for rank, gpu in enumerate(plan.gpus):
        assert {hosts[peer] for peer in gpu.memory} <= {hosts[rank]}
        assert hosts[rank] not in {hosts[peer] for peer in gpu.port}


def test_ranks_of_one_host_need_no_ports_and_others_no_memory():
    network = named("ring of 5")
    program = program_on(network, "all_reduce")
    alone, together = (plan_of(program, hosts_of(network, width)) for width in (1, 5))
    assert not any(gpu.memory for gpu in alone.gpus)
    assert not any(gpu.port for gpu in together.gpus)


@pytest.mark.parametrize("in_place", [False, True])
def test_either_placement_of_a_program_is_proven(in_place):
    program = program_on(named("fully connected"), "all_gather")
    plan = plan_of(program, [0] * 5, in_place=in_place)
    assert plan.in_place == in_place
    assert examine_plan(plan).findings == ()
    assert run_plan(plan, 1).right


def test_a_placement_that_the_program_has_not_is_refused():
    program = replace(program_on(named("pair"), "all_gather"), in_place=False)
    with pytest.raises(UsageError, match="cannot run in place"):
        plan_of(program, [0, 0], in_place=True)


def test_a_rooted_collective_is_refused():
    program = program_on(named("pair"), "broadcast", method="auto")
    with pytest.raises(UsageError, match="cannot do broadcast"):
        plan_of(program, [0, 0])


def test_a_long_block_is_cut_at_the_limit_of_the_executor():
    network = named("pair")
    program = program_on(network, "all_reduce", chunks=64, method="ring")
    for hosts in ([0, 0], [0, 1]):
        plan = plan_of(program, hosts)
        assert plan.threadblocks_max > program.threadblocks_max
        assert max(block.stored for gpu in plan.gpus for block in gpu.threadblocks) == MOST_OPERATIONS
        assert examine_plan(plan).findings == ()
        assert run_plan(plan, 3).right


def test_several_instances_are_proven():
    found = synthesize(named("ring of 5"), "all_reduce", chunk_bytes=4096, chunks=1, method="ring")
    plan = plan_of(compiled(found.schedule, instances=3), hosts_of(found.schedule.network, 2))
    assert examine_plan(plan).findings == ()
    assert max(gpu.port.count(peer) for gpu in plan.gpus for peer in gpu.port) >= 3


def test_what_is_written_is_read_back():
    plan = plan_of(program_on(named("fully connected"), "all_to_all"), hosts_of(named("fully connected"), 2))
    assert read_plan(json.loads(write_plan(plan)), "plan.json") == plan
