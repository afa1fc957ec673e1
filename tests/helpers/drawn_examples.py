"""The number of examples of a property test: a share of the number beside it, and more in long runs.

Every run draws other ones, so that runs add up; CI alone draws the same ones each time.
"""

import os

__all__ = ["drawn"]

# `make test-long` asks for 4.
SHARE = float(os.environ.get("CCCTL_TEST_EXAMPLES", "0.4"))
# Hypothesis tries the simplest values first: with fewer examples these would be all.
LEAST = 10


def drawn(examples: int) -> int:
    """Return how many to draw in this run where ``examples`` would be thorough."""
    return max(min(examples, LEAST), round(examples * SHARE))
