"""Plans run in orders drawn by chance: the runtime and the judge agree on every plan and every mutant."""

import random
from dataclasses import replace

import pytest
from drawn_examples import drawn
from plan_mutants import MUTATIONS, mutant
from sample_plans import FILES, needs_files, pair_plan, read_file

from exec.runtimes.mscclpp import run_plan
from exec.runtimes.mscclpp.machine import PlanMachine
from exec.runtimes.mscclpp.operations import atoms_of
from exec.runtimes.mscclpp.ordering import BlockPlace
from synth.mscclpp import examine_plan, read_plan
from synth.mscclpp.well_formed import form


def findings(plan, runs=5):
    return [finding for seed in range(runs) for finding in run_plan(plan, seed).findings]


@pytest.mark.parametrize("kind", ["memory", "port"])
def test_a_right_plan_is_right_in_every_order(kind):
    plan = read_plan(pair_plan(kind), "pair")
    for seed in range(30):
        report = run_plan(plan, seed)
        assert report.right
        assert report.elements == 3 * 2 * 2 * 2


def test_a_port_reads_from_the_start_of_an_allocation():
    document = pair_plan("port")
    for rank, gpu in enumerate(document["gpus"]):
        gpu["threadblocks"][0]["ops"][5]["src_buff"] = [{"type": "o", "index": rank, "size": 1}]
    plan = read_plan(document, "pair")
    assert form(plan) == []
    assert run_plan(plan, 1).wrong
    assert run_plan(read_plan(document | {"inplace": False}, "pair"), 1).wrong


def test_in_place_a_put_to_a_part_of_a_peer_lands_in_the_senders():
    """Rank 0 means the part of rank 1, and puts into the part of rank 0 there."""
    document = pair_plan() | {"collective": "reducescatter", "inplace": True}
    part = {"index": 0, "size": 1}
    for gpu in document["gpus"]:
        gpu |= {"input_chunks": 2, "output_chunks": 1}
        put = gpu["threadblocks"][0]["ops"][3]
        put |= {"src_buff": [{"type": "i", **part}], "dst_buff": [{"buffer_id": 0, **part}]}
    machine = PlanMachine(read_plan(document, "pair"), 1)
    where = BlockPlace(0, 0, 3, "put", -1)
    (atom,) = atoms_of(machine, where, machine.plan.gpus[0].threadblocks[0].operations[3], 0)
    for rank in range(2):
        machine.begin(rank, 0)
    for act in atom.acts:
        act()
    here, there = machine.ranks
    assert (there.input[0] == here.input[0]).all()
    assert not (there.output == here.input[0]).any()


def test_a_wait_without_a_signal_is_a_deadlock_that_is_named():
    document = pair_plan()
    del document["gpus"][0]["threadblocks"][0]["ops"][5]
    assert set(findings(read_plan(document, "pair"))) == {
        "gpus[0].threadblocks[0].ops[5] (wait) waits for a signal of rank 1, for ever",
        "gpus[1].threadblocks[0].ops[1] (wait) waits for a signal of rank 0, for ever",
    }


def test_a_signal_without_a_wait_is_left_over():
    document = pair_plan()
    document["gpus"][0]["threadblocks"][0]["ops"].append(
        {"name": "signal", "channel_ids": [0], "channel_type": "memory"}
    )
    found = findings(read_plan(document, "pair"))
    assert any(
        "signals on memory channel 0 from rank 0 to rank 1 that nobody waits for" in one for one in found
    )


def test_a_missing_nop_is_a_race():
    document = pair_plan()
    del document["gpus"][0]["threadblocks"][0]["ops"][4]
    assert any(
        one.startswith("race: gpus[0].threadblocks[0].ops[3] (put) writes")
        for one in findings(read_plan(document, "pair"))
    )


def test_a_put_to_a_rank_that_has_not_begun_is_a_race():
    document = pair_plan()
    for gpu in document["gpus"]:
        operations = gpu["threadblocks"][0]["ops"]
        operations[:] = [one for one in operations if one["name"] not in ("signal", "wait")]
    plan = read_plan(document, "pair")
    assert any("the caller of rank" in one for one in findings(plan))
    assert any(run_plan(plan, seed).wrong for seed in range(20))


def test_a_barrier_that_a_block_lacks_is_a_deadlock():
    document = pair_plan()
    operations = document["gpus"][0]["threadblocks"][0]["ops"]
    operations.insert(0, {"name": "barrier", "barrier_id": 0, "num_threadblocks": 2})
    assert "gpus[0].threadblocks[0] waits at barrier 0, for ever" in findings(read_plan(document, "pair"))


def packets_over_ports():
    """An all_reduce of two ranks: cpkt, ppkt over a port, then repkt of the peer's packets."""
    own, peer = {"type": "s", "index": 0, "size": 1}, {"type": "s", "index": 1, "size": 1}
    data = {"index": 0, "size": 1}
    operations = [
        {"name": "cpkt", "src_buff": [{"type": "i", **data}], "dst_buff": [own]},
        {"name": "nop"},
        {
            "name": "ppkt",
            "src_buff": [own],
            "dst_buff": [{"buffer_id": 0, "index": 1, "size": 1}],
            "channel_type": "port",
            "channel_ids": [0],
        },
        {"name": "repkt", "src_buff": [{"type": "i", **data}, peer], "dst_buff": [{"type": "o", **data}]},
    ]
    document = pair_plan("port") | {"collective": "allreduce", "protocol": "LL", "inplace": False}
    for gpu in document["gpus"]:
        gpu |= {"input_chunks": 1, "output_chunks": 1, "scratch_chunks": 2}
        gpu["remote_buffers"][0]["type"] = "s"
        gpu["threadblocks"][0]["ops"] = operations
    return document | {"use_double_scratch_buffer": True}


def test_packets_over_port_channels_carry_their_flags():
    plan = read_plan(packets_over_ports(), "packets")
    assert form(plan) == []
    assert all(run_plan(plan, seed).right for seed in range(10))
    single = replace(plan, double_scratch=False)
    assert any(run_plan(single, seed).findings for seed in range(10))


@needs_files
def test_the_race_in_a_plan_of_the_library_is_found():
    plan = read_file(next(path for path in FILES if path.stem == "reduce_tbg"))
    assert any(one.startswith("race: ") for one in findings(plan))


@needs_files
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_judge_and_the_runtime_agree_on_mutants(mutation):
    draw = random.Random(mutation)
    plans = [read_plan(pair_plan(kind), kind) for kind in ("memory", "port")]
    small = ("reduce", "reduce_nvls", "transfer_pack", "allgather_ring_4", "reducescatter_2x2_port")
    plans += [read_file(path) for path in FILES if path.stem in small]
    rejected = 0
    for _ in range(drawn(120)):
        changed = mutant(draw.choice(plans), mutation, draw)
        if changed is None or form(changed):
            continue
        wrong = bool(examine_plan(changed).findings)
        assert any(not run_plan(changed, seed).right for seed in range(3)) == wrong
        rejected += wrong
    assert rejected
