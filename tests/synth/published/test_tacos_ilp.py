"""TACOS-ILP as published: programs run and prove, even where another method already meets the bound."""

import pytest

from synth.check.schedule import check
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.milp.model import IntegerProgram
from synth.network import Link, build
from synth.networks.families import family
from synth.published import tacos_ilp
from synth.simulation.schedule import replay

CHUNK_BYTES = 1 << 20


@pytest.fixture
def solved(monkeypatch):
    """The columns of each program that a solver was given."""
    found, solve = [], IntegerProgram.solve

    def counted(model, **options):
        found.append(model.columns)
        return solve(model, **options)

    monkeypatch.setattr(IntegerProgram, "solve", counted)
    return found


@pytest.mark.parametrize(
    "kind", ["all_gather", "reduce_scatter", "broadcast", "scatter", "gather", "all_to_all"]
)
def test_the_optimum_is_found_by_programs_and_accepted(kind, solved):
    network = family("mesh:2x3", [0.5e-6], [100e9], hold_alpha=True)
    made = tacos_ilp.synthesize(network, collective(kind, 6, 1, root=1), CHUNK_BYTES)
    assert check(made) == []
    assert (made.method, made.outcome.status, made.outcome.gap) == ("tacos_ilp_published", "optimal", 0.0)
    assert solved


def test_scatter_on_a_ring_takes_three_steps_as_in_figure_5(solved):
    links = [Link(rank, (rank + 1) % 4, 0.5e-6, 1e-11) for rank in range(4)]
    network = build("one-way ring", [*"abcd"], links, hold_alpha=True)
    made = tacos_ilp.synthesize(network, collective("scatter", 4, 1), CHUNK_BYTES)
    assert replay(made).time_s == pytest.approx(3 * network.travel_s(CHUNK_BYTES)[0])
    assert solved


def test_an_all_reduce_is_two_halves_from_one_search_on_links_both_ways(solved):
    network = family("ring:4", [0.5e-6], [100e9], hold_alpha=True)
    made = tacos_ilp.synthesize(network, collective("all_reduce", 4, 4), CHUNK_BYTES)
    assert check(made) == []
    assert replay(made).time_s == pytest.approx(4 * network.travel_s(CHUNK_BYTES)[0])
    both = list(solved)
    solved.clear()
    tacos_ilp.synthesize(network, collective("all_gather", 4, 1), CHUNK_BYTES)
    assert both == solved


def test_without_time_the_rest_takes_shortest_paths_and_nothing_is_called_optimal():
    network = family("mesh:4x4", [0.5e-6], [100e9], hold_alpha=True)
    made = tacos_ilp.synthesize(network, collective("all_gather", 16, 1), CHUNK_BYTES, time_limit_s=0.3)
    assert check(made) == []
    assert made.method in ("paths", "tacos_ilp_published")
    assert made.outcome.status == ("optimal" if made.outcome.gap == 0.0 else "feasible")


def test_a_program_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(tacos_ilp, "_MOST_COLUMNS", 10)
    with pytest.raises(NotApplicableError, match="columns"):
        tacos_ilp.synthesize(family("mesh:2x3", [1e-6], [1e9]), collective("all_gather", 6, 1), CHUNK_BYTES)
