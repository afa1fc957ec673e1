from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from synth.errors import NotApplicableError
from synth.network import Link, build
from synth.networks.dgx import pod
from synth.networks.families import family
from synth.tree_packing.integral_capacities import exact_trees, rates, units
from synth.tree_packing.integral_packing import gathering_trees

ONES = np.ones(16, dtype=np.int64)


def test_two_dgx_a100_need_thirteen_trees_a_root():
    found = rates(pod("dgx-a100:2"))
    best, trees = exact_trees(found, ONES, 346.6666e9 / 16)
    assert (best * 25, trees) == (Fraction(65, 3), 13)
    fitted = units(found, ONES, best, trees)
    assert fitted.time == 15
    per_port = np.zeros(len(found.port), dtype=np.int64)
    np.add.at(
        per_port, found.network.link_port, np.repeat(fitted.capacity, np.diff(found.network.link_port_start))
    )
    assert (per_port <= found.port * 15).all()


def test_another_number_of_trees_takes_a_little_longer():
    found = rates(pod("dgx-a100:2"))
    best, _ = exact_trees(found, ONES, 346.6666e9 / 16)
    fitted = units(found, ONES, best, 16)
    assert 16 / best < fitted.time < 16 / best * Fraction(11, 10)


def test_a_port_without_links_has_no_say():
    """Networks of some of the ranks keep the ports of the others."""
    network = pod("dgx-a100:2")
    found = [rates(each) for each in (network, replace(network, ports=(*network.ports, "unused")))]
    best, _ = exact_trees(found[0], ONES, 346.6666e9 / 16)
    assert len({units(each, ONES, best, 16).time for each in found}) == 1


@pytest.mark.parametrize(
    ("spec", "bandwidth", "fewest", "algbw_gbs"),
    [
        ("mesh:5x5", [50e9], 1, 104.1667),
        ("torus:4x4", [50e9], 4, 213.3333),
        ("hypercube:16", [50e9], 4, 213.3333),
        ("ring:16", [50e9], 2, 106.6667),
        ("switch:8", [50e9], 1, 57.1429),
        ("rfs:2x4x4", [200e9, 100e9, 50e9], 1, 533.3333),
        ("mesh:4x3", [50e9, 20e9], 7, 76.3636),
    ],
)
def test_the_known_optimum_is_met_exactly(spec, bandwidth, fewest, algbw_gbs):
    network = family(spec, [0.0], bandwidth)
    packing = gathering_trees(network, fewest)
    assert len(packing.trees) == fewest * network.ranks
    assert packing.s_per_byte == packing.bound_s_per_byte
    assert 1e-9 / packing.s_per_byte == pytest.approx(algbw_gbs, rel=1e-6)
    used_s = np.bincount(packing.trees.ravel(), minlength=network.links) * network.beta_s_per_byte
    ports_s = np.zeros(len(network.ports))
    np.add.at(ports_s, network.link_port, np.repeat(used_s, np.diff(network.link_port_start)))
    busiest_s = max(used_s.max(), ports_s.max(initial=0.0))
    assert busiest_s / len(packing.trees) == pytest.approx(packing.s_per_byte)


def test_bandwidths_without_a_common_unit_are_refused():
    links = [Link(0, 1, 0, 1e-9), Link(1, 0, 0, 1e-9 / np.sqrt(2))]
    with pytest.raises(NotApplicableError, match="common unit"):
        rates(build("odd", ["a", "b"], links))


def test_a_port_with_links_of_several_bandwidths_is_refused():
    links = [Link(0, 1, 0, 1e-9, ("p",)), Link(0, 2, 0, 2e-9, ("p",))]
    with pytest.raises(NotApplicableError, match="share a port"):
        rates(build("uneven", ["a", "b", "c"], links))
