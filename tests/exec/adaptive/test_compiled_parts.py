"""Parts that are compiled for all ranks are what each rank would compile itself."""

import dataclasses
import queue
import time

import pytest
from limits import HANG_S

from exec.adaptive.compiled_parts import (
    LateContexts,
    compiled_part,
    late_parts,
    packed,
    part_key,
    unpacked,
    whole_parts,
)
from exec.adaptive.messages import CollectiveCall
from exec.adaptive.replanner import Replanner, first_schedules
from synth import verify
from synth.msccl.write import write_xml
from synth.networks.families import family

REQUEST = CollectiveCall("all_reduce", "sum", "float32", 1 << 16, 4)


@pytest.fixture(scope="module")
def schedules():
    return first_schedules(family("fully_connected:4", [1e-6], [1e9]), [REQUEST], range(4))


@pytest.fixture(scope="module")
def late(schedules):
    return [*late_parts(schedules)]


def test_parts_are_those_of_the_whole_and_of_few_late_ranks(schedules, late):
    assert [key[1:] for key in whole_parts(schedules)] == [((0, 1, 2, 3), True)]
    keys = [key for key, _ in late]
    assert len(keys) == len(set(keys)) == 2 * 4 + 2 * 6
    assert {len(part) for _, part, first in keys if first} == {2, 3}
    assert {len(part) for _, part, first in keys if not first} == {1, 2}


@pytest.mark.parametrize(
    ("kind", "ranks"), [("all_gather", 3), ("reduce_scatter", 3), ("all_to_all", 4), ("reduce", 4)]
)
def test_others_than_all_reduce_have_late_parts_that_nobody_joins(kind, ranks):
    asked = CollectiveCall(kind, "sum", "float32", 1 << 10, 4)
    schedules = first_schedules(family(f"fully_connected:{ranks}", [1e-6], [1e9]), [asked], range(ranks))
    parts = dict(late_parts(schedules))
    # A part of one rank alone does not begin.
    assert len(parts) == {3: 2 * 3 + 3, 4: 2 * 4 + 2 * 6}[ranks]
    for (_, part, _), one in parts.items():
        assert verify(one.phase.schedule) == []
        assert not one.phase.schedule.collective.sources.per_rank(ranks)[
            [of for of in range(ranks) if of not in part]
        ].any()


def test_a_broadcast_has_no_late_parts():
    asked = CollectiveCall("broadcast", "sum", "float32", 1 << 10, 4)
    schedules = first_schedules(family("fully_connected:4", [1e-6], [1e9]), [asked], range(4))
    assert not list(late_parts(schedules))


def test_what_was_packed_is_the_same_and_smaller(schedules, late):
    parts = dict(late)
    again = unpacked(packed(parts))
    assert again.keys() == parts.keys()
    for number, (key, part) in enumerate(parts.items()):
        assert write_xml(again[key].program) == write_xml(part.program)
        if number % 3:
            continue
        alone = compiled_part(schedules[REQUEST], key[1], first=key[2])
        assert write_xml(alone.program) == write_xml(part.program)


def test_a_part_of_all_is_the_first_in_any_case():
    assert part_key(REQUEST, [0, 1], 2, first=False) == part_key(REQUEST, (0, 1), 2, first=True)
    assert part_key(REQUEST, [0, 1], 3, first=False) != part_key(REQUEST, [0, 1], 3, first=True)


def test_a_process_that_is_asked_for_others_gives_up_on_what_it_compiles(schedules, late):
    found, replanner = queue.SimpleQueue(), Replanner(lambda plan: None, 1.0)
    try:
        replanner.compile_late(schedules, found.put)
        # There is no process yet.
        assert found.get(timeout=HANG_S) == b""
        replanner.warm(schedules[REQUEST].network, schedules)
        many = {
            dataclasses.replace(REQUEST, count=count): schedules[REQUEST] for count in range(1024, 1024 + 200)
        }
        replanner.compile_late(many, found.put)
        while not replanner._answered.locked():
            time.sleep(0.01)
        replanner.stop_compiling()
        assert found.get(timeout=HANG_S) == b""
        replanner._compile_late(schedules, found.put)
        assert unpacked(found.get(timeout=HANG_S)).keys() == dict(late).keys()
    finally:
        replanner.close()


def test_they_are_asked_for_once_and_exist_when_all_ranks_have_made_them():
    late = LateContexts()
    assert late.are_due(1, 0.0)
    number = late.ask(1)
    assert late.under_way and not late.are_due(1, 0.0)
    assert late.version_of(number) == 1 and not late.exist(1)
    late.made(1)
    assert late.exist(1) and not late.under_way and not late.are_due(1, 0.0)


def test_those_of_the_first_schedules_may_be_there_from_the_start():
    late = LateContexts(made=[0])
    assert late.exist(0) and not late.are_due(0, 0.0)
    late.begin_anew()
    assert not late.exist(0) and late.are_due(0, 0.0)


def test_an_answer_to_an_earlier_question_is_none():
    late = LateContexts()
    first = late.ask(1)
    late.cancel()
    assert late.version_of(first) is None and late.are_due(1, 0.0)
    second = late.ask(1)
    assert late.version_of(first) is None and late.version_of(second) == 1
    late.begin_anew()
    assert late.version_of(second) is None


def test_another_version_is_due_while_one_is_under_way():
    late = LateContexts()
    first = late.ask(1)
    assert late.are_due(2, 0.0)
    late.ask(2)
    assert late.version_of(first) is None
    # Ranks that were asked before have made theirs: that is worth something if they go back to it.
    late.made(1)
    assert late.exist(1) and late.under_way


def test_what_failed_is_asked_for_again_after_a_rest():
    late = LateContexts()
    late.ask(1)
    late.failed(100.0)
    assert not late.under_way
    assert not late.are_due(1, 101.0) and late.are_due(1, 110.0)
