"""Normal levels: of fast links, of classes, and against what was bought."""

import numpy as np
import pytest
from faulty_profile import RATE, Faulty

from probes.localization.links import tables_of
from probes.localization.normal import noise, normal, slots

LEVEL = np.log(RATE)


def levels(net: Faulty, bought: float | None = None) -> np.ndarray:
    table, _ = tables_of(net.profile())
    return normal(table, table.rate, slots(table, table.ends.slot), None, bought)


@pytest.mark.parametrize("slow", [0, 1, 2, 3])
def test_slow_hosts_up_to_half_of_them_do_not_change_what_is_normal(slow):
    net = Faulty(hosts=7)
    for host in range(slow):
        net.rate[net.of(host)] *= 0.3
    assert levels(net) == pytest.approx(LEVEL, abs=0.02)


def test_what_was_bought_is_normal_if_all_links_fall_short_of_it():
    net = Faulty()
    assert levels(net, LEVEL + 0.5) == pytest.approx(LEVEL + 0.5)
    assert levels(net, LEVEL + 0.05) == pytest.approx(LEVEL, abs=0.02)


def test_two_hosts_that_are_as_bought_show_it_better_than_the_offer():
    net = Faulty()
    for host in range(4):
        net.rate[net.of(host)] = 0.5 * RATE
    assert levels(net, LEVEL + 0.05) == pytest.approx(LEVEL, abs=0.02)


def test_each_pair_of_positions_in_a_host_has_its_own_level():
    net = Faulty(hosts=4, ranks=2)
    net.rate[::2, 1::2] *= 0.5
    table, _ = tables_of(net.profile())
    found = levels(net)
    slow = (table.src % 2 == 0) & (table.dst % 2 == 1)
    assert found[slow] == pytest.approx(LEVEL + np.log(0.5), abs=0.02)
    assert found[~slow] == pytest.approx(LEVEL, abs=0.02)


def test_a_small_rack_counts_as_much_as_a_large_one():
    net = Faulty(hosts=14)
    racks = [list(range(6)), list(range(6, 12)), [12, 13]]
    rest = list(range(6, 14))
    net.rate[net.between(racks[0], rest) | net.between(rest, racks[0])] *= 0.5
    table, _ = tables_of(net.profile())
    rack = np.repeat([0, 1, 2], [6, 6, 2])
    classes = np.zeros(len(table), dtype=np.int64)
    assert normal(table, table.rate, classes, rack) == pytest.approx(LEVEL, abs=0.02)


@pytest.mark.parametrize("sigma", [0.02, 0.05, 0.1])
def test_noise_does_not_count_what_is_far_from_normal(sigma):
    rng = np.random.default_rng(1)
    deviation = np.concatenate([rng.normal(0, sigma, 1000), rng.normal(-1.0, 0.1, 1000)])
    assert noise(deviation) == pytest.approx(sigma, rel=0.15)
