"""The published program's strategies as schedules: judged, compiled, and a = 0 carried out as packets."""

import pytest

from synth.check.program import judge
from synth.check.schedule import check
from synth.collective import collective
from synth.compiler.lowering import lower
from synth.errors import NotApplicableError
from synth.network import Link, build
from synth.networks.families import family
from synth.published.adapcc_milp import Choice, PublishedStrategy, Question, SubCollective
from synth.published.adapcc_schedule import MOST_RANKS, schedule_of, synthesize

UNIT_BYTES = 1000


def star():
    """Ranks 2 and 3 reach the root through rank 1."""
    links = [Link(a, b, 1e-6, 1e-9) for a, b in ((1, 0), (2, 1), (3, 1), (0, 1), (1, 2), (1, 3))]
    return build("behind one", [f"n{rank}" for rank in range(4)], links)


def strategy(aggregates):
    """Make a schedule by hand: two parts of different chunk sizes, both through rank 1."""
    network = star()
    paths = {(0, 0): (), (1, 0): (0,), (2, 0): (1, 0), (3, 0): (2, 0)}
    parts = tuple(
        SubCollective(Choice(size * UNIT_BYTES, chunk * UNIT_BYTES), paths, frozenset(aggregates), 0)
        for size, chunk in ((4, 2), (2, 1))
    )
    question = Question(network, "reduce", 6 * UNIT_BYTES, 2, tuple(part.choice for part in parts))
    return PublishedStrategy(question, parts, 1.0, 1.0, "optimal")


@pytest.mark.parametrize("kind", ["reduce", "all_reduce"])
def test_what_is_not_aggregated_goes_on_as_it_came(kind):
    shape = collective(kind, 4, 6)
    merged, apart = (schedule_of(strategy(at), shape, UNIT_BYTES, 0) for at in ([1], []))
    back = 3 * 6 if kind == "all_reduce" else 0
    # With a = 1 rank 1 sends a chunk once, with a = 0 its own and those of ranks 2 and 3.
    assert (merged.sends, apart.sends) == (3 * 6 + back, 5 * 6 + back)
    assert (merged.exchanges, apart.exchanges) == (False, True)
    for schedule in (merged, apart):
        assert schedule.problems() == []
        assert check(schedule) == []
        assert judge(lower(schedule)) == []


def test_chunks_of_a_part_follow_each_other():
    schedule = schedule_of(strategy([1]), collective("reduce", 4, 6), UNIT_BYTES, 0)
    order = list(dict.fromkeys(schedule.chunk.tolist()))
    # Half of the first part is two chunks, half of the second one.
    assert order == [0, 1, 4, 2, 3, 5]


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("kind", ["reduce", "broadcast", "all_reduce"])
def test_it_is_right_on_a_few_ranks(kind, parts):
    network = family("fully_connected:3", [5e-6], [10e9])
    found = synthesize(network, collective(kind, 3, 8), 1 << 18, sub_collectives=parts, time_limit_s=600)
    assert check(found) == []
    assert found.outcome.gap == pytest.approx(0.0, abs=0.05)


def test_two_parts_are_faster_than_one():
    network = family("fully_connected:3", [5e-6], [10e9])
    one_s, two_s = (
        synthesize(network, collective("broadcast", 3, 8), 1 << 18, sub_collectives=m).outcome.time_s
        for m in (1, 2)
    )
    assert two_s < one_s


def test_many_ranks_are_refused():
    network = family(f"ring:{MOST_RANKS + 1}", [5e-6], [10e9])
    with pytest.raises(NotApplicableError, match="adapcc serves more"):
        synthesize(network, collective("reduce", network.ranks, 4), 1000)
    with pytest.raises(NotApplicableError, match="all_gather"):
        synthesize(star(), collective("all_gather", 4, 4), 1000)
