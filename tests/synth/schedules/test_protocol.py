"""Every kind of schedule answers alike: who takes one needs not know which it is."""

import pytest

from synth import synthesize, verify
from synth.bounds import schedule_bounds
from synth.networks import family
from synth.schedules import SCHEDULE_KINDS
from synth.simulation import replay, simulated

RING = family("ring:6", [5e-7], [50e9])
OPTIONS = {
    "schedule": {},
    "periodic": {"method": "periodic"},
    "symmetric": {"method": "symmetric"},
    "selection": {"sizes": (1 << 10, 1 << 20)},
}


@pytest.fixture(scope="module", params=SCHEDULE_KINDS)
def made(request):
    return synthesize(RING, "all_reduce", **OPTIONS[request.param]).schedule


def test_each_kind_is_made_by_a_request(made):
    assert f"{type(made).__module__}:{type(made).__qualname__}" == SCHEDULE_KINDS[made.kind]
    assert made.noun.startswith(made.kind)
    assert made.problems() == [] and verify(made) == []


def test_all_its_sends_are_as_many_as_it_says_and_do_the_whole(made):
    plain = made.expanded()
    assert plain.is_listed and plain.sends == made.sends
    assert plain.collective.same_but_for_chunks(made.whole)
    assert plain.collective.chunks == made.whole.chunks
    assert plain.chunk_bytes == made.chunk_bytes
    assert verify(plain) == []


def test_its_network_lists_all_links(made):
    network = made.listed_network()
    assert network.problems() == []
    assert (network.ranks, network.links) == (RING.ranks, RING.links)


def test_its_time_is_that_of_its_sends(made):
    assert simulated(made).time_s == pytest.approx(replay(made.expanded()).time_s, rel=1e-9)


@pytest.mark.parametrize("size_bytes", [1, 1 << 12, 1 << 24])
def test_of_another_size_it_carries_that_and_is_proven(made, size_bytes):
    other = made.of_size(size_bytes)
    assert other.whole.total_bytes(other.chunk_bytes) >= size_bytes
    assert other.outcome is None
    assert verify(other) == []


def test_it_says_what_is_proven_and_how_its_table_stands_for_all_sends(made):
    assert "all_reduce" in made.proof
    remark = made.remark(lambda time_s: f"{time_s:g} s")
    assert remark.startswith("" if made.is_listed else f"{made.kind}: ")
    assert bool(remark) == bool(made.facts) == (not made.is_listed)


def test_it_is_right_if_and_only_if_the_tables_that_it_owes_are(made):
    owed = made.obligations()
    assert owed and all(verify(one.table) == [] for one in owed)
    if not made.is_sized:
        assert [one.place for one in owed] == [f"ranges[{row}]" for row in range(len(made.ranges))]


def test_no_proven_bound_on_its_workload_is_above_its_time(made):
    [first, *others] = schedule_bounds(made)
    assert first.time_s <= simulated(made).time_s * (1 + 1e-9)
    assert all(one.time_s <= first.time_s for one in others)
    assert made.workload.collective.same_but_for_chunks(made.whole)
