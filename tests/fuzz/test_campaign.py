"""What ``make fuzz`` found stays mended, and its mutants are the same each time."""

import campaign
import pytest


@pytest.mark.parametrize("number", range(0, 60, 7))
def test_a_number_and_a_seed_are_one_mutant(number):
    one, other = (campaign.mutant_of(5, number, whole=False)[0] for _ in range(2))
    assert one == other


@pytest.mark.parametrize("path", sorted(campaign.FINDINGS.glob("*.json")), ids=lambda path: path.stem)
def test_what_a_campaign_found_stays_mended(path):
    assert [f"{found.what}: {found.where}: {found.printed}" for found in campaign.replayed(path)] == []
