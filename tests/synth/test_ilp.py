"""TACOS-ILP: proven optima are no worse than greedy and no better than any bound."""

from __future__ import annotations

import pytest

from synth.bounds import bounds
from synth.check import check
from synth.collective import collective
from synth.families import family
from synth.methods import greedy, ilp
from synth.simulate import replay


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ("mesh:3x3", "all_gather"),
        ("ring:4", "all_gather"),
        ("mesh:2x3", "broadcast"),
        ("mesh:2x3", "reduce_scatter"),
    ],
)
def test_between_the_bounds_and_greedy(spec, kind):
    network = family(spec, [5e-7], [50e9])
    shape = collective(kind, network.ranks)
    schedule = ilp.synthesize(network, shape, 1 << 20, time_limit_s=30)
    assert check(schedule) == []
    time_s = replay(schedule).time_s
    assert time_s <= replay(greedy.synthesize(network, shape, 1 << 20)).time_s * (1 + 1e-9)
    assert time_s >= max(bound.time_s for bound in bounds(network, shape, 1 << 20)) * (1 - 1e-9)


def test_a_small_mesh_is_proven_optimal():
    schedule, _ = ilp.solve(family("mesh:3x3", [5e-7], [50e9]), collective("all_gather", 9), 1 << 20)
    assert schedule.outcome is not None
    assert schedule.outcome.status == "optimal"
