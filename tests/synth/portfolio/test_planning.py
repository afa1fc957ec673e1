"""The door to planning: which kind of schedule comes out, what contradicts itself, and what is raced."""

import pytest

from probes.base import UsageError
from synth import RaceWinner, Request, makes_attempts, synthesize
from synth.networks import family, pod
from synth.schedules import Race, Raced, Schedule

TORUS = family("torus:4x3", [5e-7], [50e9])


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"method": "symmetric", "sizes": (1, 2)}, "sizes"),
        ({"method": "symmetric", "without": "rank:3"}, "without"),
        ({"method": "periodic", "sizes": (1, 2)}, "sizes"),
        ({"method": "periodic", "race": lambda sizes, progress: []}, "race"),
        ({"sizes": (1, 2), "size_bytes": 8}, "sizes"),
        ({"size_bytes": 8, "chunk_bytes": 8}, "size"),
        ({"chunks": 4}, "chunks"),
    ],
)
def test_a_request_that_contradicts_itself_is_refused_with_its_argument(options, argument):
    with pytest.raises(UsageError) as caught:
        synthesize(TORUS, **options)
    assert caught.value.argument == argument


def test_large_networks_whose_ranks_are_alike_need_one_process():
    large = family("torus:64x64", [5e-7], [50e9])
    assert not makes_attempts(Request(large, "all_reduce"))
    assert makes_attempts(Request(large, "broadcast"))
    assert makes_attempts(Request(large, "all_reduce", listed=True))
    assert makes_attempts(Request(TORUS, "all_reduce"))
    assert not makes_attempts(Request(TORUS, "all_reduce", method="symmetric"))


def test_a_quick_request_has_all_bounds_whichever_of_its_methods_wins():
    clique = family("fc:4", [5e-7], [50e9])
    quick, ring = (
        synthesize(clique, "all_reduce", 1 << 16, **options).schedule
        for options in ({"quick": True}, {"method": "ring"})
    )
    # The bounds are computed for the first method that is tried.
    assert quick.method != "forest"
    assert quick.outcome.bounds == ring.outcome.bounds


def test_whoever_needs_all_sends_gets_them():
    for need in ("listed", "trees"):
        made = synthesize(TORUS, "all_gather", 1 << 20, method="auto", **{need: True})
        assert isinstance(made.schedule, Schedule)
    assert isinstance(synthesize(TORUS, method="symmetric", listed=True).schedule, Schedule)


@pytest.mark.parametrize("sizes", [(), (1 << 10, 1 << 20)])
def test_a_race_chooses_among_all_that_was_found_and_what_libraries_do(sizes):
    asked = []

    def race(found, progress):
        asked.extend(found)
        entry = Raced("any", 1, 1, 1.0, 1.0, 1.0, 1.0)
        return [
            RaceWinner(len(schedules) - 1, "", Race(size, ("here",), "library", 1, (entry,)))
            for size, schedules in found
        ]

    found = synthesize(pod("dgx-a100"), "all_reduce", sizes=sizes, race=race)
    assert [size for size, _ in asked] == (list(sizes) or [16 << 20])
    for size, schedules in asked:
        assert {"ring", "direct"} & {one.method for one in schedules}
        won = found.schedule.choose(size) if sizes else found.schedule
        assert won.chunk.tobytes() == schedules[-1].chunk.tobytes()
