"""The matrices in hwloc's XML: distances between NUMA nodes, NVLink and xGMI bandwidth between devices.

A bandwidth is the sum of the advertised rates of all links between two devices, in MB/s. The number of links
follows from the speed of one link.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Literal

from probes.base import whole
from probes.files import XmlElement
from probes.hwloc.objects import METHOD, MachineReader
from probes.nccl import integer, number
from probes.paths import Bandwidths
from probes.topology import FabricLink, Gpu

__all__ = ["Distances", "links", "numa_distances", "read_distances"]

_FABRICS: Mapping[str, Literal["nvlink", "xgmi"]] = {"NVLinkBandwidth": "nvlink", "XGMIBandwidth": "xgmi"}


@dataclass(frozen=True)
class Distances:
    """One matrix, row by row, between the objects that ``ends`` name ("OSDev:802", "NUMANode:0")."""

    name: str
    ends: tuple[str, ...]
    values: tuple[float, ...]

    def pairs(self) -> Iterator[tuple[str, str, float]]:
        """Yield every two different objects and their value."""
        size = len(self.ends)
        for row, here in enumerate(self.ends):
            for column, there in enumerate(self.ends):
                if row != column:
                    yield here, there, self.values[row * size + column]


def read_distances(root: XmlElement, reading: MachineReader) -> list[Distances]:
    """Return the matrices of a file; adds malformed ones to the problems of ``reading``."""
    found = []
    for element in root.children:
        if element.tag in ("distances2", "distances2hetero"):
            distances = _version_2(element)
            if not distances.ends or len(distances.values) != len(distances.ends) ** 2:
                reading.problems.append(
                    f"line {element.line}: expected the matrix {distances.name or '(no name)'} to be square, "
                    f"found {len(distances.ends)} objects and {len(distances.values)} values"
                )
            else:
                found.append(distances)
    return found + list(_version_1(root, reading))


def _version_2(element: XmlElement) -> Distances:
    kind = element.get("type")
    ends = [word for part in element.children if part.tag == "indexes" for word in part.text.split()]
    words = [word for part in element.children if part.tag == "u64values" for word in part.text.split()]
    if kind:
        ends = [f"{kind}:{word}" for word in ends]
    return Distances(
        element.get("name"),
        tuple(ends),
        tuple(float(number) for word in words if (number := whole(word)) is not None),
    )


def _version_1(element: XmlElement, reading: MachineReader) -> Iterator[Distances]:
    """Yield the matrices of format version 1, stored inside the parent object as multiples of a base."""
    for child in element.children:
        if child.tag == "distances":
            values = [number(cell.get("value")) or 0 for cell in child.children if cell.tag == "latency"]
            size = isqrt(len(values))
            if size == len(reading.numa) and size * size == len(values):
                base = number(child.get("latency_base")) or 10
                nodes = tuple(f"NUMANode:{index}" for index in sorted(reading.numa))
                yield Distances("NUMALatency", nodes, tuple(value * base for value in values))
        elif child.tag == "object":
            yield from _version_1(child, reading)


def numa_distances(matrices: Iterable[Distances]) -> dict[int, tuple[int, ...]]:
    """Map each NUMA node to its distances to nodes 0, 1, 2, …; empty unless the file has all of them."""
    for matrix in matrices:
        numbers = [integer(end.removeprefix("NUMANode:")) for end in matrix.ends]
        size = len(numbers)
        if matrix.name in ("NUMALatency", "") and numbers == list(range(size)):
            return {
                at: tuple(round(v) for v in matrix.values[at * size : (at + 1) * size]) for at in range(size)
            }
    return {}


def links(
    matrices: Iterable[Distances],
    gpus: Mapping[str, Gpu],
    switches: Container[str],
    places: Mapping[str, str],
    tables: Bandwidths,
) -> Iterator[FabricLink]:
    """Yield the NVLinks and xGMI links of each GPU; ``places`` maps ends of a matrix to devices."""
    for matrix in matrices:
        kind = _FABRICS.get(matrix.name)
        if kind is None:
            continue
        for here, there, mbs in matrix.pairs():
            source, target = places.get(here, ""), places.get(there, "")
            if mbs <= 0 or source not in gpus or source == target:
                continue
            wire_gbs = _wire_gbs(mbs / 1000, tables.fabric(kind, gpus[source].arch).wire_gbs)
            yield FabricLink(
                source=source,
                target=target,
                target_kind=_end(target, gpus, switches),
                kind=kind,
                count=max(1, round(mbs / 1000 / wire_gbs)),
                method=METHOD,
                state="up",
            )


def _end(
    target: str, gpus: Container[str], switches: Container[str]
) -> Literal["gpu", "switch", "cpu", "unknown"]:
    if target in gpus:
        return "gpu"
    if target in switches:
        return "switch"
    return "cpu" if target.startswith("numa") else "unknown"


def _wire_gbs(pair_gbs: float, known_gbs: float) -> float:
    """Return a link's advertised rate: the architecture's if it divides ``pair_gbs``, else a usual rate."""
    usual = [gbs for gbs in (known_gbs, known_gbs // 25 * 25) if gbs] + [25.0, 20.0, 50.0]
    return next((gbs for gbs in usual if abs(pair_gbs / gbs - round(pair_gbs / gbs)) < 0.02), usual[0])
