"""A short campaign of mutants of demands. ``python -P tests/fuzz/demand_mutants.py`` runs it at length."""

from collections import Counter

import demand_mutants
from drawn_examples import drawn

MUTANTS = drawn(180)


def test_checker_and_oracles_agree_on_uneven_redistributed_and_ordered_artifacts():
    tally = demand_mutants.campaign(7, MUTANTS, samples=2)
    assert tally.wrong_accepts == tally.wrong_refuses == []
    ends = Counter[str]()
    for (kind, end), count in tally.verdicts.items():
        ends[f"{kind} {end}"] += count
    # Each kind has right and wrong mutants, as schedules and as programs.
    assert len(ends) == 2 * 2 * len(demand_mutants.KINDS)
