"""What a request sets of one method reaches that method alone."""

from __future__ import annotations

from synth.networks.families import family
from synth.portfolio.attempts import Request, plans


def test_options_of_a_method_reach_it_alone() -> None:
    network = family("switch_switch:2x2", [5e-7], [100e9, 25e9])
    asked = Request(network, "all_reduce", size_bytes=1 << 20, sub_collectives=3, time_step_s=1e-6)
    options = {plan.name: plan.options for plan in plans(asked)}
    assert options["adapcc"] == {"sub_collectives": 3}
    assert options["ilp"] == {"time_step_s": 1e-6}
    assert options["ring"] == {}


def test_a_mechanism_reaches_the_integer_programs_alone() -> None:
    network = family("ring:4", [5e-7], [100e9])
    asked = Request(network, "all_gather", size_bytes=1 << 20, mechanism="time-clustering")
    options = {plan.name: plan.options for plan in plans(asked)}
    assert options["ilp"] == {"mechanism": "time-clustering"}
    assert all(not found for name, found in options.items() if name not in ("ilp", "greedy"))
