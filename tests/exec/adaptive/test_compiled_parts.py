"""Parts that are compiled for all ranks are what each rank would compile itself."""

import pytest

from exec.adaptive.compiled_parts import compiled_part, late_parts, packed, part_key, unpacked, whole_parts
from exec.adaptive.messages import Request
from exec.adaptive.replanner import Replanner, first_schedules
from synth.msccl.write import write_xml
from synth.networks.families import family
from synth.stages import verify

REQUEST = Request("all_reduce", "sum", "float32", 1 << 16, 4)


@pytest.fixture(scope="module")
def schedules():
    return first_schedules(family("fully_connected:4", [1e-6], [1e9]), [REQUEST], range(4))


def test_parts_are_those_of_the_whole_and_of_few_late_ranks(schedules):
    assert [key[1:] for key in whole_parts(schedules)] == [((0, 1, 2, 3), True)]
    keys = [key for key, _ in late_parts(schedules)]
    assert len(keys) == len(set(keys)) == 2 * 4 + 2 * 6
    assert {len(part) for _, part, first in keys if first} == {2, 3}
    assert {len(part) for _, part, first in keys if not first} == {1, 2}


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_to_all", "reduce"])
def test_others_than_all_reduce_have_late_parts_that_nobody_joins(kind):
    asked = Request(kind, "sum", "float32", 1 << 10, 4)
    schedules = first_schedules(family("fully_connected:4", [1e-6], [1e9]), [asked], range(4))
    parts = dict(late_parts(schedules))
    assert len(parts) == 2 * 4 + 2 * 6
    for (_, part, _), one in parts.items():
        assert verify(one.phase.schedule) == []
        assert not one.phase.schedule.collective.sources.per_rank(4)[
            [of for of in range(4) if of not in part]
        ].any()


def test_a_broadcast_has_no_late_parts():
    asked = Request("broadcast", "sum", "float32", 1 << 10, 4)
    schedules = first_schedules(family("fully_connected:4", [1e-6], [1e9]), [asked], range(4))
    assert not list(late_parts(schedules))


def test_what_was_packed_is_the_same_and_smaller(schedules):
    parts = dict(late_parts(schedules))
    again = unpacked(packed(parts))
    assert again.keys() == parts.keys()
    for key, part in parts.items():
        assert write_xml(again[key].program) == write_xml(part.program)
        alone = compiled_part(schedules[REQUEST], key[1], first=key[2])
        assert write_xml(alone.program) == write_xml(part.program)


def test_a_part_of_all_is_the_first_in_any_case():
    assert part_key(REQUEST, [0, 1], 2, first=False) == part_key(REQUEST, (0, 1), 2, first=True)
    assert part_key(REQUEST, [0, 1], 3, first=False) != part_key(REQUEST, [0, 1], 3, first=True)


def test_the_process_beside_the_job_compiles_them(schedules):
    found, replanner = [], Replanner(lambda plan: None, 1.0)
    try:
        replanner.warm(schedules[REQUEST].network, schedules)
        replanner._compile_late(schedules, found.append)
    finally:
        replanner.close()
    assert [unpacked(parts).keys() for parts in found] == [dict(late_parts(schedules)).keys()]
