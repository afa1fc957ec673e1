"""A link that becomes faster does not make a regular network slower."""

from dataclasses import replace

import numpy as np

from probes.base.columns import floats
from synth.network import Link, Network, build
from synth.networks.families import family
from synth.portfolio.levelled import levelled
from synth.portfolio.planning import planned
from synth.portfolio.request import Request


def with_rate(network: Network, link: int, factor: float) -> Network:
    beta = network.beta_s_per_byte.copy()
    beta[link] /= factor
    return replace(network, beta_s_per_byte=floats(beta))


def test_a_faster_link_is_levelled_and_a_slower_one_is_not():
    torus = family("torus:4x4", [2e-6], [25e9])
    faster = levelled(with_rate(torus, 5, 2.0))
    assert faster is not None
    assert np.array_equal(faster.beta_s_per_byte, torus.beta_s_per_byte)
    assert levelled(torus) is None
    assert levelled(with_rate(torus, 5, 0.5)) is None


def test_links_that_all_differ_are_not_levelled():
    torus = family("torus:4x4", [2e-6], [25e9])
    for link in range(torus.links):
        torus = with_rate(torus, link, 1.0 + link / 100)
    assert levelled(torus) is None


def twisted_torus() -> Network:
    """Return 3x4 ranks; the links from the last row lead to the first row, two columns on."""
    links = []
    for rank in range(12):
        row, column = divmod(rank, 4)
        below = (row + 1) % 3 * 4 + (column + (2 if row == 2 else 0)) % 4
        for other in (row * 4 + (column + 1) % 4, below):
            links += [Link(rank, other, 2.1e-6, 4e-11), Link(other, rank, 2.1e-6, 4e-11)]
    return build("twisted torus", ["h"] * 12, sorted(links))


def test_a_doubled_rate_costs_no_time():
    """The methods for regular networks are lost by it, and without levelling 2 % of the time."""
    torus = twisted_torus()
    plain, faster = (
        planned(Request(network, "all_reduce", size_bytes=64 << 10))
        for network in (torus, with_rate(torus, 9, 2.0))
    )
    assert faster.schedule.outcome.time_s <= 1.001 * plain.schedule.outcome.time_s
    # The time is the one on the true links, beside those of all other attempts.
    assert faster.attempts[-1].time_s == faster.schedule.outcome.time_s
    assert len(faster.attempts) > 2
