"""Additions in a row become one operation of a plan, in the same order, unless others use their places."""

from dataclasses import replace
from itertools import pairwise

import pytest

from synth import compile as compiled, family, synthesize
from synth.msccl import read_xml
from synth.mscclpp import examine_plan, plan_of, plan_time_s
from synth.mscclpp.accesses import Accesses
from synth.mscclpp.addition_chains import addition_chains
from synth.mscclpp.messages import MatchedMessages
from synth.mscclpp.timing import _OPERATION_S, _SEMAPHORE_S

KIB = 1 << 10


def direct(ranks, kind="reduce_scatter"):
    """A program in which each rank adds up what all others send, and its network."""
    network = family(f"fully_connected:{ranks}", [1e-6], [100e9])
    return compiled(synthesize(network, kind, 4 * KIB, method="direct").schedule), network


def additions(gpu):
    return [one for block in gpu.threadblocks for one in block.operations if one.name in ("re", "res")]


def names(gpu):
    return [one.name for block in gpu.threadblocks for one in block.operations]


@pytest.mark.parametrize(("kind", "sent"), [("reduce_scatter", 0), ("all_reduce", 7)])
def test_what_several_peers_send_is_added_at_once(kind, sent):
    program, network = direct(8, kind)
    plan = plan_of(program, [0] * 8)
    for gpu in plan.gpus:
        assert [len(one.src) for one in additions(gpu)] == [8]
        # The addition waits once, and so does each block that sends the sum on.
        assert names(gpu).count("sem_acquire") == 1 + sent
        assert names(gpu).count("sem_release") == 6 + (sent > 0)
    # One after the other, each addition would wait for the one before it.
    assert plan_time_s(plan, network, 4 * KIB) < 7 * _OPERATION_S + 6 * 2 * _SEMAPHORE_S


def test_more_peers_than_operands_are_added_in_groups():
    program, _ = direct(12)
    plan = plan_of(program, [0] * 12)
    assert [sorted(len(one.src) for one in additions(gpu)) for gpu in plan.gpus] == [[3, 10]] * 12
    assert examine_plan(plan).findings == ()


@pytest.mark.parametrize("ranks", [8, 12])
def test_the_order_of_the_additions_stays(ranks):
    program, _ = direct(ranks)
    messages = MatchedMessages(program, [0] * ranks, in_place=True)
    follows = messages.accesses.follows
    slots = []
    for sum_ in messages.sums.values():
        assert all(follows(later, one) for one, later in pairwise(sum_))
        slots.append([messages.into[step].slot for step in sum_])
    plan = plan_of(program, [0] * ranks, in_place=True)
    added = [[one.index for one in op.src[1:]] for gpu in plan.gpus for op in additions(gpu)]
    assert sorted(map(tuple, added)) == sorted(map(tuple, slots))


def test_a_sum_without_one_of_its_waits_is_wrong():
    plan = plan_of(direct(5)[0], [0] * 5)
    gpu = plan.gpus[0]
    (at,) = (
        at for at, block in enumerate(gpu.threadblocks) if "re" in [one.name for one in block.operations]
    )
    block = gpu.threadblocks[at]
    (acquire,) = (n for n, one in enumerate(block.operations) if one.name == "sem_acquire")
    awaited = block.operations[acquire].semaphores
    assert len(awaited) == 3
    for left in range(3):
        operations = list(block.operations)
        operations[acquire] = replace(operations[acquire], semaphores=awaited[:left] + awaited[left + 1 :])
        blocks = list(gpu.threadblocks)
        blocks[at] = replace(block, operations=tuple(operations))
        changed = replace(plan, gpus=(replace(gpu, threadblocks=tuple(blocks)), *plan.gpus[1:]))
        assert examine_plan(changed).findings


def two_additions(between, second="re", after=()):
    """Rank 0 adds s[0] and s[1] to s[2], with other steps between them and after them."""
    first = ("re", "s", 0, "s", 2)
    last = ("re", "s", 1, "s", 2) if second == "re" else ("rrs", "s", 2, "i", 0)
    steps = [("r", "i", 0, "s", 0), ("cpy", "i", 0, "s", 1), first, *between, last, *after]
    rows = "".join(
        f'<step s="{at}" type="{op}" srcbuf="{src}" srcoff="{a}" dstbuf="{dst}" dstoff="{b}" cnt="1" '
        'depid="-1" deps="-1" hasdep="0"/>'
        for at, (op, src, a, dst, b) in enumerate(steps)
    )
    sends = sum(op in ("r", "rrs") for op, *_ in steps)
    sent = "".join(
        f'<step s="{at}" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" '
        'hasdep="0"/>'
        for at in range(sends)
    )
    text = f"""<algo name="two" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="2" inplace="1"
     outofplace="0" coll="allreduce"><gpu id="0" i_chunks="1" o_chunks="1" s_chunks="4">
     <tb id="0" send="1" recv="1" chan="0">{rows}</tb></gpu>
     <gpu id="1" i_chunks="1" o_chunks="1" s_chunks="4"><tb id="0" send="0" recv="-1" chan="0">{sent}</tb>
     </gpu></algo>"""
    return list(addition_chains(Accesses(read_xml(text.encode(), "two"), in_place=True)).values())


@pytest.mark.parametrize(
    ("between", "joined"),
    [
        ((), True),
        ([("cpy", "s", 3, "i", 0)], True),
        ([("cpy", "s", 0, "s", 3)], True),
        ([("cpy", "s", 2, "s", 3)], False),
        ([("cpy", "s", 3, "s", 2)], False),
        ([("cpy", "s", 3, "s", 0)], False),
    ],
    ids=["none", "elsewhere", "operand read", "sum read", "sum overwritten", "operand overwritten"],
)
def test_additions_are_joined_if_nothing_uses_their_places_in_between(between, joined):
    last = 3 + len(between)
    assert two_additions(between) == ([[2, last]] if joined else [])


@pytest.mark.parametrize(
    ("after", "joined"),
    [
        ((), True),
        ([("cpy", "s", 3, "s", 2)], True),
        ([("cpy", "s", 2, "s", 3)], False),
        ([("re", "s", 0, "s", 2)], False),
        ([("cpy", "s", 3, "s", 2), ("cpy", "s", 2, "s", 1)], True),
    ],
    ids=["unused", "overwritten", "read", "added to", "read after a write"],
)
def test_a_sum_that_is_sent_on_is_joined_if_nothing_uses_its_place_afterwards(after, joined):
    assert two_additions([], "rrs", after) == ([[2, 3]] if joined else [])
