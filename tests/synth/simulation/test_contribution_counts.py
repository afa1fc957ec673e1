from __future__ import annotations

import numpy as np
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_schedules import random_schedule

from probes.base.columns import bytes_of, ints
from synth.collective import KINDS, collective
from synth.network import Link, build
from synth.schedules import COPY, REDUCE, Schedule
from synth.simulation.contribution_counts import contributions


@settings(max_examples=drawn(40))
@given(kind=st.sampled_from(KINDS), ranks=st.integers(2, 6), seed=st.integers(0, 1 << 30))
def test_the_same_as_with_sets_of_ranks(kind, ranks, seed):
    schedule = random_schedule(kind, ranks, 2, seed)
    reduces = np.asarray(schedule.collective.reduced)
    held = {
        (rank, chunk): {rank if reduces[chunk] else -1}
        for rank, chunk in np.argwhere(schedule.collective.held()).tolist()
    }
    expected = []
    for chunk, link, op in zip(
        schedule.chunk.tolist(), schedule.link.tolist(), schedule.op.tolist(), strict=True
    ):
        src, dst = (int(end[link]) for end in (schedule.network.src, schedule.network.dst))
        carried = held[src, chunk]
        expected.append(len(carried))
        held[dst, chunk] = carried | (held.get((dst, chunk), set()) if op == REDUCE else set())
    assert contributions(schedule).tolist() == expected


def test_a_chain_adds_up_and_what_is_copied_back_is_whole():
    links = [Link(0, 1, 0, 1e-9), Link(1, 2, 0, 1e-9), Link(2, 1, 0, 1e-9), Link(1, 0, 0, 1e-9)]
    schedule = Schedule(
        build("line", ["h"] * 3, links),
        collective("all_reduce", 3, 1),
        1000,
        "hand",
        0,
        ints([0] * 4),
        ints([0, 1, 2, 3]),
        bytes_of([REDUCE, REDUCE, COPY, COPY]),
    )
    assert contributions(schedule).tolist() == [1, 2, 3, 3]
