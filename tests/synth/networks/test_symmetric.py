"""Symmetric networks: their expansions are the plain networks, link by link and port by port."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import numpy as np
import pytest

from probes.base.columns import ints
from synth.network import Network
from synth.networks.dgx import pod
from synth.networks.families import family
from synth.networks.symmetric import SymmetricNetwork
from synth.networks.symmetric_families import symmetric_family, symmetric_pod

FAMILIES = (
    "ring:5",
    "torus:4x3",
    "torus:2x3x4",
    "hypercube:8",
    "fc:5",
    "switch:6",
    "switch_switch:3x4",
    "rfs:3x2x4",
    "line_switch_ring:3x2x4",
    "fc_line_switch:2x3x3",
    "dragonfly:5x4",
    "dragonfly:9x4",
    "dragonfly:4x7",
    "fat_tree:4x3",
    "fat_tree:2x3x4",
    "fat_tree:4x4x3/2",
    "fat_tree:4",
    "rail:4x3",
    "rail:4x3/2",
    "rail:2x4x3/4",
    "rail:3x2x2",
)
MACHINES = (
    "dgx-a100:3",
    "dgx-1:2",
    "dgx-2:2",
    "dgx-a100/4x100:2",
    "dgx-a100",
    "mi300x:2",
    "ndv2:3",
    *(
        "dgx-h100:3/rail",
        "dgx-h100:4/rail/2",
        "dgx-a100/4x100:2x2/rail/2",
        "dgx-a100/3x100:2x2/rail",
        "dgx-1:2x2/rail/2",
        "nvl36:2/rail",
        "nvl36/9x400:2/rail/2",
        "mi355x:2/rail",
        "dgx-spark:5/ring",
        "dgx-spark:4/rail",
        "gh200:3",
        "l40s:2",
    ),
)


def costs(spec: str) -> tuple[list[float], list[float]]:
    """Other values for each dimension, where it may have them."""
    dimensions = 1 if spec.startswith(("fat_tree", "ring:", "fc:", "switch:")) else spec.count("x") + 1
    if spec.startswith("rail"):
        dimensions = 2
    if spec.startswith("hypercube"):
        dimensions = 3
    return [1e-6 * (at + 1) for at in range(dimensions)], [1e9 * (7 - at) for at in range(dimensions)]


def table(network: Network) -> list[Hashable]:
    """All links with their costs; a port is named by those that use it."""
    ends = list(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    start, users = network.port_links
    names = [
        tuple(sorted(ends[link] for link in users[start[port] : start[port + 1]]))
        for port in range(len(network.ports))
    ]
    rows = [
        (
            *ends[link],
            network.alpha_s[link],
            network.beta_s_per_byte[link],
            tuple(sorted(names[port] for port in network.ports_of(link).tolist())),
        )
        for link in range(network.links)
    ]
    return sorted(rows, key=repr)


def folded(spec: str) -> SymmetricNetwork:
    found = symmetric_family(spec, *costs(spec))
    assert found is not None
    return found


@pytest.mark.parametrize("spec", FAMILIES)
def test_a_family_by_orbits_is_the_plain_one(spec: str) -> None:
    found, plain = folded(spec), family(spec, *costs(spec))
    assert not found.problems()
    assert table(found.expanded()) == table(plain)
    assert found.expanded().hosts == plain.hosts
    assert found.links == plain.links
    assert len(found.src) < plain.links


@pytest.mark.parametrize("spec", MACHINES)
def test_a_machine_by_orbits_is_the_plain_one(spec: str) -> None:
    found, plain = symmetric_pod(spec), pod(spec)
    assert found is not None
    assert not found.problems()
    assert table(found.expanded()) == table(plain)
    assert found.expanded().hosts == plain.hosts


@pytest.mark.parametrize("spec", ["torus:4x3", "dragonfly:5x4", "fat_tree:2x3x4", "rfs:3x2x4"])
def test_turned_round_it_is_the_plain_one_turned_round(spec: str) -> None:
    found = folded(spec)
    assert table(found.transposed().expanded()) == table(found.expanded().transposed())
    link = np.arange(len(found.src))
    for shift in found.shifts.tolist():
        there = found.transposed().part(link, found.turned(link, np.full(len(link), shift)))
        here = found.part(link, np.full(len(link), shift))
        assert there.src.tolist() == here.dst.tolist()
        assert there.dst.tolist() == here.src.tolist()


def test_what_no_translation_keeps_is_not_folded() -> None:
    assert symmetric_family("mesh:4x4", [0.0], [1e9]) is None
    assert symmetric_pod("dgx-1") is None


def test_tens_of_thousands_of_ranks_have_few_rows() -> None:
    large = (
        ("torus:64x32x32", 1 << 16, 6),
        ("fat_tree:32x32x16", 1 << 14, (1 << 14) - 1),
        ("rail:8x64x8", 1 << 12, (1 << 12) - 1),
        ("rail:8x64x8/2", 1 << 12, 2 * ((1 << 12) - 1)),
    )
    for spec, ranks, rows in large:
        found = symmetric_family(spec, [5e-7], [5e10])
        assert found is not None
        assert (found.ranks, len(found.src)) == (ranks, rows)


def test_translations_are_a_group() -> None:
    found = folded("line_switch_ring:3x2x4")
    ranks = np.arange(found.ranks)
    for shift in found.shifts:
        assert np.array_equal(np.sort(found.moved(ranks, shift)), ranks)
        assert np.array_equal(found.moved(found.moved(ranks, shift), found.back(shift)), ranks)
        assert (found.moved(ranks, shift) != ranks).all() == (shift != 0)
    assert len(found.shifts) * len(found.cells) == found.ranks


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"sizes": (4, 0)}, "sizes"),
        ({"axes": (1, 0)}, "axes"),
        ({"axes": (2,)}, "axes"),
        ({"ranks_per_host": 0}, "ranks_per_host"),
        ({"src": ints([1, 0, 0, 0])}, "src[0]"),
        ({"dst": ints([99, 3, 4, 8])}, "dst[0]"),
        ({"dst": ints([0, 3, 4, 8])}, "leads from rank 0 to itself"),
        ({"dst": ints([1])}, "dst"),
        ({"link_port_at": ints([3])}, "link_port_at"),
    ],
)
def test_what_is_no_network_is_refused(wrong: dict[str, object], says: str) -> None:
    found = replace(folded("torus:4x3"), **wrong)  # type: ignore[arg-type] # a case of the table
    assert any(says in problem for problem in found.problems())


@pytest.mark.parametrize("size", [1 << 17, 10**9, 2**31, 2**62])
def test_more_ranks_than_fit_are_refused_before_they_are_made(size: int) -> None:
    large = replace(folded("switch:6"), sizes=(size,))
    assert large.problems() == [f"sizes: expected at most 65536 ranks, found {size}"]
