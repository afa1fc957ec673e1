from dataclasses import replace

import numpy as np
import pytest
from few_methods import search_briefly

from exec.replan import SchedulePrediction, replanned, requests_of
from probes.base.columns import floats
from probes.base.errors import UsageError
from synth import synthesize
from synth.check.schedule import check
from synth.collective import KINDS
from synth.compiler.lowering import lower
from synth.network import Link, build
from synth.portfolio.request import CollectiveRequest, divided
from synth.prediction.run_time import predicted_s
from synth.simulation.schedule import replay

SIZE = 4 << 20


def network(slow=(), times=4.0, hosts=4, cut=()):
    """Hosts of one rank, each with a NIC that sends and one that receives; no link between ``cut`` pairs."""
    links = [
        Link(a, b, 10e-6, 1e-8 * (times if (a, b) in slow else 1), (f"out{a}", f"in{b}"))
        for a in range(hosts)
        for b in range(hosts)
        if a != b and (a, b) not in cut
    ]
    return build("lab", [f"h{rank}" for rank in range(hosts)], links)


@pytest.fixture(scope="module")
def ring():
    return synthesize(network(), "all_reduce", SIZE, method="ring").schedule


@pytest.fixture(autouse=True)
def few_methods(monkeypatch):
    search_briefly(monkeypatch)


@pytest.fixture
def around(ring):
    """Return the result of a search where a link has slowed down."""
    return replanned(ring, network({(0, 1)}), least_gain=1.05)


def test_a_forecast_is_the_prediction_of_the_program(ring):
    slower = network({(0, 1)})
    assert SchedulePrediction(ring).time_s(slower) == predicted_s(lower(ring), slower, ring.chunk_bytes)
    assert SchedulePrediction(ring).time_s(slower) > 1.5 * SchedulePrediction(ring).time_s(network())


def test_a_long_schedule_is_simulated(ring, monkeypatch):
    monkeypatch.setattr("exec.replan.MOST_SENDS", 1)
    slower = network({(0, 1)})
    assert SchedulePrediction(ring).time_s(slower) == replay(ring, slower).time_s


def test_a_network_that_lacks_a_link_is_refused(ring):
    with pytest.raises(UsageError):
        SchedulePrediction(ring).time_s(network(cut={(0, 1)}))


def test_where_a_link_has_slowed_down_a_schedule_around_it_is_taken(ring, around):
    slower, found = network({(0, 1)}), around
    assert found.searched and found.schedule is not None
    assert check(found.schedule) == []
    assert found.before_s == SchedulePrediction(ring).time_s(slower)
    assert found.after_s == SchedulePrediction(found.schedule).time_s(slower)
    assert found.gain == found.before_s / found.after_s > 1.3
    assert found.bound_s <= found.after_s
    assert found.schedule.collective.same_but_for_chunks(ring.collective)


def test_what_cannot_gain_enough_is_not_searched(ring):
    found = replanned(ring, network(), least_gain=1.5)
    assert (found.schedule, found.searched, found.gain) == (None, False, 1.0)


def test_what_gains_too_little_stays(ring):
    slower = network({(0, 1)})
    found = replanned(ring, slower, least_gain=4.0, search=True)
    assert (found.schedule, found.gain) == (None, 1.0)


def test_without_a_search_the_others_are_weighed(ring, around):
    slower, around = network({(0, 1)}), around.schedule
    assert around is not None
    back = replanned(around, network(), least_gain=1.01, others=(ring,), search=False)
    gain = SchedulePrediction(around).time_s(network()) / SchedulePrediction(ring).time_s(network())
    assert back.searched is False
    assert (back.schedule is ring) == (gain >= 1.01)
    stay = replanned(around, slower, least_gain=1.01, others=(ring,), search=False)
    assert stay.schedule is None


def test_others_that_need_a_link_that_is_gone_do_not_count(ring):
    gone = {(0, 1), (1, 0)}
    around = synthesize(network(cut=gone), "all_reduce", SIZE, method="greedy").schedule
    plan = replanned(around, network(cut=gone), least_gain=1.01, others=(ring, around), search=False)
    assert plan.schedule is None and plan.before_s == plan.after_s


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_asked_for_again_is_the_same_collective(kind):
    one = CollectiveRequest(kind, root=1 if kind in ("broadcast", "reduce", "scatter", "gather") else 0)
    asked = divided((one,), 4, 2)
    assert divided(requests_of(asked), 4, 3).same_but_for_chunks(asked)


def test_several_at_once_are_asked_for_together():
    several = divided(
        (CollectiveRequest("broadcast", 0, (0, 1)), CollectiveRequest("all_reduce", 2, (2, 3))), 4, 1
    )
    assert divided(requests_of(several), 4, 2).same_but_for_chunks(several)


def test_costs_are_those_of_the_network_not_of_the_schedule(ring):
    twice = replace(network(), beta_s_per_byte=floats(2 * network().beta_s_per_byte))
    ratio = SchedulePrediction(ring).time_s(twice) / SchedulePrediction(ring).time_s(network())
    assert np.isclose(ratio, 2.0, rtol=0.05)
