"""A link that becomes faster, or ranks that may relay, do not make a schedule slower."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from probes.base.columns import floats
from synth.check import check
from synth.collective import ROOTED
from synth.network import Link, Network, build
from synth.networks.families import family
from synth.portfolio.planning import planned
from synth.portfolio.request import CollectiveRequest, Request
from synth.portfolio.variants import by_host, levelled, members_alone


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


def test_a_further_link_is_left_out():
    torus = family("torus:4x4", [2e-6], [25e9])
    more = build(torus.name, torus.hosts, [Link(0, 5, 2e-6, 4e-11), *torus.as_links()])
    found = levelled(asked(more))
    assert found is not None
    assert found.rows.tolist() == [
        row for row in range(more.links) if (more.src[row], more.dst[row]) != (0, 5)
    ]
    few = replace(asked(more), chunk_bytes=7 << 10, chunks=4, jobs=0, solving=False)
    plain, wider = planned(replace(few, network=torus)), planned(few)
    assert wider.listed.network is more
    assert wider.schedule.outcome.time_s <= 1.001 * plain.schedule.outcome.time_s


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


def pods_of_three() -> Network:
    """Two hosts of three ranks, with a NIC for each rank."""
    links = []
    for a, b in itertools.permutations(range(6), 2):
        if a // 3 == b // 3:
            links.append(Link(a, b, 1e-6, 1e-11, (f"gpu {a}", f"to {b}")))
        else:
            links.append(Link(a, b, 5e-6, 4e-11, (f"nic {a}", f"to nic {b}")))
    return build("pods", [f"h{rank // 3}" for rank in range(6)], links)


def among(members: tuple[int, ...], kind: str, root: int, **options: object) -> Request:
    part = CollectiveRequest(kind, root, members)
    request = Request(pods_of_three(), kind, 1 << 18, collectives=(part,), jobs=0, solving=False)
    return replace(request, **options)


def test_ranks_that_may_relay_cost_no_time():
    """Without `members_alone` the schedule takes 20 % longer."""
    asked_for = among((0, 1, 3, 4), "all_reduce", 0)
    alone, found = planned(members_alone(asked_for).request), planned(asked_for)
    assert found.schedule.outcome.time_s <= 1.001 * alone.schedule.outcome.time_s
    assert found.schedule.collective.participants.tolist() == [0, 1, 3, 4]


def test_a_schedule_of_members_alone_serves_them_on_the_whole_network():
    asked_for = among((4, 1, 2), "broadcast", 4)
    variant = members_alone(asked_for)
    made = variant.restored(planned(replace(variant.request, quick=True)).schedule, asked_for.network)
    assert check(made) == []
    assert made.collective == asked_for.shape(made.collective.chunks)


def test_only_members_that_reach_each_other_are_planned_alone():
    assert members_alone(among((), "all_reduce", 0)) is None
    line = family("mesh:3", [2e-6], [25e9])
    assert members_alone(replace(among((0, 2), "all_reduce", 0), network=line)) is None
    assert members_alone(replace(among((0, 1), "all_reduce", 0), network=line)) is not None


def dealt_out(order: tuple[int, ...] = (0, 2, 4, 1, 3, 5)) -> Network:
    """Return `pods_of_three` with its ranks dealt out among the hosts: rank r is called ``order[r]``."""
    pods = pods_of_three()
    links = [one._replace(src=order[one.src], dst=order[one.dst]) for one in pods.as_links()]
    return build("dealt", [host for _, host in sorted(zip(order, pods.hosts, strict=True))], links)


@pytest.mark.parametrize(
    "kind",
    ["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "scatter", "gather", "all_to_all"],
)
def test_a_schedule_by_host_serves_the_same_ranks(kind):
    asked_for = Request(dealt_out(), kind, 1 << 18, root=3 if kind in ROOTED else 0, jobs=0, solving=False)
    variant = by_host(asked_for)
    assert variant.request.network.columns == pods_of_three().columns
    assert variant.members == (0, 2, 4, 1, 3, 5)
    made = variant.restored(planned(replace(variant.request, quick=True)).schedule, asked_for.network)
    assert check(made) == []
    assert made.collective == replace(asked_for.shape(), chunks=made.collective.chunks)


def test_ranks_that_are_dealt_out_among_hosts_cost_no_time():
    """Without `by_host` the schedule takes 2 % longer."""
    asked_for = Request(dealt_out((0, 3, 1, 4, 2, 5)), "all_reduce", 1 << 18, jobs=0, solving=False)
    in_rows, found = planned(replace(asked_for, network=pods_of_three())), planned(asked_for)
    assert found.schedule.outcome.time_s <= 1.001 * in_rows.schedule.outcome.time_s


def test_only_hosts_that_are_apart_are_put_together():
    assert by_host(Request(pods_of_three(), "all_reduce", 1 << 18)) is None
    assert by_host(Request(dealt_out((3, 4, 5, 0, 1, 2)), "all_reduce", 1 << 18)) is None
    assert by_host(Request(dealt_out(), "all_to_next", 1 << 18)) is None
