"""`nvidia-smi topo -m` and `-p2p`: path types between devices, without the PCI tree behind them.

The matrix numbers GPUs and has no bus ids. So a GPU is called "gpu<number>" until another source of the same
machine has its bus id. An NVLink cell counts the links between two GPUs. If the counts of one GPU add up to
more links than any model of GPU has, each cell counts the same links: those from the GPU to NVSwitches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import PurePath

from probes.base import DataError, first_number, is_cpu_list
from probes.smi.nvlink_status import LinkStatus, link_statuses
from probes.smi.text import CPUS, NODE, DeviceMatrix, decoded, grids
from probes.topology import FabricLink, Finding, Gpu, Host, Matrix, Nic, NumaNode, Topology

__all__ = ["METHOD", "read"]

METHOD = "smi"
# NVLinks of an H100 or B200; no GPU has more.
_MOST_LINKS = 18
# A legend explains the words of a matrix of paths; the legend of topo -mp has no word for NVLinks.
_PATH_LEGEND, _NVLINK_LEGEND = re.compile(r"^\s*SYS\s+=", re.MULTILINE), "NV#"
_ROW = re.compile(r"^\s*GPU\d+\s+(X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|OK)\b", re.MULTILINE)
_HINT = (
    "ccctl reads NCCL's topology XML, hwloc's XML, nvidia-smi topo -m and -p2p, nvidia-smi -q -x, "
    "rocm-smi --showtopo, amd-smi topology."
)


@dataclass(frozen=True)
class _Pair:
    """Two matrices of one machine: paths, and peer-to-peer access of GPUs; either may be missing."""

    paths: DeviceMatrix | None
    p2p: DeviceMatrix | None

    @property
    def grids(self) -> list[DeviceMatrix]:
        """The matrices that exist."""
        return [grid for grid in (self.paths, self.p2p) if grid is not None]


def read(content: bytes, source: str) -> Topology:
    """Read the machines whose matrices a text holds.

    Raises DataError for text without a matrix, and for an incomplete matrix.
    """
    if not content.strip():
        raise DataError(source, ["the file is empty"], hint=_HINT)
    text = decoded(content)
    found, legend = grids(text, source)
    if not found:
        problem = "expected XML of NCCL or hwloc, or a matrix of nvidia-smi, found neither"
        if _ROW.search(text):
            problem = (
                "expected the line that names the columns (GPU0 GPU1 …) above the rows, found rows alone"
            )
        raise DataError(source, [problem], hint=_HINT)
    stem, pairs = PurePath(source).stem, _machines(found)
    names = [stem if len(pairs) == 1 else f"{stem}-{number}" for number in range(len(pairs))]
    # With several machines, the text does not say which one a list of links belongs to.
    statuses = link_statuses(text) if len(pairs) == 1 else {}
    readings = [_host(name, pair, legend, statuses) for name, pair in zip(names, pairs, strict=True)]
    notes = [
        f"{name}: {note}"
        for name, pair in zip(names, pairs, strict=True)
        for grid in pair.grids
        for note in (*grid.notes, *_gaps(grid))
    ]
    if len(pairs) == 1 and _PATH_LEGEND.search(text) and _NVLINK_LEGEND not in text:
        notes.append(f"{stem}: a matrix of PCIe alone (topo -mp): it leaves out NVLinks; topo -m has them")
    findings = [finding for name, pair in zip(names, pairs, strict=True) for finding in _lopsided(name, pair)]
    return Topology(tuple(readings), tuple(findings), tuple(notes))


def _machines(found: Iterable[DeviceMatrix]) -> list[_Pair]:
    """Join each matrix with the matrix before it if they differ in kind and have the same GPUs."""
    pairs: list[_Pair] = []
    for grid in found:
        mine = _Pair(None, grid) if grid.is_p2p else _Pair(grid, None)
        before = pairs[-1] if pairs else _Pair(None, None)
        other = before.paths if grid.is_p2p else before.p2p
        free = before.p2p is None if grid.is_p2p else before.paths is None
        if other is not None and free and _gpus(other) == _gpus(grid):
            pairs[-1] = _Pair(mine.paths or before.paths, mine.p2p or before.p2p)
        else:
            pairs.append(mine)
    return pairs


def _gpus(grid: DeviceMatrix) -> list[str]:
    return [device for device in grid.devices if device.startswith("GPU")]


def _host(name: str, pair: _Pair, legend: Mapping[str, str], statuses: Mapping[int, LinkStatus]) -> Host:
    first = pair.grids[0]
    gpus = tuple(_gpu(device, first, pair.p2p, statuses) for device in _gpus(first))
    nics = [_key(device, legend) for device in first.devices if not device.startswith("GPU")]
    return Host(
        name=name,
        method=METHOD,
        numa=tuple(_nodes(gpus)),
        gpus=gpus,
        nics=tuple(
            Nic(nic, METHOD, physical=True, rdma_device="" if nic.startswith("NIC") else nic) for nic in nics
        ),
        fabric=tuple(_links(pair.paths, statuses)) if pair.paths else (),
        matrices=tuple(_matrix(grid, legend) for grid in pair.grids),
    )


def _key(device: str, legend: Mapping[str, str]) -> str:
    return device.lower() if device.startswith("GPU") else legend.get(device, device)


def _matrix(grid: DeviceMatrix, legend: Mapping[str, str]) -> Matrix:
    # Drivers before 2017 write SOC for SYS.
    cells = tuple(
        tuple("SYS" if word == "SOC" else word for word in grid.rows[device]) for device in grid.devices
    )
    devices = tuple(_key(device, legend) for device in grid.devices)
    return Matrix("p2p" if grid.is_p2p else "path", devices, cells, METHOD)


def _gpu(
    device: str, grid: DeviceMatrix, p2p: DeviceMatrix | None, statuses: Mapping[int, LinkStatus]
) -> Gpu:
    said = grid.further.get(device, {})
    cpus, node = said.get(CPUS, ""), said.get(NODE, "")
    peers: tuple[str, ...] = ()
    if p2p is not None:
        peers = tuple(
            other.lower() for other, word in zip(p2p.devices, p2p.rows[device], strict=True) if word == "OK"
        )
    index = int(device.removeprefix("GPU"))
    status = statuses.get(index, LinkStatus("", "", None))
    return Gpu(
        bus_id=device.lower(),
        method=METHOD,
        index=index,
        vendor="nvidia",
        name=status.name,
        uuid=status.uuid,
        cpus=cpus if is_cpu_list(cpus) else "",
        # Grace lists its own node first, then the nodes of the GPUs' memory.
        numa=first_number(node),
        peers=peers,
    )


def _nodes(gpus: Iterable[Gpu]) -> Iterator[NumaNode]:
    """Yield the NUMA nodes of the GPUs, each with the CPUs near a GPU there."""
    nodes: dict[int, str] = {}
    for gpu in gpus:
        if gpu.numa is not None:
            nodes[gpu.numa] = nodes.get(gpu.numa) or gpu.cpus
    yield from (NumaNode(index, METHOD, cpus=nodes[index]) for index in sorted(nodes))


def _links(grid: DeviceMatrix, statuses: Mapping[int, LinkStatus]) -> Iterator[FabricLink]:
    for device in _gpus(grid):
        counts = {
            other.lower(): int(word[2:])
            for other, word in zip(grid.devices, grid.rows[device], strict=True)
            if word.startswith("NV")
        }
        status = statuses.get(int(device.removeprefix("GPU")))
        gbs = status.gbs if status else None
        first = FabricLink(device.lower(), "nvswitch", "switch", "nvlink", 1, METHOD, gbs=gbs, state="up")
        if sum(counts.values()) > _MOST_LINKS:
            yield replace(first, count=max(counts.values()))
        else:
            yield from (replace(first, target=to, target_kind="gpu", count=n) for to, n in counts.items())


def _lopsided(host: str, pair: _Pair) -> Iterator[Finding]:
    for grid in pair.grids[:1]:
        for (row, device), (column, other) in combinations(enumerate(grid.devices), 2):
            here, there = grid.rows[device][column], grid.rows[other][row]
            if here != there:
                text = f"its row says {here} of {other}, whose row says {there} of it"
                yield Finding("lopsided", f"{host}/{device.lower()}", text)


def _gaps(grid: DeviceMatrix) -> Iterator[str]:
    numbers = [int(device.removeprefix("GPU")) for device in _gpus(grid)]
    absent = sorted(set(range(max(numbers) + 1)) - set(numbers))
    if absent:
        yield f"GPU{', GPU'.join(map(str, absent))} not in the matrix, though others have higher numbers"
