"""Reads and writes the file that NCCL_GRAPH_FILE names (``src/graph/search.cc``, ``src/graph/xml.cc``).

NCCL's parser accepts a subset of XML: only spaces and line feeds between elements, exactly one space between
attributes, no declaration, no entities, and names and values of at most 254 characters. Devices are
hexadecimal. GPUs are written without ``rank``: NCCL then looks up the device, so the file serves every host
and communicator with exactly these GPUs. NCCL reads an unknown path type as LOC.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from probes.base import DataError
from probes.files import XmlElement, parse_xml
from probes.nccl import integer
from synth.nccl_graphs.planner import HostGraphs, PlannedGraph

__all__ = ["FileGraph", "graph_file", "read_graphs"]

# NCCL's numbers of graphs and of their patterns (ring; balanced tree).
_IDS = {"ring": 0, "tree": 1}
_PATTERNS = {"ring": 4, "tree": 1}


@dataclass(frozen=True)
class FileGraph:
    """One graph of a file: its id and pattern, GB/s of a channel, and (NICs, GPUs) of each channel."""

    number: int
    pattern: int
    gbs_intra: float
    gbs_inter: float
    channels: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


def graph_file(graphs: HostGraphs) -> bytes:
    """Return the text of the file for one host."""
    lines = ['<graphs version="1">']
    for graph in (graphs.ring, graphs.tree):
        lines += _graph(graph, graphs)
    return "\n".join([*lines, "</graphs>", ""]).encode()


def _graph(graph: PlannedGraph, graphs: HostGraphs) -> Iterator[str]:
    """Yield the lines of a graph; crossnic is 0, because channels have the same NIC at both ends."""
    inter = graph.gbs if graphs.net_numbers else 0.0
    yield (
        f'  <graph id="{_IDS[graph.kind]}" pattern="{_PATTERNS[graph.kind]}" crossnic="0" '
        f'nchannels="{len(graph.channels)}" speedintra="{graph.gbs:.6g}" speedinter="{inter:.6g}" '
        f'latencyinter="0" typeintra="{graph.type_intra}" typeinter="{graph.type_inter}" '
        f'samechannels="{int(len(set(graph.channels)) == 1)}">'
    )
    for channel in graph.channels:
        net = [] if channel.nic is None else [f'      <net dev="{graphs.net_numbers[channel.nic]:#x}"/>']
        yield "    <channel>"
        yield from net
        yield from (f'      <gpu dev="{graphs.gpu_numbers[at]:#x}"/>' for at in channel.gpus)
        yield from net
        yield "    </channel>"
    yield "  </graph>"


def read_graphs(content: bytes, source: str) -> list[FileGraph]:
    """Return the graphs of a file that NCCL_GRAPH_FILE or NCCL_GRAPH_DUMP_FILE names.

    Raises DataError for other content.
    """
    root = parse_xml(content, source)
    if root.tag != "graphs":
        raise DataError(source, [f"expected a graph file of NCCL (<graphs>), found <{root.tag}>"])
    return [_read(element, source) for element in root.children if element.tag == "graph"]


def _read(element: XmlElement, source: str) -> FileGraph:
    channels = []
    for channel in element.children:
        ends = {"net": [], "gpu": []}  # type: dict[str, list[int]]
        for end in channel.children:
            device = _device(end.get("dev"))
            if end.tag not in ends or device is None:
                raise DataError(
                    source, [f"line {end.line}: expected <gpu> or <net> with a dev, found <{end.tag}>"]
                )
            ends[end.tag].append(device)
        channels.append((tuple(ends["net"]), tuple(ends["gpu"])))
    try:
        speeds = [float(element.get(name) or 0) for name in ("speedintra", "speedinter")]
    except ValueError as error:
        raise DataError(source, [f"line {element.line}: speeds: {error}"]) from error
    number, pattern = integer(element.get("id")), integer(element.get("pattern"))
    if number is None or pattern is None:
        raise DataError(source, [f"line {element.line}: expected id and pattern"])
    return FileGraph(number, pattern, speeds[0], speeds[1], tuple(channels))


def _device(text: str) -> int | None:
    digits = text.removeprefix("0x")
    return int(digits, 16) if digits and all(one in "0123456789abcdefABCDEF" for one in digits) else None
