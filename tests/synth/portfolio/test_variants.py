"""A link that becomes faster, or ranks that may relay, do not make a schedule slower."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from probes.base.columns import floats
from synth.check import check
from synth.collective import ROOTED
from synth.network import Link, Network, build
from synth.networks.families import family
from synth.portfolio.plain import bounds_of
from synth.portfolio.planning import planned
from synth.portfolio.request import CollectiveRequest, Request
from synth.portfolio.variants import in_regular_order, levelled, members_alone


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


def renamed(network: Network, order: Sequence[int]) -> Network:
    """Return the same network with rank r called ``order[r]``."""
    links = [one._replace(src=order[one.src], dst=order[one.dst]) for one in network.as_links()]
    return build("renamed", [host for _, host in sorted(zip(order, network.hosts, strict=True))], links)


DEALT_OUT = (0, 2, 4, 1, 3, 5)


@pytest.mark.parametrize(
    "kind",
    ["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "scatter", "gather", "all_to_all"],
)
def test_a_schedule_in_a_regular_order_serves_the_same_ranks(kind):
    network = renamed(pods_of_three(), DEALT_OUT)
    asked_for = Request(network, kind, 1 << 18, root=3 if kind in ROOTED else 0, jobs=0, solving=False)
    variant = in_regular_order(asked_for)
    assert sorted(variant.members) == list(range(6))
    made = variant.restored(planned(replace(variant.request, quick=True)).schedule, asked_for.network)
    assert check(made) == []
    assert made.collective == replace(asked_for.shape(), chunks=made.collective.chunks)


def test_ports_keep_their_links_in_a_regular_order():
    network = renamed(pods_of_three(), DEALT_OUT)
    variant = in_regular_order(Request(network, "all_reduce", 1 << 18))
    found, rows = variant.request.network, variant.rows.tolist()

    def ports(of: Network, link: int) -> list[str]:
        return [of.ports[port] for port in of.ports_of(link).tolist()]

    assert [ports(found, link) for link in range(found.links)] == [ports(network, row) for row in rows]
    assert [found.hosts[rank] for rank in range(6)] == [network.hosts[rank] for rank in variant.members]


@pytest.mark.parametrize("name", ["pods", "torus:4x4", "torus:3x4", "ring:7"])
@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all"])
def test_the_names_of_ranks_cost_no_time(name, kind):
    """Without `in_regular_order` all_reduces take 2 to 10 % longer."""
    network = pods_of_three() if name == "pods" else family(name, [2e-6], [25e9])
    order = np.random.default_rng(1).permutation(network.ranks).tolist()
    asked_for = Request(network, kind, 1 << 18, jobs=0, solving=False)
    found, other = planned(asked_for), planned(replace(asked_for, network=renamed(network, order)))
    assert other.schedule.network.hosts == renamed(network, order).hosts
    times_s = [one.schedule.outcome.time_s for one in (found, other)]
    assert times_s[1] <= 1.02 * times_s[0]


def test_a_doubled_rate_costs_no_time_under_any_names():
    """Without a regular order in `levelled` the schedule takes 20 % longer."""
    torus = renamed(family("torus:3x3", [2e-6], [25e9]), np.random.default_rng(2).permutation(9).tolist())
    asked_for = Request(torus, "all_reduce", chunk_bytes=7 << 10, chunks=9, jobs=0, solving=False)
    faster = replace(asked_for, network=with_rate(torus, 9, 2.0))
    assert levelled(asked_for) is None
    assert levelled(faster) is not None
    times_s = [planned(one).schedule.outcome.time_s for one in (asked_for, faster)]
    assert times_s[1] <= 1.001 * times_s[0]


@pytest.mark.parametrize("kind", ["all_reduce", "broadcast"])
def test_the_names_of_ranks_cost_no_time_at_any_size(kind):
    torus, sizes = family("torus:4x4", [2e-6], [25e9]), (1 << 12, 1 << 16, 1 << 20)
    order = np.random.default_rng(1).permutation(torus.ranks).tolist()
    network, root = renamed(torus, order), order[0] if kind == "broadcast" else 0
    found = planned(Request(torus, kind, sizes=sizes, jobs=0)).schedule
    other = planned(Request(network, kind, root=root, sizes=sizes, jobs=0)).schedule
    assert other.network is network
    for point, same in zip(other.points, found.points, strict=True):
        assert point.time_s <= 1.02 * same.time_s
        assert point.bound_s == pytest.approx(same.bound_s)
        schedule = other.algorithms[point.algorithm].scheduled(network, point.size_bytes)
        assert check(schedule) == []
        assert schedule.collective.root == root


def test_bounds_name_the_ranks_of_the_request():
    """In a regular order other ranks are side by side in a host."""
    asked_for = Request(renamed(pods_of_three(), [0, 3, 1, 4, 2, 5]), "all_reduce", 1 << 22, jobs=0)
    assert in_regular_order(asked_for) is not None
    found, without = planned(asked_for).schedule.outcome.bounds, bounds_of(asked_for)
    shown, wanted = (
        {one.name: one.time_s for one in each if "host" in one.name} for each in (found, without)
    )
    assert "traffic into the host of ranks 0, 1, 3" in shown
    assert shown == pytest.approx(wanted)


def test_only_ranks_in_an_irregular_order_are_put_in_another():
    assert in_regular_order(Request(pods_of_three(), "all_reduce", 1 << 18)) is None
    network = renamed(pods_of_three(), DEALT_OUT)
    assert in_regular_order(Request(network, "all_reduce", 1 << 18)) is not None
    assert in_regular_order(Request(network, "all_to_next", 1 << 18)) is None
    part = CollectiveRequest("all_reduce", 0, (0, 1, 2))
    assert in_regular_order(Request(network, "all_reduce", 1 << 18, collectives=(part,))) is None
