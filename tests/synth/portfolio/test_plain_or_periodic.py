"""Choice of the kind of schedule: periodic only if tables of sends fill no pipeline."""

import pytest

from synth import Request, synthesize
from synth.check.schedule import check
from synth.errors import NotApplicableError
from synth.networks.families import family
from synth.portfolio import attempts, planning
from synth.portfolio.plain import bounds_of
from synth.schedules import PeriodicSchedule, Schedule


@pytest.fixture
def short_tables(monkeypatch):
    """Plain schedules of few sends, so that small networks are to them what large ones are otherwise."""
    short = {name: attempts.replace(method, most_sends=150) for name, method in attempts.METHODS.items()}
    monkeypatch.setattr(attempts, "METHODS", short)
    monkeypatch.setattr(planning, "METHODS", short)


def test_a_pipeline_that_no_table_fills_is_periodic(short_tables):
    network = family("ring:8", [5e-7], [50e9])
    found = synthesize(Request(network, "all_reduce", size_bytes=64 << 20))
    assert isinstance(found.schedule, PeriodicSchedule)
    assert check(found.schedule) == []
    assert found.schedule.outcome.percent_of_optimal >= 98
    assert "% of the bound" in found.why


def test_a_given_number_of_chunks_beyond_what_a_table_holds_is_periodic(short_tables):
    network = family("torus:4x4", [5e-7], [50e9])
    found = synthesize(Request(network, "all_reduce", chunk_bytes=65536, chunks=1024))
    assert isinstance(found.schedule, PeriodicSchedule)
    assert (found.schedule.chunks, found.schedule.chunk_bytes) == (1024, 65536)


def test_the_faster_kind_is_kept_with_what_was_tried_of_both(short_tables, monkeypatch):
    network = family("fat_tree:4x2/2", [5e-7], [50e9])
    monkeypatch.setattr(planning, "_FILLS_SOON", 0.0)
    request = Request(network, "all_reduce", size_bytes=64 << 20)
    found = synthesize(request)
    assert {"periodic", "ring"} <= {one.method for one in found.attempts}
    times_s = [one.time_s for one in found.attempts if one.time_s is not None]
    assert found.schedule.outcome.time_s <= min(times_s) * 1.05
    assert found.schedule.outcome.time_s >= max(bound.time_s for bound in bounds_of(request)) * (1 - 1e-9)


@pytest.mark.parametrize("spec", ["mesh:2x2", "switch:6"])
def test_where_tables_fill_pipelines_nothing_periodic_is_tried(spec):
    found = synthesize(Request(family(spec, [5e-7], [50e9]), "all_reduce", size_bytes=1 << 20))
    assert isinstance(found.schedule, Schedule)
    assert "periodic" not in {one.method for one in found.attempts}


def test_other_requests_are_served_as_ever(short_tables):
    network = family("ring:8", [5e-7], [50e9])
    gathered = synthesize(Request(network, "all_gather", size_bytes=64 << 20))
    assert isinstance(gathered.schedule, Schedule)
    listed = synthesize(Request(network, "all_reduce", size_bytes=64 << 20, listed=True))
    assert isinstance(listed.schedule, Schedule)


def test_by_name_it_is_made_or_refused():
    network = family("ring:4", [5e-7], [50e9])
    found = synthesize(Request(network, "all_reduce", size_bytes=1 << 20, method="periodic"))
    assert isinstance(found.schedule, PeriodicSchedule)
    with pytest.raises(NotApplicableError, match="all_reduce"):
        synthesize(Request(network, "all_gather", size_bytes=1 << 20, method="periodic"))
