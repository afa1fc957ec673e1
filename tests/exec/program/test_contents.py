"""Contents of steps and messages."""

import numpy as np
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_schedules import random_schedule

from exec.program.contents import contents_of
from exec.program.layout import Layout
from exec.program.move import moves
from synth.compiler.lowering import lower


@settings(max_examples=drawn(20), deadline=None)
@given(st.sampled_from(["all_reduce", "all_gather"]), st.integers(2, 5), st.integers(0, 999))
def test_each_chunk_is_in_as_many_messages_as_the_schedule_sends_it(kind, ranks, seed):
    schedule = random_schedule(kind, ranks, 2, seed)
    program = lower(schedule)
    found = contents_of(program, moves(Layout(program, program.collective.share)))
    chunks = program.collective.chunks
    sent = sum(np.bincount(each.chunk, minlength=chunks) for each in found.messages.values())
    assert sent.tolist() == np.bincount(schedule.chunk, minlength=chunks).tolist()
    for chunk in range(chunks):
        others = np.arange(chunks) != chunk
        for each in found.messages.values():
            kept = set(each.owner[each.chunk == chunk].tolist())
            assert set(np.flatnonzero(~each.within(others)).tolist()) == kept
    assert not found.steps.within(np.zeros(chunks, bool))[found.steps.owner].any()
