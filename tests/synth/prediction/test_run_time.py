"""Predictions against times that can be worked out by hand."""

from dataclasses import replace
from itertools import permutations

import pytest
from sample_schedules import complete, ring_all_reduce

from probes.base.errors import UsageError
from probes.link_costs import HostMemory
from synth.collective import collective
from synth.compiler.lowering import lower
from synth.methods import direct
from synth.network import Link, build
from synth.networks.families import family
from synth.prediction import run_time
from synth.prediction.run_time import predicted_s, prediction, soonest
from synth.simulation.schedule import replay

RING = lower(ring_all_reduce(4))


def ring(alpha_s, beta_s_per_byte):
    links = [Link(rank, (rank + 1) % 4, alpha_s, beta_s_per_byte) for rank in range(4)]
    return build("ring", ["h"] * 4, links)


def test_the_prediction_scales_with_the_chunk_and_the_network():
    """Six steps of alpha and beta; instructions cost a microsecond each, three of them in a row at most."""
    assert predicted_s(RING, ring(1e-6, 1e-9), 1_000_000) == pytest.approx(6 * 1.001e-3, rel=0.02)
    assert predicted_s(RING, ring(1e-6, 2e-9), 1_000_000) == pytest.approx(6 * 2.001e-3, rel=0.02)
    assert predicted_s(RING, ring(1e-3, 1e-9), 1) == pytest.approx(6 * 1e-3, rel=0.02)


def test_sharing_lies_between_the_two_models(monkeypatch):
    network = family("switch:5", [1e-6], [1e9])
    schedule = direct.synthesize(network, collective("all_to_all", 5, 1), 1 << 20)
    compiled = lower(schedule)
    both = predicted_s(compiled, network, 1 << 20)
    assert both == pytest.approx(replay(schedule).time_s, rel=0.1)
    monkeypatch.setattr(run_time, "_MOST_WORK", 0)
    assert predicted_s(compiled, network, 1 << 20) == pytest.approx(replay(schedule).time_s, rel=0.02)


def test_a_network_without_the_links_of_the_program_is_refused():
    with pytest.raises(UsageError, match="has 3 ranks"):
        predicted_s(RING, complete(3), 1)
    line = build("line", ["h"] * 4, [Link(rank, rank + 1, 0, 1e-9) for rank in range(3)])
    with pytest.raises(UsageError, match="from rank 3 to 0: line has no such link"):
        predicted_s(RING, line, 1)


def test_the_soonest_is_what_shares_ports_best():
    """An exchange over one port a rank: pairs in rotation never meet, all at once they do."""
    network = family("switch:4", [1e-6], [1e9])
    exchange = collective("all_to_all", 4, 1)
    rotating = direct.synthesize(network, exchange, 1 << 20)
    slower = direct.synthesize(family("switch:4", [1e-6], [0.5e9]), exchange, 1 << 20)
    assert soonest([slower, rotating]) is rotating
    assert soonest([rotating, slower]) is rotating


@pytest.mark.parametrize("rate", [0.96e9, 0.9e9])
def test_what_is_sooner_by_less_than_predictions_are_good_to_does_not_win(rate):
    exchange = collective("all_to_all", 4, 1)
    first, second = (
        direct.synthesize(family("switch:4", [1e-6], [one]), exchange, 1 << 20) for one in (rate, 1e9)
    )
    assert soonest([first, second]) is (first if rate == 0.96e9 else second)


def test_of_what_is_predicted_alike_a_forest_is_taken_between_hosts():
    for slow, taken, hosts in ((1e-9, "forest", 4), (4e-9, "forest", 4), (4e-9, "greedy", 1)):
        made = _exchange_of_four(slow, hosts)
        assert soonest([made, replace(made, method="forest")]).method == taken


def test_of_what_is_predicted_alike_a_ring_is_taken_between_hosts():
    for slow in (1e-9, 4e-9):
        made = _exchange_of_four(slow, 4)
        ring = replace(ring_all_reduce(4), network=made.network, method="ring", chunk_bytes=1 << 22)
        expected_s = [predicted_s(lower(one), one.network, one.chunk_bytes) for one in (ring, made)]
        # A little sooner than the ring.
        made = replace(made, chunk_bytes=int(0.97 * made.chunk_bytes * expected_s[0] / expected_s[1]))
        assert soonest([made, ring]).method == "ring"


def _exchange_of_four(slow_s, hosts):
    """Everybody to everybody over one port a rank each way, of which rank 3 has slow ones."""
    links = [
        Link(a, b, 1e-6, slow_s if 3 in (a, b) else 1e-9, (f"{a} out", f"{b} in"))
        for a, b in permutations(range(4), 2)
    ]
    network = build("hosts", [f"h{rank % hosts}" for rank in range(4)], links)
    return replace(direct.synthesize(network, collective("all_to_all", 4, 1), 1 << 20), method="greedy")


def test_on_one_host_the_fewest_sends_are_taken_of_what_is_predicted_alike():
    network = build("host", ["host"] * 4, [Link(*ends, 1e-6, 1e-9) for ends in permutations(range(4), 2)])
    few, many = (direct.synthesize(network, collective("all_gather", 4, n), (1 << 22) // n) for n in (1, 8))
    assert soonest([many, few]) is few and soonest([few, many]) is few


def test_long_schedules_are_taken_as_they_are_but_on_one_host(monkeypatch):
    first, second = ring_all_reduce(3), ring_all_reduce(3)
    monkeypatch.setattr(run_time, "MOST_SENDS", first.sends - 1)
    assert soonest([first, second]) is first
    long, short = ring_all_reduce(3, 4), ring_all_reduce(3)
    here = replace(short.network, hosts=("h",) * 3)
    apart = replace(short.network, hosts=("a", "b", "c"))
    monkeypatch.setattr(run_time, "MOST_SENDS", short.sends)
    assert soonest([replace(long, network=here), replace(short, network=here)]).sends == short.sends
    assert soonest([replace(long, network=apart), replace(short, network=apart)]).sends == long.sends


def test_a_step_within_a_host_costs_a_small_part_of_one_between_hosts():
    within = predicted_s(RING, ring(1e-6, 1e-9), 256)
    between = predicted_s(RING, replace(ring(1e-6, 1e-9), hosts=("a", "b", "c", "d")), 256)
    assert within < 15e-6 < between


def test_on_one_host_whose_memory_was_measured_ranks_are_timed_by_what_they_copy():
    memory = HostMemory("h", (1 << 10, 1 << 30), (1e-9,) * 2, (1e-9,) * 2, (2e-9,) * 2, (2e-9,) * 2, 4)
    measured = replace(ring(1e-6, 1e-9), memory=(memory,))
    told = prediction(RING, measured, 1 << 20)
    assert told.on_host is not None
    assert told.time_s == told.on_host.time_s == predicted_s(RING, measured, 1 << 20)
    far = replace(measured, hosts=("a", "b", "c", "d"))
    assert prediction(RING, far, 1 << 20).on_host is None
    assert predicted_s(RING, far, 1 << 20) == predicted_s(RING, replace(far, memory=()), 1 << 20)
