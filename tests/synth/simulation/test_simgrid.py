"""SimGrid, where it is installed, says of schedules what our simulator says, and shares ports where asked."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from missing_tools import no_simgrid
from sample_networks import networks

from probes.base.columns import bytes_of, ints
from probes.base.errors import UnavailableError
from synth.collective import Collective, collective
from synth.errors import NotApplicableError
from synth.methods import forest, greedy
from synth.network import Link, build
from synth.schedules import COPY, Schedule
from synth.simulation import simgrid
from synth.simulation.schedule import replay
from synth.simulation.simgrid import replay_in_simgrid, takes_turns

installed = pytest.mark.skipif(bool(no_simgrid()), reason=no_simgrid())


def _broadcast(rows, links, chunks, **options):
    chunk, link = zip(*rows, strict=True)
    ranks = 1 + max(max(each.src, each.dst) for each in links)
    network = build("hand", [f"h{rank}" for rank in range(ranks)], links, **options)
    shape = Collective("broadcast", ranks, chunks)
    return Schedule(network, shape, 1000, "hand", 0, ints(chunk), ints(link), bytes_of([COPY] * len(chunk)))


# Each of them starts a process.
@installed
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    networks(), st.sampled_from(["all_gather", "all_reduce", "all_to_all"]), st.integers(1, 3), st.booleans()
)
def test_both_simulators_agree_on_every_send_where_sends_take_turns(network, kind, chunks, trees):
    shape = collective(kind, network.ranks, chunks)
    try:
        schedule = (forest if trees else greedy).synthesize(network, shape, 1000)
    except NotApplicableError:
        assume(False)
    assume(takes_turns(schedule))
    ours, theirs = replay(schedule), replay_in_simgrid(schedule, turns=True)
    assert theirs.start_s == pytest.approx(ours.start_s, rel=1e-9, abs=1e-9 * ours.time_s)
    assert theirs.arrival_s == pytest.approx(ours.arrival_s, rel=1e-9)


@installed
@pytest.mark.parametrize(("hold_alpha", "starts_us"), [(False, [0, 1, 3, 4]), (True, [0, 3, 3, 6])])
def test_chunks_follow_each_other_down_a_line(hold_alpha, starts_us):
    links = [Link(0, 1, 2e-6, 1e-9), Link(1, 2, 2e-6, 1e-9)]
    schedule = _broadcast([(0, 0), (1, 0), (0, 1), (1, 1)], links, 2, hold_alpha=hold_alpha)
    assert np.allclose(replay_in_simgrid(schedule, turns=True).start_s, np.array(starts_us) * 1e-6)


@installed
def test_a_shared_port_is_divided_evenly_and_in_turns_it_is_not():
    links = [Link(0, 1, 1e-6, 1e-9, ("nic",)), Link(0, 2, 5e-6, 1e-9, ("nic",))]
    schedule = _broadcast([(0, 0), (0, 1)], links, 1)
    assert np.allclose(replay_in_simgrid(schedule, turns=True).arrival_s, [2e-6, 7e-6])
    # Whatever alpha is, both have half of the NIC until both are through.
    assert np.allclose(replay_in_simgrid(schedule, turns=False).arrival_s, [3e-6, 7e-6])


@installed
def test_a_slow_link_leaves_the_rest_of_a_shared_port_to_others():
    links = [Link(0, 1, 0, 4e-9, ("nic",)), Link(0, 2, 0, 1e-9, ("nic",))]
    schedule = _broadcast([(0, 0), (0, 1)], links, 1)
    assert np.allclose(replay_in_simgrid(schedule, turns=True).arrival_s, [4e-6, 5e-6])
    assert np.allclose(replay_in_simgrid(schedule, turns=False).arrival_s, [4e-6, 4e-6 / 3])


@installed
def test_a_sum_is_passed_on_when_all_parts_of_it_have_come():
    """Rank 0 adds what came from 1, then what came later from 2, and only then passes the sum on."""
    links = [Link(1, 0, 1e-6, 1e-9), Link(2, 0, 9e-6, 1e-9), Link(0, 3, 0, 1e-9)]
    network = build("star", ["a", "b", "c", "d"], links)
    shape = Collective("reduce", 4, 1, root=3)
    rows = ints([0, 0, 0]), ints([1, 0, 2]), bytes_of([1, 1, 1])
    schedule = Schedule(network, shape, 1000, "hand", 0, *rows)
    assert np.allclose(replay_in_simgrid(schedule, turns=True).start_s, [0, 0, 10e-6])


@installed
def test_nothing_to_send_takes_no_time():
    schedule = Schedule(
        build("one", ["a", "b"], [Link(0, 1, 0, 1e-9)]),
        Collective("broadcast", 2, 1),
        1000,
        "hand",
        0,
        ints([]),
        ints([]),
        bytes_of([]),
    )
    assert replay_in_simgrid(schedule, turns=True).time_s == 0.0


def test_where_it_is_missing_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.setattr(simgrid, "interpreter", lambda: None)
    with pytest.raises(UnavailableError, match="not installed") as refused:
        replay_in_simgrid(_broadcast([(0, 0)], [Link(0, 1, 0, 1e-9)], 1), turns=True)
    assert "python3-simgrid" in refused.value.hint
