"""Network families and named machines as symmetric networks, without listing all their links.

| network              | translations                                                               |
|----------------------|----------------------------------------------------------------------------|
| hierarchies of kinds | along each ring, switch and fc, and along lines of two                     |
| dragonfly:GxA        | of the groups                                                              |
| fat_tree:AxB…        | along all levels; if oversubscribed, only of the topmost switches          |
| machines by name     | of the hosts; if a switch joins the GPUs, also of the groups that share a NIC |
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from synth.networks.dgx import Machine, machine_of
from synth.networks.families import Dimension, Shape, shape_of
from synth.networks.symmetric import OrbitLink, SymmetricNetwork, from_links

__all__ = ["symmetric_family", "symmetric_pod"]


def symmetric_family(
    spec: str,
    alpha_s: Sequence[float],
    bandwidth_bytes_per_s: Sequence[float],
    *,
    hold_alpha: bool = False,
    unwind: Sequence[int] = (),
) -> SymmetricNetwork | None:
    """Return the network of `family` for the same arguments; None if only the identity is a translation."""
    shape = shape_of(spec, alpha_s, bandwidth_bytes_per_s, unwind)
    if shape.family == "dragonfly":
        axes, links = [1], _dragonfly(shape)
    elif shape.family == "fat_tree":
        levels = len(shape.sizes)
        axes = list(range(levels)) if shape.oversubscription == 1 else [levels - 1]
        links = _fat_tree(shape, axes)
    else:
        axes = [axis for axis, dimension in enumerate(shape.dimensions) if _is_circulant(dimension)]
        links = _product(shape, axes)
    if not any(shape.sizes[axis] > 1 for axis in axes):
        return None
    per_host = shape.ranks_per_host
    return from_links(spec, shape.sizes, axes, links, ranks_per_host=per_host, hold_alpha=hold_alpha)


def symmetric_pod(spec: str, *, hold_alpha: bool = False) -> SymmetricNetwork | None:
    """Return the network of `pod` for the same name; None if only the identity is a translation."""
    machine, count = machine_of(spec)
    nics = machine.nics if not machine.links and machine.gpus % machine.nics == 0 else 1
    sizes, axes = (machine.gpus // nics, nics, count), (1, 2)
    if nics * count == 1:
        return None
    links = (*_inside(machine, sizes), *_between(machine, sizes))
    return from_links(spec, sizes, axes, links, ranks_per_host=machine.gpus, hold_alpha=hold_alpha)


def _is_circulant(dimension: Dimension) -> bool:
    """Return whether adding to the digit, modulo the size, maps the dimension's links to themselves."""
    return dimension.kind != "line" or dimension.size <= 2


def _cells(sizes: Sequence[int], axes: Sequence[int]) -> list[int]:
    """Return the ranks whose digits along the axes are 0."""
    shape = [1 if axis in axes else size for axis, size in enumerate(sizes)]
    strides = [math.prod(sizes[:axis]) for axis in range(len(sizes))]
    return sorted(int(np.dot(digits, strides)) for digits in np.ndindex(*shape))


def _product(shape: Shape, axes: Sequence[int]) -> Iterator[OrbitLink]:
    sizes, stride = shape.sizes, 1
    cells = _cells(sizes, axes)
    for axis, dimension in enumerate(shape.dimensions):
        pairs = dimension.pairs_from_first() if axis in axes else dimension.pairs()
        through_ports = dimension.kind == "switch" and not dimension.unwind
        for cell in cells:
            for a, b in pairs:
                if cell // stride % dimension.size != a:
                    continue
                dst = cell + (b - a) * stride
                enters = cell if axis in axes else dst
                ports = ((f"rank {cell} egress {axis}", 0), (f"rank {enters} ingress {axis}", dst - enters))
                yield OrbitLink(
                    cell, dst, dimension.alpha_s, dimension.beta_s_per_byte, ports if through_ports else ()
                )
        stride *= dimension.size


def _dragonfly(shape: Shape) -> Iterator[OrbitLink]:
    local, across = shape.dimensions
    for a in range(local.size):
        for b in range(local.size):
            if a != b:
                yield OrbitLink(a, b, local.alpha_s, local.beta_s_per_byte)
    for other in range(1, across.size):
        src = (other - 1) % local.size
        dst = other * local.size + (across.size - other - 1) % local.size
        yield OrbitLink(src, dst, across.alpha_s, across.beta_s_per_byte)


def _fat_tree(shape: Shape, axes: Sequence[int]) -> Iterator[OrbitLink]:
    sizes, over = shape.sizes, shape.oversubscription
    ranks = math.prod(sizes)
    below = [math.prod(sizes[: level + 1]) for level in range(len(sizes) - 1)]
    cost = shape.dimensions[0].alpha_s, shape.dimensions[0].beta_s_per_byte
    all_move = len(axes) == len(sizes)
    for src in _cells(sizes, axes):
        for dst in range(ranks):
            if src == dst:
                continue
            cell = 0 if all_move else dst % below[-1]
            ports = [(f"rank {src} egress", 0), (f"rank {cell} ingress", dst - cell)]
            for level, size in enumerate(below):
                if src // size == dst // size:
                    continue
                uplink = dst % max(1, size // over)
                if all_move:
                    # The shift from uplink 0 of switch 0: its high digits number the switch, its low digits
                    # the uplink.
                    ports += [
                        (f"level {level} up", src // size * size + uplink),
                        (f"level {level} down", dst),
                    ]
                else:
                    top = dst // below[-1] * below[-1]
                    inner = dst % below[-1] // size
                    ports += [(f"switch {level}.{src // size} up {uplink}", 0)]
                    ports += [(f"switch {level}.{inner} down {uplink}", top)]
            yield OrbitLink(src, dst, *cost, tuple(ports))


def _inside(machine: Machine, sizes: Sequence[int]) -> Iterator[OrbitLink]:
    beta, shared = 1e-9 / machine.link_gbs, sizes[0]
    for a, b, parallel in machine.links:
        for _ in range(parallel):
            yield OrbitLink(a, b, machine.link_alpha_s, beta)
            yield OrbitLink(b, a, machine.link_alpha_s, beta)
    if machine.links:
        return
    moves = sizes[1] > 1
    for src in range(shared if moves else machine.gpus):
        for dst in range(machine.gpus):
            if src != dst:
                cell = dst % shared if moves else dst
                ports = ((f"gpu {src} switch egress", 0), (f"gpu {cell} switch ingress", dst - cell))
                yield OrbitLink(src, dst, machine.link_alpha_s, beta, ports)


def _between(machine: Machine, sizes: Sequence[int]) -> Iterator[OrbitLink]:
    shared, beta = sizes[0], 1e-9 / machine.nic_gbs
    moves = sizes[1] > 1
    for src in range(shared if moves else machine.gpus):
        for dst in range(machine.gpus, machine.gpus * sizes[2]):
            host, gpu = divmod(dst, machine.gpus)
            there = gpu * machine.nics // machine.gpus
            if moves:
                ports = (("nic egress", 0), ("nic ingress", dst - dst % shared))
            else:
                leaves = src * machine.nics // machine.gpus
                ports = ((f"nic{leaves} egress", 0), (f"nic{there} ingress", host * machine.gpus))
            yield OrbitLink(src, dst, machine.nic_alpha_s, beta, ports)
