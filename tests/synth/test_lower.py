"""The lowering is judged by the replay of what it emits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.columns import bytes_of, ints
from probes.errors import UsageError
from synth.collective import KINDS, collective
from synth.compiler.lower import lower
from synth.compiler.replay import judge
from synth.network import Link, build
from synth.program import OPS
from synth.schedule import COPY, REDUCE, Schedule


def complete(ranks, parallel=1):
    links = [
        Link(a, b, 1e-6, 1e-9) for a in range(ranks) for b in range(ranks) if a != b for _ in range(parallel)
    ]
    return build(f"complete:{ranks}", [f"h{r}" for r in range(ranks)], links)


def schedule_of(network, wanted, sends):
    """A schedule from (chunk, src, dst, op), over the first link of each pair."""
    link_of = {}
    for link, pair in enumerate(zip(network.src.tolist(), network.dst.tolist(), strict=True)):
        link_of.setdefault(pair, link)
    return Schedule(
        network=network,
        collective=wanted,
        chunk_bytes=1024,
        method="by hand",
        seed=0,
        chunk=ints([send[0] for send in sends]),
        link=ints([link_of[send[1], send[2]] for send in sends]),
        op=bytes_of([send[3] for send in sends]),
    )


def tree_sends(wanted, rng):
    """For each chunk random trees: an in-tree of reduces to a root, an out-tree of copies from it."""
    ranks, per_chunk = wanted.ranks, []
    for chunk in range(wanted.chunks):
        source, target = int(wanted.source_of()[chunk]), int(wanted.target_of()[chunk])
        root = source if source >= 0 else target if target >= 0 else int(rng.integers(ranks))
        order = [root, *(int(r) for r in rng.permutation(ranks) if r != root)]
        parent = {rank: order[int(rng.integers(at))] for at, rank in enumerate(order) if at}
        sends = []
        if wanted.reduces:
            sends += [(chunk, rank, parent[rank], REDUCE) for rank in reversed(order[1:])]
        if target < 0 or wanted.kind == "all_to_all":
            used = order[1:]
            if target >= 0:
                used, rank = [], target
                while rank != root:
                    used.append(rank)
                    rank = parent[rank]
                used.reverse()
            sends += [(chunk, parent[rank], rank, COPY) for rank in used]
        per_chunk.append(sends)
    mixed = []
    while any(per_chunk):
        sends = per_chunk[int(rng.choice([at for at, left in enumerate(per_chunk) if left]))]
        mixed.append(sends.pop(0))
    return mixed


@given(
    kind=st.sampled_from(KINDS),
    ranks=st.integers(1, 6),
    chunks=st.integers(1, 3),
    seed=st.integers(0, 1 << 30),
    depth=st.integers(1, 3),
)
def test_any_trees_lower_to_a_proven_program(kind, ranks, chunks, seed, depth):
    rng = np.random.default_rng(seed)
    wanted = collective(kind, ranks, chunks, root=int(rng.integers(ranks)))
    schedule = schedule_of(complete(ranks), wanted, tree_sends(wanted, rng))
    program = lower(schedule)
    assert program.problems() == []
    assert judge(program, depth) == []
    assert program.in_place == (kind != "all_to_all")


def test_parallel_links_get_channels_of_their_own():
    network = complete(2, parallel=2)
    wanted = collective("broadcast", 2, 2)
    schedule = Schedule(network, wanted, 8, "by hand", 0, ints([0, 1]), ints([0, 1]), bytes_of([COPY, COPY]))
    program = lower(schedule)
    assert program.channels == 2
    assert judge(program) == []


def test_a_wait_that_is_already_known_is_dropped():
    wanted = collective("broadcast", 3, 2)
    sends = [(0, 0, 1, COPY), (1, 0, 1, COPY), (1, 1, 2, COPY), (0, 1, 2, COPY)]
    program = lower(schedule_of(complete(3), wanted, sends))
    relay = [step for step in range(program.steps) if program.wait_tb[step] >= 0]
    assert [int(program.wait_step[step]) for step in relay] == [1]
    assert judge(program) == []


def test_more_than_one_wait_becomes_nops():
    # The copy that returns to rank 0 must wait for the reads of two threadblocks.
    wanted = collective("broadcast", 3, 1)
    sends = [(0, 0, 1, COPY), (0, 0, 2, COPY), (0, 1, 0, COPY)]
    program = lower(schedule_of(complete(3), wanted, sends))
    assert [OPS[op] for op in program.op].count("nop") == 1
    assert judge(program) == []


def test_a_chunk_kept_without_a_message_is_copied_to_the_output():
    program = lower(schedule_of(complete(1), collective("all_reduce", 1, 3), []))
    assert [OPS[op] for op in program.op] == ["cpy"] * 3
    assert judge(program) == []


def test_sending_what_is_not_held_names_the_send():
    wanted = collective("broadcast", 3, 1)
    with pytest.raises(UsageError, match="send 0: rank 1 sends chunk 0"):
        lower(schedule_of(complete(3), wanted, [(0, 1, 2, COPY)]))
