"""Plans made of programs: proven by the judge, right on real numbers in orders drawn by chance."""

import json
from dataclasses import replace

import pytest
from drawn_examples import chessboard
from sample_networks import named

from exec.runtimes.mscclpp import run_plan
from probes.base.errors import UsageError
from synth import compile as compiled, family, synthesize
from synth.msccl import read_xml
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


@pytest.mark.parametrize(("fails", "kind"), chessboard([False, True], KINDS))
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


# Rank 0 adds up both parts and sends rank 1 its own, which rank 1 receives into its output.
REDUCE_SCATTER = """<algo name="rs" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" inplace="1"
 outofplace="1" coll="reduce_scatter">
 <gpu id="0" i_chunks="2" o_chunks="1" s_chunks="2"><tb id="0" send="1" recv="1" chan="0">
  <step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
  <step s="1" type="re" srcbuf="s" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
  <step s="2" type="s" srcbuf="i" srcoff="1" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
  <step s="3" type="re" srcbuf="s" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
  <step s="4" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
 </tb></gpu>
 <gpu id="1" i_chunks="2" o_chunks="1" s_chunks="0"><tb id="0" send="0" recv="0" chan="0">
  <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
  <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
 </tb></gpu></algo>"""


@pytest.mark.parametrize("hosts", [[0, 0], [0, 1]])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_part_of_the_whole_buffer_is_put_where_it_lies(hosts, in_place):
    """In place, the executor would put to o of a peer at the sender's own part."""
    plan = plan_of(read_xml(REDUCE_SCATTER.encode(), "rs"), hosts, in_place=in_place)
    assert examine_plan(plan).findings == ()
    assert run_plan(plan, 1).right
    assert [one.buffer for one in plan.gpus[0].remote_buffers] == ["i" if in_place else "o"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 2])
def test_ports_send_from_scratch(kind, width):
    """The executor tells ports no offset of input and output in their allocations."""
    network = named("fully connected")
    plan = plan_of(program_on(network, kind), hosts_of(network, width))
    blocks = [block for gpu in plan.gpus for block in gpu.threadblocks]
    sources = [one.src[0].buffer for block in blocks for one in block.operations if one.name == "pws"]
    assert sources
    assert set(sources) == {"s"}


def test_the_range_of_sizes_is_what_the_executor_takes():
    program = program_on(named("fully connected"), "all_reduce")
    plan = plan_of(program, [0] * 5)
    longest = max(max(gpu.scratch_chunks, gpu.input_chunks) for gpu in plan.gpus)
    chunk_bytes = plan.max_bytes // plan.gpus[0].input_chunks
    assert plan.max_bytes % plan.granule_bytes == 0
    assert longest * chunk_bytes < 1 << 32 <= longest * (chunk_bytes + 16)
    assert plan.granule_bytes == 16 * plan.gpus[0].input_chunks
    large = plan_of(replace(program, min_bytes=3 << 30, max_bytes=1 << 40), [0] * 5)
    assert (large.min_bytes, large.max_bytes) == ((1 << 31) - 1, plan.max_bytes)
    small = plan_of(replace(program, min_bytes=1024, max_bytes=4096), [0] * 5)
    assert (small.min_bytes, small.max_bytes) == (1024, 4096)


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
