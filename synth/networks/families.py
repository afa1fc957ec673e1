"""Named families of networks, each a product of dimensions: ``mesh:10x10``, ``rfs:2x4x64``.

| family                     | dimensions                                                         |
|----------------------------|--------------------------------------------------------------------|
| ring:N                     | one ring, both directions                                          |
| mesh:AxB…, torus:AxB…      | lines, rings                                                       |
| hypercube:N                | log2 N lines of 2                                                  |
| fully_connected:N (fc)     | a link between every two ranks                                     |
| switch:N                   | a link between every two; each rank has one egress and one ingress |
| switch_switch:AxB          | a switch over A, a switch over B (TACOS Sec. VII)                  |
| ring_fc_switch:AxBxC (rfs) | a ring of A, fully connected B, a switch over C (TACOS Sec. VII)   |
| KIND_KIND…:AxB…            | any hierarchy of ring, line, fc and switch, such as fc_ring:4x8    |
| dragonfly:GxA              | G groups of A fully connected ranks, a link between every two      |
| fat_tree:AxB…              | A ranks below each leaf, B leaves below each switch, and so on     |
| fat_tree:K                 | a k-ary tree; a final /2 oversubscribes either tree by 2           |
| rail:HxG, rail:UxHxG       | U units of H hosts of G ranks behind a switch; NIC i is on leaf i  |

The first size of a name varies fastest in the rank number; in dragonflies and rails, the last size does.
Alpha and bandwidth are one value, or one for each dimension. A dragonfly has one for local and one for global
links, rails one for links inside hosts and one for NICs.

Unwinding by D replaces a switch over n ranks by links n → n+1 … n+D (mod n), each with 1/D of the bandwidth
(TACOS Sec. IV-D). A degree D above n − 1 counts as n − 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from probes.base import UsageError, plural, whole
from synth.collective import MOST_RANKS
from synth.network import Link, Network, build
from synth.networks import fat_tree
from synth.networks.dimensions import parse_dimensions, require_links, require_ranks
from synth.networks.host_links import Fabric, Machine, host_links, link_count
from synth.networks.named import named_network

__all__ = ["FAMILIES", "Dimension", "Shape", "family", "is_family", "names", "rail_hosts", "shape_of"]


@dataclass(frozen=True)
class Dimension:
    """A dimension: ``size`` ranks that ``kind`` connects, with the cost of each of its links."""

    kind: str
    size: int
    alpha_s: float
    bandwidth_bytes_per_s: float
    unwind: int = 0

    def pairs(self) -> list[tuple[int, int]]:
        """Return (src, dst) of every link along this dimension."""
        if not self.unwind:
            return list(_PAIRS[self.kind](self.size))
        return [(a, (a + step) % self.size) for a in range(self.size) for step in range(1, self.degree + 1)]

    def pairs_from_first(self) -> list[tuple[int, int]]:
        """Return (src, dst) of the links that rank 0 sends over."""
        if self.unwind:
            return [(0, step % self.size) for step in range(1, self.degree + 1)]
        if self.kind in ("line", "ring"):
            return [(a, b) for a, b in self.pairs() if a == 0]
        return [(0, b) for b in range(1, self.size)]

    @property
    def pair_count(self) -> int:
        """The number of pairs, without listing them."""
        if self.unwind:
            return self.size * self.degree
        if self.kind in ("line", "ring"):
            return 2 * (self.size - (self.kind == "line" or self.size < 3))
        return self.size * (self.size - 1)

    @property
    def degree(self) -> int:
        return min(self.unwind, self.size - 1)

    @property
    def beta_s_per_byte(self) -> float:
        return max(1, self.degree) / self.bandwidth_bytes_per_s


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
    "switch_switch": ("switch", "switch"),
    "ring_fc_switch": ("ring", "fc", "switch"),
    "dragonfly": ("local", "global"),
    "fat_tree": ("tree",),
    "rail": ("local", "rail"),
}
_SHORT = {"fc": "fully_connected", "rfs": "ring_fc_switch"}


def is_family(spec: str) -> bool:
    """Return whether ``spec`` names a family or a hierarchy of kinds."""
    name = _plain(spec.partition(":")[0])
    return name in names() or _hierarchy(name) is not None


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _hierarchy(name: str) -> tuple[str, ...] | None:
    """Return the kinds in a name such as ``ring_fc_switch``; None if one is unknown."""
    kinds = tuple(name.split("_"))
    return kinds if len(kinds) > 1 and all(kind in _PAIRS for kind in kinds) else None


def names() -> tuple[str, ...]:
    """Return the names of the families, and their short names."""
    return (*FAMILIES, *_SHORT)


@dataclass(frozen=True)
class Shape:
    """A parsed network name: its family and its dimensions, the one that varies fastest first.

    ``oversubscription`` applies to fat trees and rails.
    """

    family: str
    dimensions: tuple[Dimension, ...]
    oversubscription: int = 1

    @property
    def sizes(self) -> list[int]:
        return [dimension.size for dimension in self.dimensions]

    @property
    def ranks_per_host(self) -> int:
        """The product of the sizes below the last dimension if that is a switch or global; else 1."""
        if self.family == "rail":
            return self.sizes[0]
        joins_hosts = len(self.dimensions) > 1 and self.dimensions[-1].kind in ("switch", "global")
        return math.prod(self.sizes[:-1]) if joins_hosts else 1


def shape_of(
    spec: str, alpha_s: Sequence[float], bandwidth_bytes_per_s: Sequence[float], unwind: Sequence[int] = ()
) -> Shape:
    """Parse ``spec``, such as ``torus:4x4x4``, with its costs; raise UsageError if it is wrong."""
    name, _, shape = spec.partition(":")
    name = _plain(name)
    name = _SHORT.get(name, name)
    kinds = FAMILIES.get(name) or _hierarchy(name)
    if kinds is None:
        raise UsageError(
            f"network {spec}: unknown family {name!r}",
            hint=f"known: {', '.join(names())}, and hierarchies of {', '.join(_PAIRS)} such as fc_ring",
        )
    oversubscription = 1
    if name == "fat_tree":
        sizes, oversubscription = fat_tree.shape(spec, shape)
        require_ranks(spec, math.prod(sizes))
        costs = 1
    elif name == "rail":
        sizes, oversubscription = _rail_sizes(spec, shape)
        kinds, costs = ("local", *["rail"] * (len(sizes) - 1)), 2
    else:
        sizes = _sizes(spec, name, shape, _example(name, kinds))
        costs = len(sizes)
    if kinds[-1] in ("...", "tree"):
        kinds = (kinds[0],) * len(sizes)
    if len(kinds) != len(sizes):
        raise UsageError(
            f"network {spec}: expected {plural(len(kinds), 'size')}, found {len(sizes)}",
            hint=f"such as {_example(name, kinds)}",
        )
    # All dimensions of a tree have the same cost, and units of rails have the cost of NICs.
    alphas = _per_dimension("alpha", alpha_s, costs)
    bandwidths = _per_dimension("bandwidth", bandwidth_bytes_per_s, costs)
    alphas, bandwidths = (each + each[-1:] * (len(sizes) - costs) for each in (alphas, bandwidths))
    degrees = _degrees(spec, kinds, unwind)
    if name in ("dragonfly", "rail"):
        # A name gives the groups or hosts first, but they are the high digit of the rank.
        sizes.reverse()
    dimensions = map(Dimension, kinds, sizes, alphas, bandwidths, degrees)
    return Shape(name, tuple(dimensions), oversubscription)


def family(
    spec: str,
    alpha_s: Sequence[float],
    bandwidth_bytes_per_s: Sequence[float],
    *,
    hold_alpha: bool = False,
    unwind: Sequence[int] = (),
) -> Network:
    """Return the network that ``spec`` names, such as ``torus:4x4x4``; raise UsageError if it is wrong.

    ``unwind`` is empty, one degree for all switches, or one degree for each.
    """
    from synth.networks.symmetric_families import symmetric_family

    shape = shape_of(spec, alpha_s, bandwidth_bytes_per_s, unwind)
    hosts = [f"n{rank // shape.ranks_per_host}" for rank in range(math.prod(shape.sizes))]
    listing = partial(_listed, spec, shape, hosts, hold_alpha)
    folding = partial(
        symmetric_family, spec, alpha_s, bandwidth_bytes_per_s, hold_alpha=hold_alpha, unwind=unwind
    )
    return named_network(spec, hosts, listing, folding, hold_alpha=hold_alpha)


def _listed(spec: str, shape: Shape, hosts: Sequence[str], hold_alpha: bool) -> Network:
    dimensions, sizes = shape.dimensions, shape.sizes
    ranks = math.prod(sizes)
    lowest, highest = dimensions[0], dimensions[-1]
    links: Iterator[Link]
    if shape.family == "dragonfly":
        require_links(spec, _dragonfly_count(highest.size, lowest.size))
        alphas = (lowest.alpha_s, highest.alpha_s)
        betas = (lowest.beta_s_per_byte, highest.beta_s_per_byte)
        links = _dragonfly_links(highest.size, lowest.size, alphas, betas)
    elif shape.family == "fat_tree":
        require_links(spec, ranks * (ranks - 1))
        links = fat_tree.links(sizes, shape.oversubscription, lowest.alpha_s, lowest.beta_s_per_byte)
    elif shape.family == "rail":
        machine, fabric = rail_hosts(shape)
        require_links(spec, link_count(machine, fabric))
        links = host_links(machine, fabric)
    else:
        require_links(spec, sum(ranks // dim.size * dim.pair_count for dim in dimensions))
        links = _links(dimensions)
    return build(spec, hosts, links, hold_alpha=hold_alpha)


def rail_hosts(shape: Shape) -> tuple[Machine, Fabric]:
    """Return the hosts of the family "rail", with one NIC for each rank, and the fabric that joins them."""
    inside, between = shape.dimensions[:2]
    units = math.prod(shape.sizes[2:])
    machine = Machine(
        inside.size,
        inside.bandwidth_bytes_per_s / 1e9,
        (),
        inside.size,
        between.bandwidth_bytes_per_s / 1e9,
        inside.alpha_s,
        between.alpha_s,
    )
    return machine, Fabric(between.size, units, "rail", shape.oversubscription)


def _rail_sizes(spec: str, text: str) -> tuple[list[int], int]:
    """Return (sizes in the order of the name, oversubscription) of ``64x8``, ``4x16x8`` or ``64x8/2``."""
    levels, slash, over = text.lower().partition("/")
    example = "rail:64x8, rail:4x16x8 or rail:64x8/2"
    sizes = parse_dimensions(spec, levels, example)
    oversubscription = whole(over, 1, MOST_RANKS) if slash else 1
    if len(sizes) not in (2, 3) or math.prod(sizes) < 2:
        raise UsageError(f"network {spec}: expected hosts and ranks of a host such as {example}")
    if oversubscription is None or sizes[-2] % oversubscription:
        raise UsageError(
            f"network {spec}: a leaf has {sizes[-2]} hosts below it: expected an oversubscription that "
            f"divides {sizes[-2]}, found {over!r}"
        )
    return sizes, oversubscription


def _degrees(spec: str, kinds: Sequence[str], unwind: Sequence[int]) -> list[int]:
    """Return for each dimension the degree by which its switch is unwound, or 0."""
    if not unwind:
        return [0] * len(kinds)
    switches = kinds.count("switch")
    if not switches or len(unwind) not in (1, switches) or min(unwind) < 1:
        raise UsageError(
            f": network {spec} has {plural(switches, 'dimension')} of switches; expected one degree ≥ 1 for "
            f"all or for each of them, found {', '.join(map(str, unwind))}",
            argument="unwind",
        )
    degrees = iter(list(unwind) * (switches if len(unwind) == 1 else 1))
    return [next(degrees) if kind == "switch" else 0 for kind in kinds]


def _example(name: str, kinds: Sequence[str]) -> str:
    if name == "hypercube":
        return "hypercube:8"
    sizes = ["4", "4"] if kinds[-1] == "..." else ["8"] if len(kinds) == 1 else ["4"] * len(kinds)
    return f"{name}:{'x'.join(sizes)}"


def _sizes(spec: str, name: str, shape: str, example: str) -> list[int]:
    sizes = parse_dimensions(spec, shape, example)
    if math.prod(sizes) < 2:
        raise UsageError(f"network {spec}: a network needs at least two ranks")
    if name != "hypercube":
        return sizes
    ranks = math.prod(sizes)
    if len(sizes) != 1 or ranks & (ranks - 1):
        raise UsageError(f"network {spec}: a hypercube has 2, 4, 8, 16, … ranks")
    return [2] * (ranks.bit_length() - 1)


def _per_dimension(argument: str, values: Sequence[float], dimensions: int) -> list[float]:
    if len(values) not in (1, dimensions):
        expected = "1 value" if dimensions == 1 else f"1 or {dimensions} values"
        raise UsageError(f": expected {expected}, found {len(values)}", argument=argument)
    return list(values) * dimensions if len(values) == 1 else list(values)


def _links(dimensions: Sequence[Dimension]) -> Iterator[Link]:
    ranks = math.prod(dimension.size for dimension in dimensions)
    stride = 1
    for axis, dimension in enumerate(dimensions):
        pairs = dimension.pairs()
        alpha_s, beta_s_per_byte = dimension.alpha_s, dimension.beta_s_per_byte
        through_ports = dimension.kind == "switch" and not dimension.unwind
        for block in range(ranks // (stride * dimension.size)):
            for offset in range(stride):
                base = block * stride * dimension.size + offset
                for a, b in pairs:
                    src, dst = base + a * stride, base + b * stride
                    ports = (
                        (f"rank {src} egress {axis}", f"rank {dst} ingress {axis}") if through_ports else ()
                    )
                    yield Link(src, dst, alpha_s, beta_s_per_byte, ports)
        stride *= dimension.size


def _dragonfly_count(groups: int, ranks: int) -> int:
    """Return the number of links: local ones, and one global link for each ordered pair of groups."""
    return groups * ranks * (ranks - 1) + groups * (groups - 1)


def _dragonfly_links(
    groups: int, ranks: int, alpha_s: tuple[float, float], beta_s_per_byte: tuple[float, float]
) -> Iterator[Link]:
    """Yield the links of a dragonfly with fully connected groups: local links, then global ones.

    The global links of a group are spread round-robin over its ranks; both directions join the same two
    ranks.
    """
    for group in range(groups):
        first = group * ranks
        for a in range(ranks):
            for b in range(ranks):
                if a != b:
                    yield Link(first + a, first + b, alpha_s[0], beta_s_per_byte[0])
    for group in range(groups):
        for other in range(groups):
            if group != other:
                src = group * ranks + (other - group - 1) % groups % ranks
                dst = other * ranks + (group - other - 1) % groups % ranks
                yield Link(src, dst, alpha_s[1], beta_s_per_byte[1])
