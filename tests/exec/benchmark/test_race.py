"""Races: who takes part, and that the least median wins."""

from dataclasses import replace

import pytest

from exec.benchmark import race
from exec.benchmark.race import entrants, judged_race, race_requests
from exec.benchmark.report import Measurement, Report, Row, Spread
from synth import Request, synthesize
from synth.compiler.lowering import lower
from synth.networks.families import family
from synth.portfolio.plain import library_schedules
from synth.prediction.run_time import predicted_s

SIZE = 1 << 16


@pytest.fixture(scope="module")
def schedules():
    network = family("fully_connected:4", [1e-6], [1e10])
    return library_schedules(Request(network, "all_reduce", size_bytes=SIZE))


def measured(taken_s, iterations, wrong):
    spread = Spread(taken_s, taken_s, taken_s, taken_s, 0.0, iterations, (taken_s,) * iterations)
    return Measurement(taken_s, taken_s, taken_s, 0, 1.0, 1.0, wrong, spread)


def report_of(requests, time_s, wrong=0, wrong_of_peers=0):
    """Return the ranks' report of ``requests``; ``time_s`` gives the time of each contender."""
    rows = []
    for request in requests:
        peers = {
            name: measured(time_s(name, request.counts[0]), request.iterations, wrong_of_peers)
            for name in request.peers
        }
        for one in request.contenders:
            found = measured(time_s(one.name, request.counts[0]), request.iterations, wrong)
            rows.append(
                Row(
                    "all_reduce",
                    SIZE,
                    request.counts[0],
                    "float32",
                    "sum",
                    -1,
                    one.name,
                    None,
                    found,
                    None,
                    peers,
                )
            )
    return Report(4, ("here",), "mpi", "library", 1, 1, tuple(rows))


def test_each_method_takes_part_once_and_the_same_table_only_once(schedules):
    methods = [one.method for one in schedules]
    assert {"ring", "direct", "halving_doubling", "tree"} <= set(methods)
    found = entrants([*schedules, *(replace(one, method="again") for one in schedules)])
    names = [(one.schedule.method, one.schedule.collective.chunks == 1) for one in found]
    assert len(set(names)) == len(names) > 2
    assert "again" not in [method for method, _ in names]
    # All ranks send to one, which sends to all: the fewest messages.
    assert min(one.schedule.sends for one in found) == 6
    assert [one.predicted_s for one in found] == sorted(one.predicted_s for one in found)


def test_what_is_predicted_to_be_far_slower_does_not_run(schedules):
    ring = next(one for one in schedules if one.method == "ring")
    far = replace(ring, method="far", chunk_bytes=100 * ring.chunk_bytes, chunk=ring.chunk.copy())
    assert "far" not in [one.schedule.method for one in entrants([far, *schedules])]


def test_the_fastest_wins_and_the_race_is_told_whole(schedules):
    sizes = [(SIZE, entrants(schedules))]
    requests = race_requests(sizes)
    quick = sizes[0][1][-1].name
    report = report_of(requests, lambda name, count: 1e-6 if name == quick else 2e-6)
    [found] = judged_race(sizes, report)
    winner, race = found.winner, found.race
    assert (winner.name, found.library) == (quick, "")
    assert race.entries[0].method == winner.schedule.method
    assert race.entries[0].time_s == 1e-6
    assert len(race.entries) == len(sizes[0][1])
    assert replace(winner.schedule, race=race).problems() == []


def test_the_winner_of_a_size_stays_where_another_is_hardly_faster(schedules):
    sizes = [(size, entrants(schedules)) for size in (SIZE, 2 * SIZE, 4 * SIZE)]
    requests = race_requests(sizes)
    first, other = (one.name for one in sizes[0][1][:2])
    times = {
        SIZE: {first: 1.0, other: 2.0},
        2 * SIZE: {first: 1.0, other: 0.99},
        4 * SIZE: {first: 1.0, other: 0.9},
    }
    report = report_of(requests, lambda name, count: times[4 * count].get(name, 3.0))
    assert [one.winner.name for one in judged_race(sizes, report)] == [first, first, other]


