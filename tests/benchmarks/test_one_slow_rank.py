"""The network of the benchmark, and that a ring pays a slow rank in full there."""

import numpy as np
import one_slow_rank
import pytest

from synth import synthesize, verify

SIZE_BYTES = 8 << 20


def test_all_links_of_the_first_rank_and_no_others_are_slow():
    network = one_slow_rank.network_of(5, 0.5)
    assert network.problems() == []
    slow = (network.src == 0) | (network.dst == 0)
    assert slow.sum() == 8
    np.testing.assert_allclose(network.beta_s_per_byte * one_slow_rank.BYTES_PER_S, np.where(slow, 2.0, 1.0))
    assert (network.alpha_s == one_slow_rank.ALPHA_S).all()


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_a_ring_pays_the_slow_rank_in_full_and_what_is_found_does_not(share):
    network, even = one_slow_rank.network_of(8, share), one_slow_rank.network_of(8, 1.0)
    ring, best = (
        synthesize(network, "all_reduce", SIZE_BYTES, method=method).schedule for method in ("ring", "forest")
    )
    assert verify(best) == []
    even_s = synthesize(even, "all_reduce", SIZE_BYTES, method="ring").schedule.outcome.time_s
    assert ring.outcome.time_s > 0.95 * even_s / share
    assert best.outcome.time_s < 0.9 * ring.outcome.time_s
