"""Symmetric schedules: the plain checker accepts their expansions, in the time of the quotient."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_examples import chessboard
from symmetric_samples import fastest, folded, made

from probes.base.errors import UsageError
from synth.bounds.lower_bounds import bounds
from synth.bounds.symmetric import symmetric_bounds
from synth.check.schedule import check
from synth.collective import Kind
from synth.errors import NotApplicableError
from synth.networks.dgx import is_pod, pod
from synth.networks.families import family
from synth.networks.symmetric import OrbitLink, from_links
from synth.portfolio.symmetry.symmetric import is_large
from synth.schedules import SYMMETRIC
from synth.simulation.schedule import replay

SMALL = (
    "ring:5",
    "torus:4x3",
    "torus:2x3x3",
    "hypercube:8",
    "fc:5",
    "switch:6",
    "switch_switch:3x4",
    "rfs:3x2x3",
    "line_switch_ring:3x2x3",
    "dragonfly:5x4",
    "dragonfly:4x5",
    "fat_tree:4x3",
    "fat_tree:2x3x2",
    "fat_tree:4x4x2/2",
    "dgx-a100:2",
    "dgx-1:2",
    "dgx-a100/4x100:2",
    "dgx-a100/2x100:4/rail/2",
    "dgx-spark:5/ring",
    "rail:4x2",
    "rail:4x2/2",
    "rail:2x2x3",
    "rail:2x4x2/4",
)
# Percent of the bound that 64 MiB come to with as many chunks as are worth it.
GOOD = {
    "torus:4x4x4": 99,
    "torus:6x4": 97,
    "dgx-a100:8": 97,
    "fat_tree:8x8": 99,
    "dragonfly:9x8": 95,
    "rfs:2x4x8": 97,
    "dgx-a100:8/rail": 99,
    "dgx-a100:8/rail/2": 99,
    "dgx-a100:2x4/rail/2": 70,
    "nvl36:2": 99,
}


@pytest.mark.parametrize(("spec", "kind"), chessboard(SMALL, SYMMETRIC))
def test_with_all_sends_listed_the_plain_judge_accepts_it_in_the_same_time(spec: str, kind: Kind) -> None:
    for share in (1, 2):
        found = made(spec, kind, share)
        plain = found.expanded()
        timing = replay(plain)
        assert check(plain, timing) == []
        assert plain.sends == found.sends
        assert found.outcome is not None
        assert timing.time_s == pytest.approx(found.outcome.time_s, rel=1e-9)


@pytest.mark.parametrize(("spec", "kind"), chessboard(SMALL, SYMMETRIC, one_in=4))
def test_bounds_hold_and_are_about_those_of_the_plain_network(spec: str, kind: Kind) -> None:
    """A bound above the time of a schedule would be none; those of the plain network check ours."""
    network = folded(spec)
    plain = pod(spec) if is_pod(spec) else family(spec, [5e-7], [50e9])
    found = fastest(network, kind, 64 << 20)
    assert found.outcome is not None
    assert all(bound.time_s <= found.outcome.time_s * (1 + 1e-9) for bound in found.outcome.bounds)
    size_bytes = found.collective.total_bytes(found.chunk_bytes)
    ours = symmetric_bounds(network, kind, size_bytes)[0].time_s
    theirs = bounds(plain, found.collective, found.chunk_bytes, fluid=True)[0].time_s
    # Prices that prove more of an all_to_all beside ports are not looked for.
    assert ours >= (0.4 if kind == "all_to_all" else 0.9) * theirs


@pytest.mark.parametrize(("spec", "kind"), chessboard(GOOD, SYMMETRIC, one_in=4))
def test_is_near_its_bound(spec: str, kind: Kind) -> None:
    found = fastest(folded(spec), kind, 256 << 20)
    assert found.outcome is not None
    assert found.outcome.percent_of_optimal >= GOOD[spec]


def test_the_same_seed_gives_the_same_schedule() -> None:
    one, two = made("dragonfly:5x4", "all_reduce"), made("dragonfly:5x4", "all_reduce")
    assert all(np.array_equal(getattr(one, name), getattr(two, name)) for name in ("chunk", "link", "shift"))


def test_of_another_size_it_is_proven_as_well() -> None:
    found = made("torus:4x3", "all_reduce").of_size(1 << 30)
    assert check(found) == []
    assert found.collective.total_bytes(found.chunk_bytes) >= 1 << 30


def test_what_is_large_is_known_beforehand() -> None:
    assert is_large(folded("torus:64x32x32"), "all_gather")
    assert not is_large(folded("torus:64x32x32"), "broadcast")
    assert not is_large(folded("torus:4x4x4"), "all_reduce")


def test_other_collectives_and_uneven_chunks_are_refused() -> None:
    with pytest.raises(NotApplicableError):
        fastest(folded("torus:4x3"), "broadcast", 1 << 20)
    with pytest.raises(UsageError, match="found 7"):
        fastest(folded("torus:4x3"), "all_reduce", chunk_bytes=1 << 20, chunks=7)


@pytest.mark.parametrize("kind", SYMMETRIC)
def test_links_that_lead_not_everywhere_are_told(kind: Kind) -> None:
    network = from_links("apart", [4], [0], [OrbitLink(0, 2, 0.0, 1e-9)])
    with pytest.raises(NotApplicableError):
        fastest(network, kind, 1 << 20)


@pytest.mark.parametrize("kind", SYMMETRIC)
def test_links_of_one_direction_will_do(kind: Kind) -> None:
    network = from_links("one way", [5], [0], [OrbitLink(0, 1, 1e-6, 1e-9), OrbitLink(0, 2, 1e-6, 2e-9)])
    found = fastest(network, kind, 1 << 20)
    assert check(found.expanded()) == []
