"""The time of any number of periods is what replaying all of them gives."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from random_networks import random_networks

from synth import Request, synthesize
from synth.networks.families import family
from synth.schedules import periodic
from synth.simulation.schedule import replay, simulated


@settings(max_examples=15, deadline=None)
@given(network=random_networks(5))
def test_it_is_never_less_than_replaying_all(network):
    made = synthesize(Request(network, "all_reduce", size_bytes=1 << 18, method="periodic")).schedule
    for periods in (1, 3, 60):
        some = replace(made, periods=periods)
        assert simulated(some).time_s >= replay(some.expanded()).time_s * (1 - 1e-9)
        assert simulated(some).time_s <= some.time_s


@pytest.mark.parametrize("spec", ["mesh:4x4", "torus:4x4", "ring:6"])
def test_it_is_exact_where_a_steady_state_is_found(spec):
    network = family(spec, [5e-7], [50e9])
    made = synthesize(Request(network, "all_reduce", size_bytes=16 << 20, method="periodic")).schedule
    many = replace(made, periods=150)
    assert simulated(many).time_s == pytest.approx(replay(many.expanded()).time_s, rel=1e-9)
    more = replace(made, periods=1_000_150)
    assert simulated(more).time_s == pytest.approx(simulated(many).time_s + 1e6 * made.period_s, rel=1e-9)


def test_the_timetable_counts_where_too_many_sends_overlap(monkeypatch):
    made = synthesize(
        Request(family("mesh:4x4", [5e-7], [50e9]), "all_reduce", size_bytes=16 << 20, method="periodic")
    ).schedule
    monkeypatch.setattr(periodic, "_MOST_SENDS", 1000)
    assert simulated(made).time_s == made.time_s
