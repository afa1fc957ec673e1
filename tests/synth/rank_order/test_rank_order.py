"""Orders of ranks: the messages of libraries, what they cost, the search and its bounds."""

from collections import Counter
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from probes.base.errors import UsageError
from synth.network import Link, build
from synth.rank_order.algorithms import LIBRARIES, algorithm_of, pattern
from synth.rank_order.costs import OrderCosts, both_ways, paths_of
from synth.rank_order.planner import plan_order
from synth.rank_order.relaxation import least_s
from synth.rank_order.search import every_order, improved_orders

RATE, SIZE = 12.5e6, 1 << 20
ALL_REDUCE = [(library, name) for library, kinds in LIBRARIES.items() for name in kinds["all_reduce"]]


def racked(hosts, racks, *, trunk=RATE / 4, ranks=1, alpha_s=1e-4):
    """Hosts behind NICs, in ``racks`` that take turns, each behind one trunk."""
    links = []
    for src in range(hosts * ranks):
        for dst in range(hosts * ranks):
            here, there = src // ranks, dst // ranks
            if here == there:
                links += [Link(src, dst, 1e-6, 1e-10, ())] if src != dst else []
                continue
            apart = here % racks != there % racks
            ports = (f"out {here}", f"in {there}")
            ports += (f"up {here % racks}", f"down {there % racks}") if apart else ()
            links.append(Link(src, dst, alpha_s, 1 / min(RATE, trunk) if apart else 1 / RATE, ports))
    return build("racked", [f"h{rank // ranks}" for rank in range(hosts * ranks)], links)


def uneven(hosts, seed):
    """Links between all hosts, each with a rate of its own."""
    random = np.random.default_rng(seed)
    pairs = list(permutations(range(hosts), 2))
    rates = random.uniform(1e6, RATE, len(pairs))
    links = [Link(*pair, 1e-4, 1 / rate, ()) for pair, rate in zip(pairs, rates.tolist(), strict=True)]
    return build("uneven", [f"h{host}" for host in range(hosts)], links)


def plain(network, name, kind="all_reduce"):
    """The costs of an algorithm where each host has one rank."""
    found = pattern(algorithm_of(name, kind), [1] * network.ranks)
    return OrderCosts(found, paths_of(network, SIZE), SIZE)


@pytest.mark.parametrize("library, name", ALL_REDUCE)
@pytest.mark.parametrize("places", [2, 3, 4, 6, 7, 8])
def test_an_all_reduce_moves_what_its_algorithm_does(library, name, places):
    found = pattern(algorithm_of(f"{library}:{name}", "all_reduce"), [1] * places)
    repeats = np.ones(len(found.round)) if found.pipelined else found.repeats[found.round]
    total = float((found.share * repeats).sum())
    power = 1 << (places.bit_length() - 1)
    folded = places - power
    expected = {
        "ring": 2 * (places - 1),
        "tree": 2 * (places - 1),
        "recursive_doubling": power * (power.bit_length() - 1) + 2 * folded,
        # Open MPI folds by halves: half each way, half back to the one that goes on.
        "rabenseifner": 2 * (power - 1) + folded * (2.5 if library == "openmpi" else 2),
    }[name]
    assert total == pytest.approx(expected)
    if not found.pipelined:
        for number in range(len(found.repeats)):
            rows = found.round == number
            for ends in (found.src[rows], found.dst[rows]):
                assert len(set(ends.tolist())) == len(ends)


@pytest.mark.parametrize("name", ["openmpi:ring", "openmpi:recursive_doubling", "mpich:rabenseifner"])
@pytest.mark.parametrize("places", [4, 6])
def test_every_rank_ends_with_what_all_brought(name, places):
    """The rounds join all ranks: what one knows after them came from everybody."""
    found = pattern(algorithm_of(name, "all_reduce"), [1] * places)
    knows = np.eye(places, dtype=bool)
    for number, repeats in enumerate(found.repeats.astype(int).tolist()):
        rows = np.flatnonzero(found.round == number)
        for _ in range(repeats):
            before = knows.copy()
            for row in rows:
                knows[found.dst[row]] |= before[found.src[row]]
    assert knows.all()


def test_gloos_ring_goes_the_other_way():
    """A pair that is slow one way hurts one direction, and the order tells which."""
    links = [
        Link(src, dst, 1e-4, (10 if (src, dst) == (0, 1) else 1) / RATE, ())
        for src, dst in permutations(range(4), 2)
    ]
    network = build("one way", ["a", "b", "c", "d"], links)
    came = np.arange(4)
    up, down = plain(network, "openmpi:ring").time_s(came), plain(network, "gloo:ring").time_s(came)
    assert up > 5 * down
    assert plan_order(network, algorithm_of("gloo:ring", "all_reduce"), SIZE).changed is False
    better = plan_order(network, algorithm_of("openmpi:ring", "all_reduce"), SIZE)
    assert better.gain == pytest.approx(up / down) and better.exact
    ring = list(better.ranks)
    assert (0, 1) not in zip(ring, [*ring[1:], ring[0]], strict=True)


