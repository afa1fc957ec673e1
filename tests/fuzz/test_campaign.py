"""A short campaign of mutants, the same each time: none is a finding. ``make fuzz`` runs it at length."""

import campaign
import pytest

MUTANTS = 150


def test_no_mutant_of_a_short_campaign_is_a_finding():
    tally = campaign.campaign(11, mutants=MUTANTS, workers=1, whole=False, say=False)
    told = [
        f"{what}: {where} (mutant {number}): {found.printed}"
        for (what, where), (number, found) in tally.kinds.items()
    ]
    assert told == []
    assert tally.total == MUTANTS
    assert len(tally.mutants) > 40
    assert tally.peak_bytes < campaign.MOST_BYTES


@pytest.mark.parametrize("number", range(0, 60, 7))
def test_a_number_and_a_seed_are_one_mutant(number):
    one, other = (campaign.mutant_of(5, number, whole=False)[0] for _ in range(2))
    assert one == other


@pytest.mark.parametrize("path", sorted(campaign.FINDINGS.glob("*.json")), ids=lambda path: path.stem)
def test_what_a_campaign_found_stays_mended(path):
    assert [f"{found.what}: {found.where}: {found.printed}" for found in campaign.replayed(path)] == []
