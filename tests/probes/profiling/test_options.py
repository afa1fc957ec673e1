"""The time that links take, before anything is measured."""

import pytest

from probes.profiling import Effort


@pytest.mark.parametrize("ranks", [4, 64, 1024])
def test_twice_the_ranks_take_twice_the_time_unless_the_profile_is_quick(ranks):
    full, quick = Effort(), Effort(quick=True)
    assert full.fast_links_s(2 * ranks) == pytest.approx(2 * full.fast_links_s(ranks), rel=0.5)
    assert quick.fast_links_s(2 * ranks) < 1.7 * quick.fast_links_s(ranks)
    assert quick.fast_links_s(ranks) < full.fast_links_s(ranks)
