"""Symmetric networks and schedules for tests, by name."""

from __future__ import annotations

from synth import Request
from synth.collective import Kind
from synth.networks.dgx import is_pod
from synth.networks.symmetric import SymmetricNetwork
from synth.networks.symmetric_families import symmetric_family, symmetric_pod
from synth.portfolio.symmetry.symmetric import fastest_symmetric
from synth.schedules import SymmetricSchedule

__all__ = ["fastest", "folded", "made"]


def folded(spec: str, bandwidth: float = 50e9) -> SymmetricNetwork:
    found = symmetric_pod(spec) if is_pod(spec) else symmetric_family(spec, [5e-7], [bandwidth])
    assert found is not None
    return found


def fastest(
    network: SymmetricNetwork, kind: Kind, size_bytes: int | None = None, **options: int
) -> SymmetricSchedule:
    """The symmetric schedule for a network of any such kind, also one that has no name."""
    request = Request(network, kind, size_bytes, **options)  # type: ignore[arg-type]
    found = fastest_symmetric(request, network).schedule
    assert isinstance(found, SymmetricSchedule)
    return found


def made(spec: str, kind: Kind, share: int = 1) -> SymmetricSchedule:
    network = folded(spec)
    chunks = share * network.ranks if kind in ("all_reduce", "reduce_scatter", "all_to_all") else share
    return fastest(network, kind, chunk_bytes=1 << 16, chunks=chunks)
