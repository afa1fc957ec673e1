"""A few cases of the campaign: faults drawn at random are named rightly, sound networks have none."""

import accept_campaign
import pytest


@pytest.mark.parametrize("kind", list(accept_campaign.FAULTS))
def test_a_drawn_fault_is_named_rightly_and_nothing_else(kind):
    row = accept_campaign.Row()
    for seed in range(3):
        accept_campaign.judge(row, accept_campaign.case(kind, seed))
    assert (row.cases, row.right, row.wrong, row.missed) == (3, 3, 0, 0)


def test_a_drawn_sound_network_has_no_faults():
    row = accept_campaign.Row()
    for seed in range(10):
        accept_campaign.judge(row, accept_campaign.case("", seed))
    assert (row.cases, row.right) == (10, 10)


def test_the_same_seed_draws_the_same_profile():
    one, other = (accept_campaign.measured(accept_campaign.case("loss", 4)) for _ in range(2))
    assert one.links.beta_s_per_byte.tolist() == other.links.beta_s_per_byte.tolist()
    assert one.segments == other.segments
