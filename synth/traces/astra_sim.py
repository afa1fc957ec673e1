"""ASTRA-sim's files: traces of a collective, and its system, workload, memory and network.

The traces are the implementation of a collective that the workload calls. ASTRA-sim's analytical network
models one dimension of equal links. Its ring and clique agree with ccctl's; its switch stores and forwards
messages, so each message takes its transfer time twice. Other networks are written for ns-3, whose links cost
the same in both directions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from synth.network import Network
from synth.schedules import Schedule
from synth.traces.chakra import chakra_trace, collective_trace
from synth.traces.operations import operations_of

__all__ = ["Files", "astra_sim_files"]

# The collectives that ASTRA-sim's system file names.
_NAMED = ("all_reduce", "all_gather", "all_to_all", "reduce_scatter")
# The bytes of a GB in ASTRA-sim.
_GB = 1 << 30
# Costs that differ by less than this share are equal, because floats round.
_ALIKE = 1e-9


class Files(NamedTuple):
    """Contents by file name, and ``cautions``: differences that ASTRA-sim's files cannot express."""

    contents: dict[str, bytes]
    cautions: tuple[str, ...]


def astra_sim_files(schedule: Schedule) -> Files:
    """Return ``collective.RANK.et`` of each rank, if possible also ``workload.RANK.et`` and settings.

    Paths in the configurations are relative to the folder of the files. Raises UnavailableError if `protobuf`
    is not installed.
    """
    traces = [chakra_trace(operations) for operations in operations_of(schedule)]
    contents = {f"collective.{rank}.et": trace for rank, trace in enumerate(traces)}
    cautions: list[str] = []
    kind = schedule.collective.kind
    if kind in _NAMED and schedule.collective.whole:
        name = kind.replace("_", "-")
        workload = collective_trace(kind, schedule.collective.total_bytes(schedule.chunk_bytes))
        contents |= {f"workload.{rank}.et": workload for rank in range(schedule.network.ranks)}
        contents["system.json"] = _json(
            {
                "scheduling-policy": "FIFO",
                # ASTRA-sim runs the whole traces for each split, so there must be only one split.
                "preferred-dataset-splits": 1,
                f"{name}-implementation-custom": ["collective"],
                "local-mem-bw": 50,
            }
        )
        contents["memory.json"] = _json({"memory-type": "NO_MEMORY_EXPANSION"})
    else:
        cautions.append(
            f"ASTRA-sim takes no implementation of {schedule.collective.label}: only traces are written"
        )
    network, caution = _network(schedule.network)
    cautions += [caution] if caution else []
    return Files(contents | network, tuple(cautions))


def _json(document: dict[str, object]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _network(network: Network) -> tuple[dict[str, bytes], str]:
    """Return (the network's file, or none if ASTRA-sim has no such network; a caution, or "")."""
    if network.hold_alpha:
        return {}, "ASTRA-sim has no network whose links are held for alpha, too: no network file is written"
    shape = _shape(network)
    if shape is not None:
        alpha_ns, gb_per_s = network.alpha_s[0] * 1e9, 1 / (network.beta_s_per_byte[0] * _GB)
        caution = ""
        if shape == "Switch":
            alpha_ns /= 2
            caution = "ASTRA-sim's switch stores and forwards: each message takes its transfer time twice"
        text = (
            f"topology: [ {shape} ]\nnpus_count: [ {network.ranks} ]\n"
            f"bandwidth: [ {gb_per_s:.17g} ]\nlatency: [ {alpha_ns:.17g} ]\n"
        )
        return {"network.yml": text.encode()}, caution
    if len(network.ports) or not _both_ways(network):
        return {}, "ASTRA-sim has no network with such links or shared ports: no network file is written"
    return {"network.txt": _ns3(network)}, "only ASTRA-sim's ns-3 backend knows such a network: network.txt"


def _shape(network: Network) -> str | None:
    """Return ASTRA-sim's name of a one-dimensional network of equal links; None for other networks."""
    ranks = network.ranks
    costs = (network.alpha_s, network.beta_s_per_byte)
    if not network.links or any(np.ptp(cost) > _ALIKE * cost.max() for cost in costs):
        return None
    pairs = set(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    if len(pairs) != network.links:
        return None
    if len(network.ports):
        return "Switch" if len(pairs) == ranks * (ranks - 1) and _one_port_a_way(network) else None
    if len(pairs) == ranks * (ranks - 1):
        return "FullyConnected"
    around = {(rank, (rank + step) % ranks) for rank in range(ranks) for step in (1, -1)}
    return "Ring" if pairs == around else None


def _one_port_a_way(network: Network) -> bool:
    """Return whether each link uses exactly one port out of its source and one into its destination."""
    held = [set(network.ports_of(link).tolist()) for link in range(network.links)]
    ways = []
    for ends in (network.src, network.dst):
        of_rank = [set(range(len(network.ports)))] * network.ranks
        for link, rank in enumerate(ends.tolist()):
            of_rank[rank] = of_rank[rank] & held[link]
        ways.append(of_rank)
    used = [port for of_rank in ways for ports in of_rank for port in ports]
    return len(used) == len(set(used)) == 2 * network.ranks and all(
        held[link] == ways[0][src] | ways[1][dst]
        for link, (src, dst) in enumerate(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    )


def _both_ways(network: Network) -> bool:
    """Return whether each link has a reverse link of the same cost, and no parallel link."""
    cost = {(src, dst): (alpha_s, beta) for src, dst, alpha_s, beta in _links(network)}
    return len(cost) == network.links and all(cost.get((b, a)) == one for (a, b), one in cost.items())


def _ns3(network: Network) -> bytes:
    """Return the ns-3 file: no switches, each pair of opposite links as one, error rate 0."""
    lines = [
        f"{src} {dst} {8e-9 / beta:.12g}Gbps {alpha_s * 1e3:.12g}ms 0"
        for src, dst, alpha_s, beta in _links(network)
        if src < dst
    ]
    return "\n".join([f"{network.ranks} 0 {len(lines)}", "", *lines, ""]).encode()


def _links(network: Network) -> Iterator[tuple[int, int, float, float]]:
    """Return (source, destination, alpha, beta) of each link."""
    columns = (network.src, network.dst, network.alpha_s, network.beta_s_per_byte)
    return zip(*(column.tolist() for column in columns), strict=True)
