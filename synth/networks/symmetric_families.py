"""Network families and named machines as symmetric networks, without listing all their links.

| network              | translations                                                               |
|----------------------|----------------------------------------------------------------------------|
| hierarchies of kinds | along each ring, switch and fc, and along lines of two                     |
| dragonfly:GxA        | of the groups                                                              |
| fat_tree:AxB…        | along all levels; if oversubscribed, only of the topmost switches          |
| machines by name     | of the hosts; if a switch joins the GPUs, also of the groups that share a NIC |
| rail fabrics         | as for machines; if oversubscribed, not among hosts of the same uplink     |
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from synth.networks.dgx import fabric_of, machine_of
from synth.networks.families import Dimension, Shape, rail_hosts, shape_of
from synth.networks.host_links import Fabric, Machine, ports_between, reached_hosts
from synth.networks.symmetric import OrbitLink, SymmetricNetwork, cell_table, from_links

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
    if shape.family == "rail":
        return _of_hosts(spec, *rail_hosts(shape), hold_alpha)
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
    machine, _ = machine_of(spec)
    return _of_hosts(spec, machine, fabric_of(spec), hold_alpha)


def _of_hosts(spec: str, machine: Machine, fabric: Fabric, hold_alpha: bool) -> SymmetricNetwork | None:
    """Return the network of equal hosts; None if only the identity is a translation."""
    sizes, axes = _host_digits(machine, fabric)
    if math.prod(sizes[axis] for axis in axes) == 1:
        return None
    links = (*_inside(machine, sizes, axes), *_between(machine, fabric, sizes, axes))
    return from_links(spec, sizes, axes, links, ranks_per_host=machine.gpus, hold_alpha=hold_alpha)


def _host_digits(machine: Machine, fabric: Fabric) -> tuple[list[int], list[int]]:
    """Return (sizes of the digits of a rank, axes along which translations move it).

    The digits are the GPU among those that share a NIC, the NIC, and the host. In a rail fabric two digits
    stand for the NIC: its rail and its tray. Three stand for the host: its number among hosts of different
    uplinks, its number among hosts of the same uplink, and its unit. No translation changes the second of
    these three.
    """
    nics = machine.nics if not machine.links and machine.gpus % machine.nics == 0 else 1
    digits = [(machine.gpus // nics, False)]
    if fabric.kind != "rail":
        digits += [(nics, True), (fabric.count, True)]
    else:
        rails = machine.rails if nics > 1 else 1
        digits += [(rails, True), (nics // rails, True), (fabric.distinct_hosts, True)]
        digits += [(fabric.oversubscription, False), (fabric.units, True)]
        digits[2:] = [digit for digit in digits[2:] if digit[0] > 1]
    return [size for size, _ in digits], [axis for axis, (_, moves) in enumerate(digits) if moves]


def _is_circulant(dimension: Dimension) -> bool:
    """Return whether adding to the digit, modulo the size, maps the dimension's links to themselves."""
    return dimension.kind != "line" or dimension.size <= 2


def _cells(sizes: Sequence[int], axes: Sequence[int]) -> list[int]:
    """Return the ranks whose digits along the axes are 0."""
    return [int(cell) for cell in np.unique(cell_table(sizes, axes))]


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
                    # A port is given by its shift from uplink 0 of switch 0. The high digits of the shift are
                    # the switch, the low digits the uplink.
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


def _inside(machine: Machine, sizes: Sequence[int], axes: Sequence[int]) -> Iterator[OrbitLink]:
    beta, shared = 1e-9 / machine.link_gbs, sizes[0]
    cells = _cells(sizes, axes)
    for first in dict.fromkeys(cell // machine.gpus * machine.gpus for cell in cells):
        for a, b, parallel in machine.links:
            for _ in range(parallel):
                yield OrbitLink(first + a, first + b, machine.link_alpha_s, beta)
                yield OrbitLink(first + b, first + a, machine.link_alpha_s, beta)
    if machine.links:
        return
    for src in cells:
        first = src // machine.gpus * machine.gpus
        for dst in range(first, first + machine.gpus):
            if src != dst:
                cell = first + dst % shared
                ports = ((f"gpu {src} switch egress", 0), (f"gpu {cell} switch ingress", dst - cell))
                yield OrbitLink(src, dst, machine.link_alpha_s, beta, ports)


def _between(
    machine: Machine, fabric: Fabric, sizes: Sequence[int], axes: Sequence[int]
) -> Iterator[OrbitLink]:
    beta = 1e-9 / machine.nic_gbs
    cells = cell_table(sizes, axes).tolist()
    for src in _cells(sizes, axes):
        for other in reached_hosts(fabric, src // machine.gpus):
            for dst in range(other * machine.gpus, (other + 1) * machine.gpus):
                ports = []
                for port in ports_between(machine, fabric, src, dst):
                    # The place of a port is the first GPU that uses its NIC.
                    at = port.host * machine.gpus + machine.first_gpu(port.nic)
                    ports.append((f"{port.kind} {cells[at]}", at - cells[at]))
                yield OrbitLink(src, dst, machine.nic_alpha_s, beta, tuple(ports))
