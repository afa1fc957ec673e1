import numpy as np
from faulty_profile import Faulty

from probes.localization.latency import one_a_pair
from probes.localization.links import ends_of, tables_of


def test_links_are_divided_into_those_between_hosts_and_those_inside():
    between, inside = tables_of(Faulty(hosts=3, ranks=2).profile())
    assert (len(between), len(inside)) == (24, 6)
    assert (between.src_host != between.dst_host).all()
    assert (inside.src_host == inside.dst_host).all()


def test_a_host_with_one_nic_gives_its_name_to_it_and_to_its_rank():
    ends = ends_of(Faulty(hosts=2).profile())
    assert ends.host_names == ends.nic_names == ends.rank_names == ("gpu1", "gpu2")
    assert not ends.has_nics and not ends.has_ranks


def test_several_nics_are_named_after_their_host():
    ends = ends_of(Faulty(hosts=2, ranks=2).profile())
    assert ends.nic_names == ("gpu1 mlx5_0", "gpu1 mlx5_1", "gpu2 mlx5_0", "gpu2 mlx5_1")
    assert ends.has_nics and not ends.has_ranks
    assert ends.slot.tolist() == [0, 1, 0, 1]


def test_inferred_links_are_left_out_and_latencies_of_waiting_ends_uncertain():
    net = Faulty(hosts=3)
    net.flags = {(0, 1): "inferred", (1, 2): "outlier,preempted", (2, 0): "retested"}
    table, _ = tables_of(net.profile())
    links = list(zip(table.src.tolist(), table.dst.tolist(), strict=True))
    assert (0, 1) not in links and len(links) == 5
    assert [links[at] for at in np.flatnonzero(table.jitter > 0.5)] == [(1, 2)]
    assert [links[at] for at in np.flatnonzero(table.again)] == [(2, 0)]


def test_a_round_trip_counts_once():
    once = one_a_pair(tables_of(Faulty(hosts=4).profile())[0])
    assert len(once) == 6
