"""The simulator of two resources: nothing overlaps, nothing starts early, and nobody waits without reason."""

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from probes.base.columns import bytes_of, floats, ints
from synth.fusion.timeline import ALL_GATHER, ALL_REDUCE, BACKWARD, FORWARD, Timeline, TimelineTask, simulate


@st.composite
def graphs(draw):
    tasks = []
    for number in range(draw(st.integers(1, 12))):
        after = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else ()
        seconds, release_s = draw(st.integers(0, 5)), draw(st.integers(0, 9))
        kind = draw(st.sampled_from((BACKWARD, ALL_GATHER)))
        tasks.append(TimelineTask(kind, number, seconds, tuple(after), draw(st.integers(0, 3)), release_s))
    return tasks


@settings(max_examples=drawn(40))
@given(graphs())
def test_no_task_overlaps_starts_early_or_waits_without_reason(tasks):
    line = simulate(tasks)
    assert line.problems() == []
    assert sorted(line.item.tolist()) == list(range(len(tasks)))
    start = dict(zip(line.item.tolist(), line.start_s.tolist(), strict=True))
    end = dict(zip(line.item.tolist(), line.end_s.tolist(), strict=True))
    moments = set(end.values()) | {0.0}
    for number, task in enumerate(tasks):
        ready_s = max([task.release_s, *(end[before] for before in task.after)])
        assert end[number] - start[number] == task.seconds
        assert start[number] >= ready_s
        assert start[number] == ready_s or start[number] in moments


def test_a_lower_number_goes_first_and_a_running_task_is_not_interrupted():
    tasks = [
        TimelineTask(BACKWARD, 0, 1.0),
        TimelineTask(ALL_REDUCE, 0, 5.0, (0,), 2),
        TimelineTask(BACKWARD, 1, 1.0, (0,)),
        TimelineTask(ALL_REDUCE, 1, 1.0, (2,), 1),
        TimelineTask(ALL_REDUCE, 2, 1.0, (2,), 0),
        TimelineTask(FORWARD, 0, 1.0, (4,)),
    ]
    line = simulate(tasks)
    sent = line.on_network == 1
    assert line.item[sent].tolist() == [0, 2, 1]
    assert line.start_s[sent].tolist() == [1.0, 6.0, 7.0]
    assert (line.time_s, line.busy_s(0), line.busy_s(1)) == (8.0, 3.0, 7.0)


@pytest.mark.parametrize(
    ("line", "path"),
    [
        (Timeline(bytes_of([0, 1]), ints([0]), floats([0, 1]), floats([1, 2])), "item: expected 2 values"),
        (Timeline(bytes_of([9]), ints([0]), floats([0]), floats([1])), "kind[0]: expected 0 to 4"),
        (Timeline(bytes_of([0]), ints([0]), floats([1]), floats([0])), "end_s[0]: expected a task"),
        (Timeline(bytes_of([0]), ints([0]), floats([0]), floats([np.inf])), "end_s[0]: expected a task"),
        (
            Timeline(bytes_of([3, 4]), ints([0, 0]), floats([0, 1]), floats([2, 3])),
            "start_s[1]: starts before",
        ),
    ],
)
def test_what_is_wrong_is_told_by_its_path(line, path):
    assert any(problem.startswith(path) for problem in line.problems())