@pytest.mark.parametrize(
    ("theirs", "wrong", "libraries"),
    [
        ({SIZE: 0.5, 2 * SIZE: 1.02, 4 * SIZE: 1.1}, 0, ["mpi", "mpi", ""]),
        ({SIZE: 0.99, 2 * SIZE: 0.9, 4 * SIZE: 2.0}, 0, ["", "mpi", ""]),
        ({SIZE: 0.5, 2 * SIZE: 0.5, 4 * SIZE: 0.5}, 1, ["", "", ""]),
    ],
)
def test_a_library_is_named_where_it_is_clearly_faster_and_right(schedules, theirs, wrong, libraries):
    sizes = [(size, entrants(schedules)) for size in (SIZE, 2 * SIZE, 4 * SIZE)]
    requests = race_requests(sizes, "mpi")
    best = sizes[0][1][0].name
    report = report_of(
        requests,
        lambda name, count: theirs[4 * count] if name == "mpi" else 1.0 if name == best else 3.0,
        wrong_of_peers=wrong,
    )
    found = list(judged_race(sizes, report))
    assert [one.library for one in found] == libraries
    assert {one.winner.name for one in found} == {best}
    for one in found:
        taken = one.library or one.winner.schedule.method
        assert one.race.entries[0].method == taken
        assert one.race.problems() == []
        assert ("mpi" in [entry.method for entry in one.race.entries]) == (not wrong)


def test_what_slows_all_for_a_while_does_not_choose(schedules):
    """The first is a tenth faster in most iterations, each of which takes another time."""
    sizes = [(SIZE, entrants(schedules)[:2])]
    report = report_of(race_requests(sizes), lambda name, count: 1.0)
    samples_s = ((9.0, 90.0, 99.0), (10.0, 100.0, 80.0))
    rows = []
    for row, times_s in zip(report.rows, samples_s, strict=True):
        found = row.out_of_place
        spread = replace(found.spread, samples=3, samples_s=times_s)
        rows.append(replace(row, out_of_place=replace(found, spread=spread, p50_s=times_s[0])))
    [found] = judged_race(sizes, replace(report, rows=tuple(rows)))
    assert (found.winner.name, found.race.iterations) == (sizes[0][1][0].name, 3)


def test_wrong_elements_are_a_bug(schedules):
    sizes = [(SIZE, entrants(schedules))]
    with pytest.raises(RuntimeError, match="wrong elements"):
        list(judged_race(sizes, report_of(race_requests(sizes), lambda name, count: 1.0, wrong=1)))


def test_what_was_compiled_for_one_size_serves_at_others_and_changes_nothing(schedules, monkeypatch):
    programs = {}
    first = entrants(schedules, programs)
    assert len(first) <= len(programs) <= len(schedules)
    assert [one.schedule for one in entrants(schedules)] == [one.schedule for one in first]
    monkeypatch.setattr(race, "lower", None)
    again = entrants(schedules, programs)
    assert [one.schedule for one in again] == [one.schedule for one in first]
    assert all(one.program is other.program for one, other in zip(first, again, strict=True))


def test_of_many_schedules_of_a_method_few_are_compiled_and_the_soonest_is_among_them():
    network = family("fully_connected:4", [1e-6], [1e10])
    many = [
        replace(ring, method="ring")
        for chunks in (2, 3, 4, 5, 6, 7, 8, 9)
        for ring in [
            synthesize(network, chunk_bytes=SIZE / 4 / chunks, chunks=chunks, method="ring").schedule
        ]
    ]
    programs = {}
    [found] = entrants(many, programs)
    assert len(programs) == 5
    times_s = [predicted_s(lower(one), network, one.chunk_bytes) for one in many]
    assert found.predicted_s == min(times_s)
