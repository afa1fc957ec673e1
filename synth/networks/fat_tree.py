"""Fat trees: ranks below leaf switches, leaves below higher switches, uplinks of equal speed as ports.

A switch over m ranks has m / oversubscription ports up and as many down. The destination fixes the path
between two ranks, as in destination-modulo routing (Zahavi et al.): up port ``dst mod ports`` of each switch
on the way, and the same port down. So if every rank sends to the rank at the same distance (a shift), no two
sends share a port, unless the tree is oversubscribed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from probes.base import UsageError, whole
from synth.collective import MOST_RANKS
from synth.network import Link
from synth.networks.dimensions import parse_dimensions

__all__ = ["links", "shape"]


def shape(spec: str, text: str) -> tuple[list[int], int]:
    """Return (children of a switch by level, oversubscription) of ``16x4x2``, ``16x4/2`` or a k-ary ``8``.

    A k-ary tree has k/2 ranks a leaf, k/2 leaves a pod and k pods. Raises UsageError.
    """
    levels, slash, over = text.lower().partition("/")
    example = "fat_tree:16x4 or fat_tree:16x4/2"
    sizes = parse_dimensions(spec, levels, example)
    oversubscription = whole(over, 1, MOST_RANKS) if slash else 1
    if oversubscription is None:
        raise UsageError(
            f"network {spec}: expected sizes such as {example}, found {over!r} for the oversubscription"
        )
    if len(sizes) == 1:
        arity = sizes[0]
        if arity < 2 or arity % 2:
            raise UsageError(f"network {spec}: a k-ary fat tree has an even k ≥ 2, found {arity}")
        sizes = [size for size in (arity // 2, arity // 2, arity) if size > 1]
    if math.prod(sizes) < 2:
        raise UsageError(f"network {spec}: a network needs at least two ranks")
    return sizes, oversubscription


def links(
    sizes: Sequence[int], oversubscription: int, alpha_s: float, beta_s_per_byte: float
) -> Iterator[Link]:
    """Yield a link between every two ranks, with the ports of its path."""
    ranks = math.prod(sizes)
    below = [math.prod(sizes[: level + 1]) for level in range(len(sizes) - 1)]
    for src in range(ranks):
        for dst in range(ranks):
            if src == dst:
                continue
            ports = [f"rank {src} egress", f"rank {dst} ingress"]
            for level, size in enumerate(below):
                if src // size != dst // size:
                    uplink = dst % max(1, size // oversubscription)
                    ports.append(f"switch {level}.{src // size} up {uplink}")
                    ports.append(f"switch {level}.{dst // size} down {uplink}")
            yield Link(src, dst, alpha_s, beta_s_per_byte, tuple(ports))
