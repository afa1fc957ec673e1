"""Periodic schedules: near the bound, as many chunks as asked for, and refusals by name."""

from dataclasses import replace
from functools import cache

import pytest

from synth import Request, synthesize
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.networks.families import family
from synth.schedules import PeriodicSchedule

MESH = family("mesh:10x10", [5e-7], [53.687e9])


@cache
def a_gibibyte_in(chunks):
    request = Request(
        MESH, "all_reduce", chunk_bytes=-(-(1 << 30) // chunks), chunks=chunks, method="periodic"
    )
    return synthesize(request).schedule


def test_ten_thousand_chunks_fill_the_pipeline_of_a_mesh():
    made = a_gibibyte_in(10_000)
    assert made.chunks == 10_000
    assert made.outcome.percent_of_optimal >= 99


def test_finer_cuts_take_no_more_sends():
    few, many = a_gibibyte_in(100), a_gibibyte_in(10_000)
    assert len(few.chunk) == len(many.chunk)
    assert many.sends == 100 * few.sends


@pytest.mark.parametrize(("spec", "percent"), [("ring:8", 95), ("torus:4x4", 95), ("dragonfly:5x4", 90)])
def test_all_of_the_size_is_carried_near_the_bound(spec, percent):
    size_bytes = (64 << 20) + 1
    made = synthesize(
        Request(family(spec, [5e-7], [50e9]), "all_reduce", size_bytes=size_bytes, method="periodic")
    ).schedule
    assert made.chunks * made.chunk_bytes >= size_bytes
    assert made.outcome.percent_of_optimal >= percent
    assert made.outcome.time_s <= made.time_s


def test_links_of_two_rates_without_ports_are_loaded_as_the_bound_says():
    network = family("dragonfly:9x8", [5e-7], [400e9, 200e9])
    made = synthesize(Request(network, "all_reduce", size_bytes=1 << 30, method="periodic")).schedule
    per_byte_s = made.period_s / made.collective.total_bytes(made.chunk_bytes)
    assert per_byte_s <= 1.01 * made.outcome.binding.time_s / (1 << 30)
    assert made.outcome.percent_of_optimal >= 95


def test_chunks_of_owners_stay_together_over_periods():
    shape = collective("all_gather", 3, 2)
    network = family("ring:3", [1e-6], [1e9])
    made = synthesize(Request(network, "all_reduce", size_bytes=1 << 16, method="periodic")).schedule
    gathered = replace(made, collective=shape, periods=4)
    assert gathered.chunk_in(0, shape.source_of() * 2).tolist() == [0, 0, 8, 8, 16, 16]
    assert gathered.chunk_in(3, 5).tolist() == 2 * 8 + 3 * 2 + 1


def test_what_it_does_not_serve_is_said():
    with pytest.raises(NotApplicableError, match="all_reduce"):
        synthesize(MESH, "all_gather", 1 << 20, method="periodic")
    with pytest.raises(NotApplicableError, match="queues"):
        synthesize(replace(MESH, queues=True), "all_reduce", 1 << 20, method="periodic")


def test_the_same_seed_gives_the_same_schedule():
    request = Request(
        family("dragonfly:5x4", [1e-6], [50e9]), "all_reduce", size_bytes=1 << 24, seed=3, method="periodic"
    )
    one, two = (synthesize(request).schedule for _ in range(2))
    assert isinstance(one, PeriodicSchedule)
    assert one.start_s.tobytes() == two.start_s.tobytes()
    assert one.link.tobytes() == two.link.tobytes()
