"""Plans run in orders drawn by chance: the judge accepts nothing that some order gets wrong."""

import random

import pytest
from plan_mutants import MUTATIONS, mutant
from sample_plans import FILES, needs_files, pair_plan, read_file

from exec.runtimes.mscclpp import interleaved
from probes.base.errors import UsageError
from synth.mscclpp import judge_plan, read_plan


def outcomes(plan, runs):
    return {interleaved(plan, seed) for seed in range(runs)}


@pytest.mark.parametrize("kind", ["memory", "port"])
def test_a_right_plan_is_right_in_every_order(kind):
    assert outcomes(read_plan(pair_plan(kind), "pair"), 30) == {"right"}


def test_packets_over_port_channels_are_refused_by_name():
    plan = pair_plan("port")
    receive = {"name": "rppkt", "channel_type": "port", "src_buff": [], "dst_buff": []}
    plan["gpus"][0]["threadblocks"][0]["ops"].append(receive)
    with pytest.raises(UsageError, match="rppkt: packets over port channels cannot be run here"):
        interleaved(read_plan(plan, "packets"), 0)


def test_a_wait_without_a_signal_is_a_deadlock():
    document = pair_plan()
    del document["gpus"][0]["threadblocks"][0]["ops"][5]
    assert outcomes(read_plan(document, "pair"), 5) == {"deadlock"}


def test_a_missing_nop_shows_in_the_data():
    document = pair_plan()
    del document["gpus"][0]["threadblocks"][0]["ops"][4]
    assert "wrong" in outcomes(read_plan(document, "pair"), 30)


def test_a_rank_that_ends_before_another_begins_is_judged_when_that_one_has():
    document = pair_plan()
    for gpu in document["gpus"]:
        operations = gpu["threadblocks"][0]["ops"]
        operations[:] = [one for one in operations if one["name"] not in ("signal", "wait")]
    assert "wrong" in outcomes(read_plan(document, "pair"), 20)


@needs_files
def test_what_the_judge_calls_a_race_is_one():
    plan = read_file(next(path for path in FILES if path.stem == "reduce_tbg"))
    assert "wrong" in outcomes(plan, 20)


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_no_mutant_that_is_accepted_goes_wrong(mutation):
    draw = random.Random(mutation)
    plans = [read_plan(pair_plan(kind), kind) for kind in ("memory", "port")]
    small = ("reduce", "reduce_nvls", "transfer_pack", "allgather_ring_4", "reducescatter_2x2_port")
    plans += [read_file(path) for path in FILES if path.stem in small]
    rejected = 0
    for _ in range(40):
        changed = mutant(draw.choice(plans), mutation, draw)
        if changed is None:
            continue
        if judge_plan(changed):
            rejected += 1
        else:
            assert outcomes(changed, 5) == {"right"}
    assert rejected > 5
