"""Networks after failures: ranks and links that are gone, and what is left of them.

A failed rank keeps its number, so that reports go on naming the same machine; it loses its links and
its part in collectives. ``survivors`` are those that take part instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from probes.base import Indices, Mask, UsageError, floats, ints, offsets
from synth.network import Network

__all__ = ["Failures", "kept_links", "survivors", "without"]


@dataclass(frozen=True)
class Failures:
    """What is gone: ranks, and (src, dst) of directed links, all parallel ones of a pair."""

    ranks: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()


def without(network: Network, failures: Failures) -> Network:
    """``network`` without what failed; raises UsageError naming what was not there to fail."""
    gone = np.isin(network.src, failures.ranks) | np.isin(network.dst, failures.ranks)
    for rank in failures.ranks:
        if not 0 <= rank < network.ranks:
            raise UsageError(
                f" rank:{rank}: {network.name} has ranks 0 to {network.ranks - 1}", argument="without"
            )
    for src, dst in failures.links:
        between = (network.src == src) & (network.dst == dst)
        if not between.any():
            raise UsageError(f" link: {network.name} has no link {src} → {dst}", argument="without")
        gone |= between
    if network.ranks - len(set(failures.ranks)) < 1:
        raise UsageError(f": no rank of {network.name} is left", argument="without")
    return kept_links(network, np.flatnonzero(~gone))


def survivors(network: Network, failures: Failures, members: Iterable[int] = ()) -> tuple[int, ...]:
    """Of ``members`` (none: all ranks) those that have not failed."""
    asked = list(members) or range(network.ranks)
    return tuple(rank for rank in asked if rank not in failures.ranks)


def kept_links(network: Network, rows: Indices | Mask) -> Network:
    """``network`` with only these links; ports that none of them uses stay, so that numbers hold."""
    kept = np.arange(network.links)[rows]
    _, ports = network.ports_along(kept)
    return replace(
        network,
        src=ints(network.src[kept]),
        dst=ints(network.dst[kept]),
        alpha_s=floats(network.alpha_s[kept]),
        beta_s_per_byte=floats(network.beta_s_per_byte[kept]),
        link_port_start=ints(offsets(np.diff(network.link_port_start)[kept])),
        link_port=ints(ports),
    )
