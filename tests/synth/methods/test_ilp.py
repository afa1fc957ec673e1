"""TACOS-ILP: proven optima are no worse than greedy and no better than any bound."""

from __future__ import annotations

import time

import pytest
from sample_networks import named

from probes.base.progress import SILENT
from synth.bounds.lower_bounds import bounds
from synth.check.schedule import check
from synth.collective import KINDS, collective, several
from synth.errors import NotApplicableError
from synth.methods import greedy, ilp
from synth.milp.model import IntegerProgram
from synth.networks.failures import Failures, without
from synth.networks.families import family
from synth.portfolio.rank_subsets import serve
from synth.simulation.schedule import replay
from synth.tacos_ilp.horizon_search import HorizonSearch
from synth.tacos_ilp.time_expanded_network import bundle


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
    schedule = ilp.synthesize(network, shape, 1 << 20, time_limit_s=600)
    assert check(schedule) == []
    time_s = replay(schedule).time_s
    assert time_s <= replay(greedy.synthesize(network, shape, 1 << 20)).time_s * (1 + 1e-9)
    assert time_s >= max(bound.time_s for bound in bounds(network, shape, 1 << 20)) * (1 - 1e-9)


def test_a_small_mesh_is_proven_optimal():
    schedule, _ = ilp.solve(family("mesh:3x3", [5e-7], [50e9]), collective("all_gather", 9), 1 << 20)
    assert schedule.outcome is not None
    assert schedule.outcome.status == "optimal"


def _mesh_less_two():
    return without(family("mesh:4x4", [5e-7], [50 * 2**30]), Failures(ranks=(5, 10)))


@pytest.mark.parametrize("kind", ["all_gather", "broadcast", "reduce", "all_to_next", "all_reduce"])
def test_members_are_served_through_relays_and_on_what_has_not_failed(kind):
    members = (0, 3, 12, 15)
    shape = collective(kind, 16, 4 if kind == "all_reduce" else 1, members=members)
    found = serve(ilp.synthesize, _mesh_less_two(), shape, 1 << 16, relays=True, time_limit_s=1)
    assert check(found) == []
    assert found.method == "ilp" or found.outcome.status in ("optimal", "feasible")


@pytest.mark.parametrize("kind", KINDS)
def test_every_collective_on_shared_ports(kind):
    network = named("hosts of two")
    schedule = ilp.synthesize(network, collective(kind, network.ranks, root=1), 1 << 20, time_limit_s=0.3)
    assert check(schedule) == []


@pytest.mark.parametrize("kind", ["all_gather", "all_to_all", "reduce_scatter"])
def test_out_of_time_the_best_so_far_is_whole_and_not_called_optimal(kind):
    network = family("rfs:2x3x3", [5e-7], [200e9, 100e9, 50e9])
    schedule = ilp.synthesize(network, collective(kind, network.ranks), 1 << 20, time_limit_s=0.01)
    assert check(schedule) == []
    outcome = schedule.outcome
    left = max(0, 1 - outcome.percent_of_optimal / 100)
    assert (outcome.status == "optimal") is (left < 1e-5)
    # Without a program there is no gap of programs.
    assert outcome.gap is None or outcome.gap == pytest.approx(left, abs=1e-5)


@pytest.mark.parametrize("kind", ["all_gather", "all_reduce"])
def test_where_a_first_schedule_meets_the_bound_no_program_is_claimed(kind, monkeypatch):
    def solve(model, **options):
        raise AssertionError("a program was solved")

    monkeypatch.setattr(IntegerProgram, "solve", solve)
    network = family("fully_connected:4", [5e-7], [1e9])
    schedule = ilp.synthesize(network, collective(kind, 4, 4 if kind == "all_reduce" else 1), 1 << 20)
    assert schedule.outcome.gap is None
    assert schedule.method != "ilp"


def test_windows_one_after_the_other_are_a_schedule():
    network = family("mesh:4x4", [0.0], [1e9])
    shape = collective("all_gather", 16)
    search = HorizonSearch(network, shape, 1 << 10, 0, time.perf_counter() + 20, "cbc", SILENT, iter(()))
    bundles = bundle(network)
    search._keep(search._schedule(bundles, []))
    alone_s = search.best_s
    search._cluster(bundles)
    assert check(search.best) == []
    assert search.best_s < alone_s


def test_sums_to_several_ranks_by_hand_are_refused():
    pair = family("ring:2", [0.0], [1e9])
    with pytest.raises(NotApplicableError, match="ilp does not serve"):
        ilp.synthesize(pair, several([collective("reduce", 2), collective("broadcast", 2)]), 100)


@pytest.mark.parametrize(
    ("spec", "kind", "small"),
    [
        ("mesh:3x3", "all_gather", True),
        ("mesh:4x4", "all_gather", False),
        ("mesh:3x3", "all_to_all", True),
        ("mesh:4x4", "all_to_all", False),
        ("mesh:4x4", "broadcast", True),
    ],
)
def test_auto_asks_for_small_programs_only(spec, kind, small):
    network = family(spec, [0.0], [1e9])
    assert ilp.suits(network, collective(kind, network.ranks)) is small


def test_what_another_method_made_keeps_its_name():
    network = family("ring:4", [5e-7], [50e9])
    # The greedy is at the bound, so that no program is asked.
    for kind in ("all_gather", "all_reduce"):
        found = ilp.synthesize(network, collective(kind, 4), 1 << 20, time_limit_s=600)
        assert found.method == "greedy"
    mesh = family("mesh:2x3", [5e-7], [50e9])
    own, _ = ilp.solve(mesh, collective("all_gather", 6), 1 << 20, time_limit_s=600, warm=False)
    assert own.method == "ilp"


def test_a_step_of_time_rounds_up_and_proves_nothing():
    network = family("mesh:2x3", [5e-7], [50e9])
    shape = collective("all_gather", 6)
    step_s = float(network.hold_s(1 << 20).min()) * 0.7
    found, bound = ilp.solve(network, shape, 1 << 20, time_limit_s=600, warm=False, time_step_s=step_s)
    assert check(found) == []
    assert bound is None or bound.name != "ILP horizon"


@pytest.mark.parametrize("mechanism", ["early-termination", "time-clustering"])
@pytest.mark.parametrize("hold_alpha", [False, True])
def test_each_mechanism_alone_completes_a_schedule(mechanism, hold_alpha):
    network = family("torus:3x3", [5e-7], [50e9], hold_alpha=hold_alpha)
    found, _ = ilp.solve(
        network, collective("all_gather", 9), 1 << 20, time_limit_s=600, warm=False, mechanism=mechanism
    )
    assert check(found) == []
    assert found.method in ("ilp", "paths")