def test_the_time_of_a_ring_is_that_of_its_slowest_hop():
    network = uneven(5, seed=1)
    costs, order = plain(network, "openmpi:ring"), np.array([3, 0, 4, 1, 2])
    ends = zip(network.src.tolist(), network.dst.tolist(), strict=True)
    beta = dict(zip(ends, network.beta_s_per_byte.tolist(), strict=True))
    slowest = max(beta[pair] for pair in zip(order.tolist(), np.roll(order, -1).tolist(), strict=True))
    expected = 8 * (1e-4 + slowest * SIZE / 5)
    assert costs.time_s(order) == pytest.approx(expected)
    assert costs.price_s(order)[0] == pytest.approx(expected)


def test_messages_that_meet_at_a_port_share_it():
    """Two pairs over one trunk take twice the time of one."""
    network = racked(4, 2)
    doubling = plain(network, "openmpi:recursive_doubling")
    # Neighbours are in other racks in both rounds, or in one of them.
    assert doubling.time_s(np.arange(4)) == pytest.approx(2e-4 + SIZE / RATE * (1 + 8))
    assert doubling.time_s(np.array([0, 2, 1, 3])) == pytest.approx(2e-4 + SIZE / RATE * (1 + 8))


@pytest.mark.parametrize("library, name", ALL_REDUCE)
@pytest.mark.parametrize("hosts", [4, 5])
def test_the_exact_order_is_the_best_of_all(library, name, hosts):
    network = uneven(hosts, seed=hosts)
    algorithm = algorithm_of(f"{library}:{name}", "all_reduce")
    costs = plain(network, f"{library}:{name}")
    times = [costs.time_s(np.array(order)) for order in permutations(range(hosts))]
    found = plan_order(network, algorithm, SIZE)
    assert found.exact and found.as_it_comes_s == pytest.approx(times[0])
    assert found.bound_s == pytest.approx(min(times))
    assert found.time_s <= 1.02 * min(times) * (1 + 1e-9)
    assert least_s(costs) <= min(times) * (1 + 1e-9)


@pytest.mark.parametrize("name", ["openmpi:ring", "mpich:rabenseifner", "nccl:tree"])
def test_the_search_finds_the_racks_that_all_orders_find(name):
    """Among 8 hosts the local search comes as far as all orders do."""
    network = racked(8, 2)
    costs = plain(network, name)
    hosts = [np.array([host]) for host in range(8)]
    every = every_order(costs, hosts, inner=False)
    assert every is not None
    best = min(map(costs.time_s, every))
    searched = min(map(costs.time_s, improved_orders(costs, hosts, inner=False, seed=0)))
    assert searched == pytest.approx(best)


def test_a_large_ring_visits_rack_after_rack():
    network = racked(24, 4)
    algorithm = algorithm_of("openmpi:ring", "all_reduce")
    found = plan_order(network, algorithm, SIZE, seed=3)
    assert not found.exact
    racks = [rank % 4 for rank in found.ranks]
    assert sum(one != other for one, other in zip(racks, [*racks[1:], racks[0]], strict=True)) == 4
    assert found.bound_s <= found.time_s and found.most_gain == pytest.approx(found.gain, rel=0.01)
    assert found == plan_order(network, algorithm, SIZE, seed=3)


