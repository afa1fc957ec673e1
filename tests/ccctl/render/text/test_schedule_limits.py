"""Limits of a schedule: full links and ports, or a chain of sends that wait for each other."""

from itertools import pairwise

import pytest

from ccctl.render.text import limit_of_program
from ccctl.render.text.schedule import limit
from ccctl.render.text.synthesis import METHODS as DESCRIPTIONS
from synth.collective import collective
from synth.compiler import lower
from synth.methods import direct, ring
from synth.network import Link, build
from synth.networks import family
from synth.portfolio.attempts import METHODS
from synth.simulation import Costs, critical_path, simulate_program, simulated


def test_a_schedule_whose_links_are_full_is_limited_by_all_of_them():
    on = family("ring:4", [0.0], [1e9])
    made = ring.synthesize(on, collective("all_gather", 4), 1000)
    sentence = limit(made, simulated(made))
    assert "limited by link " in sentence and "and 3 about as busy" in sentence
    assert "busy 100.0 %" in sentence


def test_a_schedule_of_latency_is_limited_by_latency():
    on = family("ring:4", [1e-3], [1e9])
    made = ring.synthesize(on, collective("all_gather", 4), 1000)
    timing = simulated(made)
    path = critical_path(made, timing)
    assert len(path) == 3
    assert timing.arrival_s[path[-1]] == timing.time_s
    for before, row in pairwise(path):
        assert timing.arrival_s[before] == pytest.approx(timing.start_s[row])
    sentence = limit(made, timing)
    assert sentence.startswith("limited by latency: along the longest chain of sends bytes move for 0.1 % of")
    assert sentence.endswith("so more bandwidth would hardly help")


def test_sends_that_wait_for_a_port_are_a_chain():
    on = family("switch:4", [1e-6], [1e9])
    made = direct.synthesize(on, collective("all_to_all", 4), 1000)
    timing = simulated(made)
    path = critical_path(made, timing)
    assert timing.start_s[path[0]] == 0.0
    assert all(timing.start_s[a] < timing.start_s[b] for a, b in pairwise(path))


def test_each_method_is_described():
    # A mixture is made of the plans of several methods.
    assert set(DESCRIPTIONS) == {*METHODS, "mixture"}


def test_a_core_that_makes_all_copies_limits_schedule_and_program():
    ends = [(0, 1), (1, 2), (2, 3), (3, 0)]
    on = build("vm", ["vm"] * 4, [Link(*end, 0.0, 1e-9, ("vm core 0",)) for end in ends])
    made = ring.synthesize(on, collective("all_gather", 4), 1 << 20)
    sentence = limit(made, simulated(made))
    core = "CPU core 0 of vm (its copies)"
    assert sentence.startswith(f"limited by {core}: busy 100.0 % of the time")
    assert sentence.endswith("moves fewer bytes through it is faster")
    program = lower(made)
    timing = simulate_program(program, on, 1 << 20, Costs(step_s=0.0))
    assert timing.link_busy.max() < 0.5
    assert limit_of_program(on, timing).startswith(f"transfers, most through {core}, busy ")
