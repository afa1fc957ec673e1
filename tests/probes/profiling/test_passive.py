import numpy as np
import pytest

from probes.base.errors import UsageError
from probes.link_costs import ProfiledRank
from probes.profiling.passive import passive_profile

RANKS = [ProfiledRank(rank, f"n{rank}") for rank in range(3)]


def times(alpha_s, beta, *, late=()):
    chance = np.random.default_rng(0)
    sizes = (1 << 12, 1 << 16, 1 << 20)
    found = {
        size: [alpha_s + beta * size]
        + [2 * (alpha_s + beta * size) * chance.random() + beta * size for _ in late]
        for size in sizes
    }
    return {size: [max(one, alpha_s + beta * size) for one in seconds] for size, seconds in found.items()}


def test_the_fastest_message_of_each_size_tells_the_link_whatever_waited():
    profile = passive_profile(
        RANKS, {(0, 1): times(5e-6, 1e-9, late=range(20)), (2, 0): times(1e-6, 4e-9)}, "x"
    )
    assert profile.problems() == []
    assert list(zip(profile.links.src.tolist(), profile.links.dst.tolist(), strict=True)) == [(0, 1), (2, 0)]
    assert profile.links.beta_s_per_byte == pytest.approx([1e-9, 4e-9])
    assert profile.links.alpha_s == pytest.approx([5e-6, 1e-6])
    assert (profile.links.beta_median_s_per_byte >= profile.links.beta_s_per_byte).all()


def test_one_size_has_no_slope():
    profile = passive_profile(RANKS, {(0, 1): {1000: [1e-3]}}, "x")
    assert profile.links.flags == ("unsound",) and profile.links.beta_s_per_byte[0] == pytest.approx(1e-6)
    assert profile.problems() == []


def test_nothing_sent_is_no_profile():
    with pytest.raises(UsageError, match="no message"):
        passive_profile(RANKS, {(0, 1): {}}, "x")
