"""A link that becomes faster does not make a regular network slower."""

from dataclasses import replace

import numpy as np

from probes.base.columns import floats
from synth.network import Network
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


def test_a_doubled_rate_costs_no_time():
    """The methods for regular networks are lost by it, and without levelling 20 % of the time."""
    torus = family("torus:3x3", [2e-6], [25e9])
    plain, faster = (
        planned(Request(network, "all_reduce", chunk_bytes=7 << 10, chunks=9, jobs=0, solving=False))
        for network in (torus, with_rate(torus, 9, 2.0))
    )
    assert faster.schedule.outcome.time_s <= 1.001 * plain.schedule.outcome.time_s
    # The time is the one on the true links, beside those of all other attempts.
    assert faster.attempts[-1].time_s == faster.schedule.outcome.time_s
    assert len(faster.attempts) > 2
