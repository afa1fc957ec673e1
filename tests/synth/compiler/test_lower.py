"""The lowering is judged by the replay of what it emits."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from sample_schedules import complete, random_schedule, ring_all_reduce, schedule_of

from probes.base.columns import bytes_of, ints
from probes.base.errors import UsageError
from synth import Request, synthesize
from synth.check.program import examine, judge
from synth.collective import KINDS, collective
from synth.compiler.lowering import lower
from synth.network import Link, build
from synth.networks import family
from synth.program import OPS
from synth.schedules import COPY, REDUCE, Schedule


@given(
    kind=st.sampled_from(KINDS),
    ranks=st.integers(1, 6),
    chunks=st.integers(1, 3),
    seed=st.integers(0, 1 << 30),
    instances=st.integers(1, 3),
    fuse=st.booleans(),
)
def test_any_trees_lower_to_a_proven_program(kind, ranks, chunks, seed, instances, fuse):
    ranks = max(ranks, 2) if kind == "all_to_next" else ranks
    program = lower(random_schedule(kind, ranks, chunks, seed), instances=instances, fuse=fuse)
    assert program.problems() == []
    found = examine(program)
    assert found.findings == ()
    assert found.fifo_depth <= 2
    assert program.in_place == (kind not in ("all_to_all", "all_to_next"))


def test_parallel_links_get_channels_of_their_own():
    network = complete(2, parallel=2)
    wanted = collective("broadcast", 2, 2)
    schedule = Schedule(network, wanted, 8, "by hand", 0, ints([0, 1]), ints([0, 1]), bytes_of([COPY, COPY]))
    program = lower(schedule)
    assert program.channels == 2
    assert judge(program) == []


def test_sums_and_results_under_way_together_get_connections_of_their_own():
    """Chunks go from rank to rank and back, even ones from one end and odd ones from the other."""
    sends = []
    for chunk in range(12):
        path = [0, 1, 2] if chunk % 2 else [2, 1, 0]
        sends += [(chunk, path[0], path[1], REDUCE), (chunk, path[1], path[2], REDUCE)]
        sends += [(chunk, path[2], path[1], COPY), (chunk, path[1], path[0], COPY)]
    program = lower(schedule_of(complete(3), collective("all_reduce", 3, 12), sends))
    assert program.channels == 2
    assert judge(program) == []
    links = zip(program.tb_rank.tolist(), program.tb_send.tolist(), strict=True)
    assert sorted(pair for pair in links if pair[1] >= 0) == [
        (0, 1), (0, 1), (1, 0), (1, 0), (1, 2), (1, 2), (2, 1), (2, 1)
    ]  # fmt: skip


def test_results_that_begin_after_the_sums_share_their_connection():
    assert lower(ring_all_reduce(4)).channels == 1


def test_a_wait_that_is_already_known_is_dropped():
    wanted = collective("broadcast", 3, 2)
    sends = [(0, 0, 1, COPY), (1, 0, 1, COPY), (1, 1, 2, COPY), (0, 1, 2, COPY)]
    program = lower(schedule_of(complete(3), wanted, sends), fuse=False)
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


@pytest.mark.parametrize(
    ("method", "queues", "paced"), [("forest", True, 1), ("forest", False, 0), ("ring", True, 0)]
)
def test_streams_are_paced_where_the_network_queues(method, queues, paced):
    # Ranks 0 and 1 have NICs of 1 GB/s, rank 2 one of 0.5.
    beta = [1e-9, 1e-9, 2e-9]
    links = [
        Link(src, dst, 1e-6, max(beta[src], beta[dst]), (f"out {src}", f"in {dst}"))
        for src in range(3)
        for dst in range(3)
        if src != dst
    ]
    network = replace(build("uneven", ["a", "b", "c"], links), queues=queues)
    found = synthesize(Request(network, "all_reduce", size_bytes=64 << 20, method=method)).schedule
    program = lower(found)
    assert (len(program.tb_bytes_per_s) > 0) == paced
    if paced:
        # A NIC sends no more in total than its capacity.
        for rank in range(3):
            sent = program.tb_bytes_per_s[program.tb_rank == rank].sum()
            assert 0 < sent <= 1 / beta[rank] * (1 + 1e-9)


def test_no_send_holds_back_a_copy_that_is_none_in_place():
    """An own block goes from input to output, in place onto itself, so others may send it meanwhile."""
    network = family("fully_connected:9", [1e-6], [1e9])
    program = lower(synthesize(network, "all_gather", size_bytes=9 << 10, method="direct").listed)
    assert program.in_place and program.out_of_place
    assert judge(program) == []
    assert not (program.op == OPS.index("nop")).any()
    assert (program.wait_tb[program.op == OPS.index("cpy")] < 0).all()