def test_the_ranks_of_a_host_stay_together_and_may_change_places():
    """One of a host's ranks reaches the next host slowly: another must be the last one."""
    links = []
    for src, dst in permutations(range(4), 2):
        slow = 20 if (src, dst) in ((1, 2), (3, 0)) else 1
        links.append(Link(src, dst, 1e-5, slow / RATE if src // 2 != dst // 2 else 1e-10, ()))
    network = build("two hosts", ["a", "a", "b", "b"], links)
    found = plan_order(network, algorithm_of("openmpi:ring", "all_reduce"), SIZE)
    assert found.exact and found.gain > 10
    assert [len(host.ranks) for host in found.after] == [2, 2]
    ring = list(found.ranks)
    assert not {(1, 2), (3, 0)} & set(zip(ring, [*ring[1:], ring[0]], strict=True))
    assert {slot for host in found.after for slot in host.slots} == {0, 1}


def test_hosts_of_several_sizes_are_ordered_whole():
    network = racked(3, 3, ranks=2)
    hosts = ("a", "a", "a", "b", "c", "c")
    network = build("sizes", hosts, [Link(s, d, 1e-5, 1 / RATE) for s, d in permutations(range(6), 2)])
    found = plan_order(network, algorithm_of("mpich", "all_reduce"), SIZE)
    assert Counter(len(host.ranks) for host in found.after) == Counter([3, 1, 2])
    with pytest.raises(UsageError, match="for nccl:ring: only for hosts of equally many ranks"):
        plan_order(network, algorithm_of("nccl", "all_reduce"), SIZE)


def test_packets_take_the_fastest_path_where_no_link_is():
    """On a line of hosts a ring must come back over all links."""
    ends = [(0, 1), (1, 2), (2, 3)]
    links = [Link(*pair, 1e-4, 1 / RATE) for s, d in ends for pair in ((s, d), (d, s))]
    network = build("line", ["a", "b", "c", "d"], links)
    costs = plain(network, "openmpi:ring")
    assert costs.paths.alpha_s[3, 0] == pytest.approx(3e-4)
    # No link carries two messages of a round the same way in this order, but two in another.
    assert costs.time_s(np.array([0, 1, 2, 3])) < costs.time_s(np.array([0, 2, 1, 3]))
    apart = build("apart", ["a", "b", "c"], [Link(0, 1, 0.0, 1 / RATE), Link(1, 0, 0.0, 1 / RATE)])
    with pytest.raises(UsageError, match="no path from rank 0 to rank 2"):
        plan_order(apart, algorithm_of("openmpi", "all_reduce"), SIZE)


def test_an_order_that_gains_next_to_nothing_is_left():
    links = [Link(s, d, 0.0, (1.01 if (s, d) == (0, 1) else 1) / RATE) for s, d in permutations(range(4), 2)]
    found = plan_order(build("n", list("abcd"), links), algorithm_of("openmpi", "all_reduce"), SIZE)
    assert (found.changed, found.gain) == (False, 1.0) and 1 < found.most_gain < 1.02


@pytest.mark.parametrize("ranks", [1, 2])
def test_few_ranks(ranks):
    links = [Link(s, d, 1e-4, 1 / RATE) for s, d in permutations(range(ranks), 2)]
    network = build("few", [f"h{rank}" for rank in range(ranks)], links)
    for library, name in ALL_REDUCE:
        found = plan_order(network, algorithm_of(f"{library}:{name}", "all_reduce"), SIZE)
        assert found.ranks == tuple(range(ranks)) and found.gain == found.most_gain == 1.0


@pytest.mark.parametrize(
    "text, kind, told",
    [
        ("openmp", "all_reduce", "for 'openmp': unknown library"),
        ("nccl:rin", "all_reduce", "for 'nccl:rin': unknown algorithm of all_reduce"),
        ("gloo", "all_gather", "for gloo: no algorithm of its all_gather is known here"),
    ],
)
def test_what_is_not_known_is_refused_with_what_is(text, kind, told):
    with pytest.raises(UsageError, match=told) as refused:
        algorithm_of(text, kind)
    assert "nown" in refused.value.hint


def test_doubling_of_all_gather_wants_a_power_of_two():
    with pytest.raises(UsageError, match="only for a power of two ranks, found 6"):
        pattern(algorithm_of("openmpi:recursive_doubling", "all_gather"), [1] * 6)
    found = pattern(algorithm_of("openmpi:recursive_doubling", "all_gather"), [1] * 8)
    assert float(found.share.sum()) == pytest.approx(7)


def test_an_exchange_over_tcp_shares_what_one_direction_has():
    network = replace(racked(4, 1, trunk=RATE), queues=True)
    paths = paths_of(network, 1 << 20)
    shared = both_ways(paths, network.host_of.astype(np.int64), 1.25)
    order = np.arange(4)

    def times(name):
        algorithm = algorithm_of(f"openmpi:{name}", "all_reduce")
        return [
            OrderCosts(pattern(algorithm, [1] * 4), one, 1 << 24).time_s(order) for one in (paths, shared)
        ]

    # A ring sends between two ranks one way alone; doubling exchanges in every round.
    ring, ring_shared = times("ring")
    assert ring_shared == pytest.approx(ring)
    doubling, doubling_shared = times("recursive_doubling")
    assert doubling_shared == pytest.approx(doubling * 2 / 1.25, rel=1e-2)


def test_only_open_mpi_over_a_network_that_queues_exchanges_so():
    network = racked(4, 1, trunk=RATE)
    queued = replace(network, queues=True)

    def as_it_comes_s(where, library):
        return plan_order(
            where, algorithm_of(f"{library}:recursive_doubling", "all_reduce"), 1 << 24
        ).as_it_comes_s

    assert as_it_comes_s(queued, "openmpi") > 1.5 * as_it_comes_s(network, "openmpi")
    assert as_it_comes_s(queued, "mpich") == pytest.approx(as_it_comes_s(network, "mpich"))


def test_ranks_of_one_host_exchange_freely():
    network = racked(2, 1, trunk=RATE, ranks=2)
    paths = paths_of(network, 1 << 20)
    shared = both_ways(paths, network.host_of.astype(np.int64), 1.25)
    resources = len(paths.capacity)
    for a in range(4):
        for b in range(4):
            if a != b:
                assert (shared.crossed[a, b] >= resources).any() == (network.hosts[a] != network.hosts[b])
