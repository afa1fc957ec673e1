"""Networks of racks behind trunks, with slow racks and slow NICs, as DS-Sync's tests want them."""

from __future__ import annotations

from collections.abc import Sequence

from synth.network import Link, Network, build

SIZE_BYTES = 100_000_000


def racked(
    sizes: Sequence[int],
    *,
    inside: float = 1e-9,
    across: float = 2e-9,
    alpha_s: float = 5e-6,
    slow_ranks: Sequence[int] = (),
    slow_racks: Sequence[int] = (),
    slowness: float = 4.0,
    trunks: bool = True,
    reach_s: float = 0.0,
) -> Network:
    """Racks of these many ranks, a host each, with betas in s/byte; a port each way of a rank and a trunk."""
    rack = [number for number, size in enumerate(sizes) for _ in range(size)]
    links = []
    for a in range(len(rack)):
        for b in range(len(rack)):
            if a == b:
                continue
            crosses = rack[a] != rack[b]
            beta = across if crosses else inside
            if crosses and {rack[a], rack[b]} & set(slow_racks):
                beta *= slowness
            if {a, b} & set(slow_ranks):
                beta = max(beta, slowness * inside)
            ports = [f"rank {a} egress", f"rank {b} ingress"]
            if crosses and trunks:
                ports += [f"trunk {rack[a]} up", f"trunk {rack[b]} down"]
            links.append(Link(a, b, alpha_s + crosses * reach_s, beta, tuple(ports)))
    return build("racks", [f"n{rank}" for rank in range(len(rack))], links)
