"""A link that becomes faster, or ranks that may relay, do not make a schedule slower."""

from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings, strategies as st
from random_networks import random_networks

from probes.base.columns import floats
from synth.network import Network
from synth.networks.families import family
from synth.portfolio.planning import planned
from synth.portfolio.request import CollectiveRequest, Request
from synth.portfolio.variants import levelled, members_alone


def with_rate(network: Network, link: int, factor: float) -> Network:
    beta = network.beta_s_per_byte.copy()
    beta[link] /= factor
    return replace(network, beta_s_per_byte=floats(beta))


def asked(network: Network) -> Request:
    return Request(network, "all_reduce", chunk_bytes=1 << 20)


def test_a_faster_link_is_levelled_and_a_slower_one_is_not():
    torus = family("torus:4x4", [2e-6], [25e9])
    faster = levelled(asked(with_rate(torus, 5, 2.0)))
    assert faster is not None
    assert np.array_equal(faster.request.network.beta_s_per_byte, torus.beta_s_per_byte)
    assert levelled(asked(torus)) is None
    assert levelled(asked(with_rate(torus, 5, 0.5))) is None


def test_links_that_all_differ_are_not_levelled():
    torus = family("torus:4x4", [2e-6], [25e9])
    for link in range(torus.links):
        torus = with_rate(torus, link, 1.0 + link / 100)
    assert levelled(asked(torus)) is None


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


@given(random_networks(), st.sampled_from(["all_reduce", "all_gather", "broadcast", "all_to_all"]))
@settings(max_examples=8)
def test_ranks_that_may_relay_cost_no_time(network, kind):
    """A collective of all ranks has methods that one of a part of them has not."""
    members = tuple(range(1, network.ranks))
    part = CollectiveRequest(kind, max(members, default=0), members)
    among = Request(network, kind, 1 << 18, collectives=(part,), jobs=0, solving=False)
    variant = members_alone(among)
    assume(variant is not None)
    alone, found = planned(variant.request).schedule, planned(among).schedule
    assert found.collective.participants.tolist() == [*members]
    assert found.collective.root == members[alone.collective.root]
    nearly_s = max(bound.time_s for bound in found.outcome.bounds) / 0.98
    assert found.outcome.time_s <= max(1.001 * alone.outcome.time_s, nearly_s)
