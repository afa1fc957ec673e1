import pytest

from probes.profiling.options import Effort
from probes.sampling.samples import Place

PLACES = [Place(f"gpu{rank}", 8) for rank in range(32)]


@pytest.mark.parametrize("turn", [0, 1, 7, 1_763_812_205])
def test_every_turn_measures_the_same_links(turn):
    first, other = (Effort(turn=number).plan(PLACES).rounds for number in (0, turn))
    assert sorted(map(sorted, first)) == sorted(map(sorted, other))
    assert (first == other) == (turn == 0)


@pytest.mark.parametrize("apart", [1, 60, 600, 3600, 86_400])
def test_where_a_quarter_fits_a_few_turns_reach_every_link(apart):
    """However far runs are apart, in seconds."""
    everything = {pair for pairs in Effort().plan(PLACES).rounds for pair in pairs}
    reached = set()
    for number in range(24):
        rounds = Effort(turn=1_763_812_205 + apart * number).plan(PLACES).rounds
        reached |= {pair for pairs in rounds[: len(rounds) // 4] for pair in pairs}
    assert reached == everything
