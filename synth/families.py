"""Named families of networks, each a product of dimensions: ``mesh:10x10``, ``rfs:2x4x64``.

| family                  | dimensions                                                    |
|-------------------------|---------------------------------------------------------------|
| ring:N                  | one ring, both directions                                     |
| mesh:AxB…, torus:AxB…   | lines, rings                                                  |
| hypercube:N             | log2 N lines of 2                                             |
| fully_connected:N (fc)  | a link between every two ranks                                |
| switch:N                | a link between every two, one egress and one ingress port each |
| ring_fc_switch:AxBxC (rfs) | a ring of A, fully connected B, a switch over C (TACOS Sec. V) |

The first dimension varies fastest in the rank number. Alpha and bandwidth are one value, or one for
each dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from probes.errors import UsageError
from synth.network import Link, Network, build

__all__ = ["FAMILIES", "family", "names"]

MOST_LINKS = 4_000_000


@dataclass(frozen=True)
class Dimension:
    """``size`` ranks that ``kind`` connects, with the cost of each of its links."""

    kind: str
    size: int
    alpha_s: float
    bandwidth_bytes_per_s: float


def _line(size: int) -> Iterator[tuple[int, int]]:
    for place in range(size - 1):
        yield place, place + 1
        yield place + 1, place


def _ring(size: int) -> Iterator[tuple[int, int]]:
    yield from _line(size)
    if size > 2:
        yield size - 1, 0
        yield 0, size - 1


def _all_pairs(size: int) -> Iterator[tuple[int, int]]:
    yield from ((a, b) for a in range(size) for b in range(size) if a != b)


_PAIRS: dict[str, Callable[[int], Iterator[tuple[int, int]]]] = {
    "line": _line,
    "ring": _ring,
    "fc": _all_pairs,
    "switch": _all_pairs,
}
FAMILIES: dict[str, tuple[str, ...]] = {
    "ring": ("ring",),
    "mesh": ("line", "..."),
    "torus": ("ring", "..."),
    "hypercube": ("line", "..."),
    "fully_connected": ("fc",),
    "switch": ("switch",),
    "ring_fc_switch": ("ring", "fc", "switch"),
}
_SHORT = {"fc": "fully_connected", "rfs": "ring_fc_switch"}


def names() -> tuple[str, ...]:
    """The families, with their short names."""
    return (*FAMILIES, *_SHORT)


def family(
    spec: str,
    alpha_s: Sequence[float],
    bandwidth_bytes_per_s: Sequence[float],
    *,
    hold_alpha: bool = False,
) -> Network:
    """The network that ``spec`` names, such as ``torus:4x4x4``; raises UsageError with what is wrong."""
    name, _, shape = spec.partition(":")
    name = _SHORT.get(name, name)
    if name not in FAMILIES:
        raise UsageError(f"--network {spec}: unknown family {name!r}", hint=f"known: {', '.join(names())}")
    sizes = _sizes(spec, name, shape)
    kinds = FAMILIES[name]
    if kinds[-1] == "...":
        kinds = (kinds[0],) * len(sizes)
    if len(kinds) != len(sizes):
        example = f"{name}:{'x'.join(['4'] * len(kinds))}"
        raise UsageError(
            f"--network {spec}: expected {len(kinds)} sizes, found {len(sizes)}", hint=f"such as {example}"
        )
    alphas = _per_dimension("--alpha", alpha_s, len(sizes))
    bandwidths = _per_dimension("--bandwidth", bandwidth_bytes_per_s, len(sizes))
    dimensions = [Dimension(*values) for values in zip(kinds, sizes, alphas, bandwidths, strict=True)]
    return build(spec, _hosts(dimensions), _links(spec, dimensions), hold_alpha=hold_alpha)


def _sizes(spec: str, name: str, shape: str) -> list[int]:
    try:
        sizes = [int(size) for size in shape.lower().split("x")]
    except ValueError:
        raise UsageError(f"--network {spec}: expected sizes such as {name}:4x4, found {shape!r}") from None
    if min(sizes) < 1 or math.prod(sizes) < 2:
        raise UsageError(f"--network {spec}: a network needs at least two ranks")
    if name != "hypercube":
        return sizes
    ranks = math.prod(sizes)
    if len(sizes) != 1 or ranks & (ranks - 1):
        raise UsageError(f"--network {spec}: a hypercube has 2, 4, 8, 16, … ranks")
    return [2] * (ranks.bit_length() - 1)


def _per_dimension(option: str, values: Sequence[float], dimensions: int) -> list[float]:
    if len(values) not in (1, dimensions):
        raise UsageError(f"{option}: expected 1 or {dimensions} values, found {len(values)}")
    return list(values) * dimensions if len(values) == 1 else list(values)


def _hosts(dimensions: Sequence[Dimension]) -> list[str]:
    """A switch joins hosts: ranks that differ only in the dimensions before it share one."""
    ranks = math.prod(dimension.size for dimension in dimensions)
    joins_hosts = len(dimensions) > 1 and dimensions[-1].kind == "switch"
    per_host = ranks // dimensions[-1].size if joins_hosts else 1
    return [f"n{rank // per_host}" for rank in range(ranks)]


def _links(spec: str, dimensions: Sequence[Dimension]) -> Iterator[Link]:
    ranks = math.prod(dimension.size for dimension in dimensions)
    count = sum(
        ranks // dimension.size * sum(1 for _ in _PAIRS[dimension.kind](dimension.size))
        for dimension in dimensions
    )
    if count > MOST_LINKS:
        raise UsageError(f"--network {spec}: {count} links are more than the {MOST_LINKS} that fit")
    stride = 1
    for axis, dimension in enumerate(dimensions):
        pairs = list(_PAIRS[dimension.kind](dimension.size))
        for block in range(ranks // (stride * dimension.size)):
            for offset in range(stride):
                base = block * stride * dimension.size + offset
                for a, b in pairs:
                    src, dst = base + a * stride, base + b * stride
                    ports = _ports(axis, src, dst) if dimension.kind == "switch" else ()
                    yield Link(src, dst, dimension.alpha_s, 1.0 / dimension.bandwidth_bytes_per_s, ports)
        stride *= dimension.size


def _ports(axis: int, src: int, dst: int) -> tuple[str, str]:
    return f"rank {src} egress {axis}", f"rank {dst} ingress {axis}"
