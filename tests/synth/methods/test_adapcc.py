"""AdapCC's strategies are feasible, and on uneven NICs faster than a ring."""

from __future__ import annotations

import pytest
from sample_networks import named

from synth.check.schedule import check
from synth.collective import KINDS, collective
from synth.errors import NotApplicableError
from synth.methods import adapcc, ring
from synth.network import Link, Network, build
from synth.portfolio.rank_subsets import serve
from synth.simulation.schedule import replay


def _hosts(nic_gbs: tuple[float, ...], per_host: int = 2) -> Network:
    """Hosts of two ranks on a fast link, joined by a NIC a host that its ranks share."""
    hosts = [f"h{host}" for host in range(len(nic_gbs)) for _ in range(per_host)]
    links = []
    for src in range(len(hosts)):
        for dst in range(len(hosts)):
            a, b = src // per_host, dst // per_host
            if src != dst and a == b:
                links.append(Link(src, dst, 3e-6, 1e-11))
            elif a != b:
                beta = 1e-9 / min(nic_gbs[a], nic_gbs[b])
                links.append(Link(src, dst, 8e-6, beta, (f"{hosts[src]} out", f"{hosts[dst]} in")))
    return build("uneven", hosts, links)


@pytest.mark.parametrize("kind", ["reduce", "broadcast", "all_reduce", "all_to_all"])
def test_strategies_are_feasible(kind):
    network = _hosts((12.5, 12.5, 6.25))
    ranks = network.ranks
    chunks = {"all_to_all": ranks, "all_reduce": 48}.get(kind, 16)
    schedule = adapcc.synthesize(network, collective(kind, ranks, chunks), 1 << 18, time_limit_s=600)
    assert check(schedule) == []


def test_an_all_reduce_avoids_the_slow_nic():
    network = _hosts((12.5, 12.5, 6.25))
    shape = collective("all_reduce", network.ranks, 256)
    ours = adapcc.synthesize(network, shape, 1 << 18, time_limit_s=600)
    assert check(ours) == []
    assert replay(ours).time_s < replay(ring.synthesize(network, shape, 1 << 18)).time_s


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_take_no_part_relay(kind):
    network = named("hosts of two")
    shape = collective(kind, network.ranks, 4, root=1, members=(1, 3, 4, 6))
    schedule = serve(adapcc.synthesize, network, shape, 1 << 18, relays=True, time_limit_s=1)
    assert check(schedule) == []
    assert 0 <= schedule.outcome.gap <= 1


def test_a_strategy_is_remembered_whatever_the_chunk():
    network = _hosts((12.5, 6.25))
    plans = []
    for chunks, chunk_bytes in ((4, 1 << 20), (16, 1 << 18), (64, (1 << 16) + 1)):
        _, planned = adapcc.solve(network, collective("reduce", 4, chunks), chunk_bytes, time_limit_s=5)
        plans.append(planned)
    assert plans[0] is plans[1] is plans[2]


@pytest.mark.parametrize(
    ("nics", "suits"), [((12.5,), False), ((12.5, 6.25), True), ((12.5,) * 8, True), ((12.5,) * 9, False)]
)
def test_auto_asks_where_there_are_a_few_hosts(nics, suits):
    network = _hosts(nics)
    assert adapcc.suits(network, collective("all_reduce", network.ranks)) is suits


def test_links_that_go_one_way_only_are_no_tree_of_an_all_reduce():
    links = [Link(rank, (rank + 1) % 3, 0.0, 1e-9) for rank in range(3)]
    network = build("one way", ["a", "b", "c"], links)
    with pytest.raises(NotApplicableError):
        adapcc.synthesize(network, collective("all_reduce", 3, 3), 1 << 20)
