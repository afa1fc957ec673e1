import numpy as np
import pytest
from hypothesis import given, strategies as st

from probes.sampling.link_cost import better, pace
from probes.sampling.packet_trains import HURRY, Trains

BETA = 1e-7
positive = st.floats(1e-9, 1e-5)


@given(paces=st.lists(positive, max_size=8), wholes=st.lists(positive, min_size=1, max_size=8))
def test_no_small_messages_are_believed_against_the_best_whole_transfer(paces, wholes):
    seconds = {size: [size * one for one in paces] for size in (4096, 8192) if paces}
    found = pace(Trains(seconds, wholes))
    # A burst at its head makes a whole train look up to 6 % too fast.
    assert HURRY * min(wholes) * 0.999 <= found.beta_s_per_byte <= min(wholes) * 1.061
    assert found.beta_low_s_per_byte <= found.beta_s_per_byte <= found.beta_high_s_per_byte


def test_without_a_believed_train_the_best_whole_transfer_stands_and_is_not_sound():
    found = pace(Trains({}, [3 * BETA, 2 * BETA, 9 * BETA]))
    assert found.beta_s_per_byte == 2 * BETA
    assert not found.sound
    assert found.samples == 3


def test_believed_trains_outvote_whole_transfers_that_were_held_up():
    rng = np.random.default_rng(1)
    paces = BETA * rng.normal(1, 0.005, 6)
    found = pace(Trains({4096: list(4096 * paces)}, [1.02 * BETA, 1.7 * BETA, 5 * BETA]))
    assert found.beta_s_per_byte == pytest.approx(BETA, rel=0.01)
    assert found.sound


def test_a_burst_at_the_head_of_a_whole_train_makes_no_link_faster():
    found = pace(Trains({4096: [4096 * BETA] * 3}, [0.96 * BETA]))
    assert found.beta_s_per_byte == pytest.approx(BETA)


def test_large_messages_whose_gaps_are_a_burst_are_not_believed():
    sizes = [128 << 10 << step for step in range(3)]
    burst = Trains({size: [1e-6 + BETA / 40 * size] * 5 for size in sizes}, [1.1 * BETA])
    assert pace(burst).beta_s_per_byte == pytest.approx(1.1 * BETA)
    steady = Trains({size: [1e-6 + BETA * size] * 5 for size in sizes}, [1.1 * BETA])
    assert pace(steady).beta_s_per_byte == pytest.approx(BETA)
    assert pace(Trains(steady.seconds)).beta_s_per_byte == pytest.approx(BETA)


def test_what_was_far_faster_in_company_is_not_taken():
    company, alone = (pace(Trains({4096: [4096 * beta] * 3}, [beta])) for beta in (BETA / 2, BETA))
    assert better(company, alone) == alone
    assert better(alone, company) == company
