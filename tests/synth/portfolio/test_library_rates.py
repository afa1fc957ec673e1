"""Rates of NCCL's ring, tree and direct sends against known rates, bounds and simulation."""

import re
from pathlib import Path

import pytest
from drawn_examples import chessboard

from exec.benchmark.runner import busbw_factor
from synth import Request
from synth.networks.dgx import pod
from synth.networks.families import family
from synth.portfolio.library_rate import library_rates
from synth.portfolio.plain import bounds_of

LARGE = 1 << 36
PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "results" / "normal-bandwidth.md"
# The rows of its table of rings: network, ring, ring less protocols, public figure, their difference in %.
PUBLIC = re.findall(r"^\| `(\S+)` \| (\S+) \| (\S+) \| (\S+) \| (\S+) % \|", PAGE.read_text(), re.MULTILINE)
# The part of a line rate that carries payload: of NVLink inside a host, and of the NICs between hosts.
PAYLOAD = {1: 0.80, 2: 0.96}


def busbw(network, kind, root=0):
    factor = busbw_factor(kind, network.ranks)
    return {one.algorithm: factor / one.s_per_byte / 1e9 for one in library_rates(network, kind, root)}


@pytest.mark.parametrize(
    ("spec", "ring"),
    [
        ("dgx-1", 150),  # three rings each way over six NVLinks
        ("dgx-1p", 80),
        ("dgx-2", 150),
        ("dgx-a100", 300),
        ("mi300x", 448),  # seven links, all of them used
        ("dgx-a100:3", 200),  # eight NICs of 25 GB/s
        ("dgx-a100/4x200:3", 100),
        ("dgx-2:2", 100),
    ],
)
def test_rings_reach_what_links_and_nics_carry(spec, ring):
    assert busbw(pod(spec), "all_reduce")["ring"] == pytest.approx(ring)
    assert busbw(pod(spec), "all_gather") == {"ring": pytest.approx(ring)}


@pytest.mark.parametrize(("spec", "ring", "expected", "public", "difference"), PUBLIC)
def test_rings_less_protocols_are_within_ten_percent_of_public_figures(
    spec, ring, expected, public, difference
):
    network = pod(spec)
    carried = busbw(network, "all_reduce")["ring"]
    assert carried == pytest.approx(float(ring))
    less = carried * PAYLOAD[min(len(set(network.hosts)), 2)]
    assert less == pytest.approx(float(expected))
    assert 100 * (float(public) / less - 1) == pytest.approx(float(difference), abs=0.06)
    assert abs(float(difference)) < 10


def test_ten_public_figures_are_on_the_page():
    assert len(PUBLIC) >= 10


def test_trees_of_two_hosts_cross_the_nics_once_a_way():
    """Data that a rank sends up comes down once: algbw is the NICs' rate, busbw 2 (n − 1) / n times it."""
    found = busbw(pod("dgx-a100/1x100:2"), "all_reduce")
    assert found["tree"] == pytest.approx(12.5 * 2 * 15 / 16)
    assert found["ring"] == pytest.approx(12.5)


@pytest.mark.parametrize(
    ("kind", "spec"),
    chessboard(
        ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"],
        ["dgx-1", "mi250", "dgx-a100/2x100:2", "dgx-1:2", "dgx-h100:3"],
    ),
)
def test_no_algorithm_beats_the_proven_bound(spec, kind):
    network = pod(spec)
    bound_s = max(bound.time_s for bound in bounds_of(Request(network, kind, size_bytes=LARGE, root=3)))
    rates = library_rates(network, kind, 3)
    assert rates
    for one in rates:
        # The bound counts an alpha, and chunks are of whole bytes.
        assert one.s_per_byte * LARGE >= bound_s * (1 - 1e-4) - 1e-5
        assert one.binding


@pytest.mark.parametrize("spec", ["torus:4x4x4", "torus:5x6", "hypercube:32"])
def test_rings_share_the_links_of_a_direct_network(spec):
    """Such networks have rings that together use every link both ways (Hamiltonian decompositions)."""
    network = family(spec, [0.0], [10e9])
    out = int((network.src == 0).sum())
    ring = busbw(network, "all_reduce")["ring"]
    assert 0.9 <= ring / (10 * out) <= 1 + 1e-6


@pytest.mark.parametrize("kind", ["all_to_all", "scatter", "gather"])
def test_direct_sends_are_held_up_by_the_busiest_port(kind):
    (one,) = library_rates(family("switch:4", [0.0], [10e9]), kind, 2)
    assert (one.algorithm, one.s_per_byte) == ("direct", pytest.approx(0.75 / 10e9))
    assert "2" in one.binding or kind == "all_to_all"


def test_what_the_links_do_not_allow_is_left_out():
    line = family("mesh:4", [0.0], [10e9])
    assert [one.algorithm for one in library_rates(line, "all_reduce")] == ["tree"]
    assert library_rates(line, "all_to_all") == ()


def test_hosts_of_one_rank_have_rings_through_their_nics():
    found = busbw(family("switch:2", [0.0], [10e9]), "all_reduce")
    assert found["ring"] == pytest.approx(10)
