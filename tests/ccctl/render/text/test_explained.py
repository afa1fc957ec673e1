"""Sentences of explain about a slow row."""

import pytest

from ccctl.render.text.explained import _nics_in_words


@pytest.mark.parametrize(
    ("nics", "words"),
    [
        (2.9, "about what 3"),
        (3.0, "about what 3"),
        # Three NICs of 50 GB/s carry 150 and four 200: 174.9 lies between.
        (3.5, "between what 3 and 4"),
        (3.9, "about what 4"),
        (1.5, "between what 1 and 2"),
    ],
)
def test_a_rate_between_those_of_two_numbers_of_nics_names_both(nics, words):
    assert _nics_in_words(nics) == words
