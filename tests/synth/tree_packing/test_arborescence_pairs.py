"""A tree up and a tree down of one root, where directions differ in cost."""

import networkx
import numpy as np
import pytest

from synth import Request, synthesize
from synth.bounds.packing_lp import link_load
from synth.check.schedule import check
from synth.errors import NotApplicableError
from synth.network import Link, Network, build
from synth.tree_packing.arborescence_pairs import pack_pairs
from synth.tree_packing.spanning_trees import pack, pair_links


def _nics(sends: list[float], receives: list[float]) -> Network:
    """Hosts on one switch, by the seconds for a byte that each one's NIC sends and receives."""
    ranks = range(len(sends))
    links = [
        Link(src, dst, 1e-5, max(sends[src], receives[dst]), (f"out {src}", f"in {dst}"))
        for src in ranks
        for dst in ranks
        if src != dst
    ]
    return build("nics", [f"h{rank}" for rank in ranks], links)


UNEVEN = ([8e-8, 2e-7, 8e-8, 8e-8], [8e-8, 8e-8, 2e-7, 8e-8])


def test_the_trees_of_a_pair_have_one_root_and_shares_give_the_load():
    network = _nics(*UNEVEN)
    packing = pack_pairs(network)
    assert packing.share.sum() == pytest.approx(1.0)
    busy = link_load(network)
    load = np.zeros(busy.shape[0])
    for up, down, share in zip(packing.up, packing.down, packing.share, strict=True):
        gathering = networkx.DiGraph(zip(network.dst[up].tolist(), network.src[up].tolist(), strict=True))
        spreading = networkx.DiGraph(zip(network.src[down].tolist(), network.dst[down].tolist(), strict=True))
        roots = set()
        for graph in (gathering, spreading):
            assert networkx.is_arborescence(graph)
            assert len(graph) == network.ranks
            roots |= {rank for rank in graph if not graph.in_degree(rank)}
        assert len(roots) == 1
        load += share * (busy[:, up].sum(axis=1) + busy[:, down].sum(axis=1))
    assert load.max() == pytest.approx(packing.s_per_byte, rel=1e-6)


def test_pairs_carry_more_than_trees_for_both_ways_where_nics_send_and_receive_unequally():
    network = _nics(*UNEVEN)
    assert pack_pairs(network).s_per_byte < 0.95 * pack(pair_links(network)).s_per_byte


@pytest.mark.parametrize(("sends", "receives"), [UNEVEN, ([8e-8, 8e-8, 2e-7], [8e-8, 8e-8, 8e-8])])
def test_an_all_reduce_over_unequal_nics_is_near_its_bound(sends, receives):
    found = synthesize(Request(_nics(sends, receives), "all_reduce", size_bytes=64 << 20, method="forest"))
    assert check(found.schedule) == []
    assert found.schedule.outcome.percent_of_optimal >= 95


def test_links_of_one_direction_serve():
    links = [Link(rank, (rank + 1) % 4, 1e-6, 1e-9) for rank in range(4)]
    ring = build("one way", list("abcd"), links)
    found = synthesize(Request(ring, "all_reduce", size_bytes=16 << 20, method="forest")).schedule
    assert check(found) == []
    assert found.outcome.percent_of_optimal >= 95


def test_ranks_that_are_not_reached_are_refused():
    network = build("no way back", ["a", "b"], [Link(0, 1, 0, 1e-9)])
    with pytest.raises(NotApplicableError, match="not every rank"):
        pack_pairs(network)


def test_the_same_seed_gives_the_same_pairs():
    first, again = (pack_pairs(_nics(*UNEVEN), seed=3) for _ in range(2))
    assert first.up.tolist() == again.up.tolist()
    assert first.share.tolist() == again.share.tolist()
