"""Phase 2 goes along finer pieces only where these take longer to send than to start."""

from itertools import combinations

import pytest

from exec.stragglers.late_base import PIECES, late_bases, neighbours
from synth import synthesize
from synth.networks.families import family
from synth.relays.partial import fastest_late_phase
from synth.simulation.schedule import replay


@pytest.mark.parametrize(("alpha_s", "pieces"), [(1e-6, True), (1e-3, False)])
def test_pieces_that_take_longer_to_start_than_to_send_are_no_base(alpha_s, pieces):
    # Chunks of 256 KiB at 1 GB/s: their pieces take 16 us.
    schedule = synthesize(family("fully_connected:4", [alpha_s], [1e9]), "all_gather", 1 << 20).schedule
    found = late_bases(schedule)
    assert found[0] is schedule
    assert any(one.sends == PIECES * schedule.sends for one in found[1:-1]) == pieces


@pytest.mark.parametrize("ranks", range(2, 10))
def test_every_two_ranks_are_neighbours_in_one_of_few_cycles(ranks):
    cycles = neighbours(ranks)
    assert len(cycles) == ranks // 2
    assert all(sorted(cycle) == list(range(ranks)) for cycle in cycles)
    pairs = {frozenset(pair) for cycle in cycles for pair in zip(cycle, cycle[1:] + cycle[:1], strict=True)}
    assert pairs >= {frozenset(pair) for pair in combinations(range(ranks), 2)}


def test_two_late_ranks_take_no_longer_than_one_wherever_they_are():
    schedule = synthesize(family("switch:6", [1e-6], [1e8]), "all_reduce", 6 << 20).schedule
    alone_s = replay(fastest_late_phase(late_bases(schedule), [0]).schedule).time_s
    assert alone_s < 0.7 * replay(schedule).time_s
    for late in combinations(range(6), 2):
        phase = fastest_late_phase(late_bases(schedule, late=2), late)
        assert replay(phase.schedule).time_s <= 1.02 * alone_s
