"""Plans a host's rings and trees for NCCL's graph file, and compares them with a ring in GPU order."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from probes.base import UsageError
from probes.diff import Alike, fold_hosts
from probes.link_costs import Profile
from probes.nccl import numbered_ports
from probes.paths import PathType, load, measured_gbs
from probes.topology import Host, Topology
from synth.nccl_graphs.capacities import PathCapacities, capacities_of
from synth.nccl_graphs.channels import GraphChannel, Packed, candidates, packed, total_gbs

__all__ = ["HostGraphs", "KindOfHost", "PlannedGraph", "plan_graphs", "plan_kinds"]

# Path types in words that all versions of NCCL and RCCL know, from near to far. NCCL reads an unknown word as
# LOC, nearer than NVLink, and would use the protocol LL128 on paths where it loses data.
_WORDS: Mapping[PathType, str] = {
    "LOC": "LOC",
    "NVL": "NVL",
    "NVB": "NVB",
    "PIX": "PIX",
    "PXB": "PXB",
    "PXN": "PXN",
    "C2C": "PHB",
    "PHB": "PHB",
    "NODE": "PHB",
    "SYS": "SYS",
    "?": "SYS",
    "NET": "SYS",
}
_FAR = ("LOC", "NVL", "NVB", "PIX", "PXB", "PXN", "PHB", "SYS")


@dataclass(frozen=True)
class PlannedGraph:
    """One graph: channels of ``gbs`` each, and the farthest path types inside the host and to NICs.

    ``most_gbs`` is an upper bound on the total rate of any set of candidate channels.
    """

    kind: Literal["ring", "tree"]
    channels: tuple[GraphChannel, ...]
    gbs: float
    most_gbs: float
    type_intra: str
    type_inter: str

    @property
    def total_gbs(self) -> float:
        return self.gbs * len(self.channels)


@dataclass(frozen=True)
class HostGraphs:
    """The graphs of a host; ``gpu_numbers`` and ``net_numbers`` are NCCL's numbers of GPUs and NICs.

    ``plain_gbs`` is the rate of one ring in the order of the GPU numbers, with the nearest NIC. ``alike``:
    all orders of these GPUs are equally good.
    """

    host: str
    ring: PlannedGraph
    tree: PlannedGraph
    gpu_numbers: tuple[int, ...]
    net_numbers: tuple[int, ...]
    plain_gbs: float
    alike: bool
    measured: bool
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class KindOfHost:
    """Hosts that can share a graph file, and their graphs.

    ``unmeasured``: a profile was given, but has no rates between these GPUs.
    """

    names: tuple[str, ...]
    graphs: HostGraphs
    unmeasured: bool


def plan_kinds(
    topology: Topology, measured: Profile | None = None, *, between_hosts: bool, seed: int = 0
) -> list[KindOfHost]:
    """Return the graphs of each kind of host; with a measured profile, every host is a kind of its own.

    Raises UsageError as `plan_graphs` does.
    """
    groups = fold_hosts(topology) if measured is None else [Alike((host,)) for host in topology.hosts]
    found = []
    for group in groups:
        host = group.hosts[0]
        pairs = measured_gbs(topology, measured, host) if measured is not None else None
        graphs = plan_graphs(host, between_hosts=between_hosts, measured=pairs, seed=seed)
        found.append(KindOfHost(tuple(group.names), graphs, measured is not None and not pairs))
    return found


def plan_graphs(
    host: Host,
    *,
    between_hosts: bool,
    measured: Mapping[tuple[str, str], float] | None = None,
    seed: int = 0,
) -> HostGraphs:
    """Return the best rings and trees found for the usable GPUs of ``host``.

    ``measured`` maps (bus id from, bus id to) to GB/s. Raises UsageError if there are fewer than two GPUs, if
    NCCL's numbers of them are unknown, and, with ``between_hosts``, if there is no NIC.
    """
    gpus = host.usable_gpus
    if len(gpus) < 2:
        raise UsageError(f"{host.name}: a graph needs two GPUs, found {len(gpus)}")
    numbers = [gpu.index for gpu in gpus if gpu.index is not None]
    if len(set(numbers)) < len(gpus):
        raise UsageError(f"{host.name}: its GPUs have no numbers", hint="Detect on the machine itself.")
    ports = numbered_ports(host)
    nics = [nic for nic in host.physical_nics if nic.name in ports] if between_hosts else []
    if between_hosts and not nics:
        raise UsageError(
            f"{host.name}: the topology has no NIC that leads to other hosts",
            hint="A graph for jobs of one host needs none.",
        )
    room = capacities_of(host, nics, load(), measured)
    offered = candidates(room, between_hosts=between_hosts, seed=seed)
    ring = packed(room, offered)
    # NCCL uses the smaller number of channels of ring and tree, so both get equally many.
    tree = packed(room, _chains(ring.channels, offered), tree=True, channels=len(ring.channels))
    plain = tuple(sorted(range(len(gpus)), key=lambda at: numbers[at]))
    first = [GraphChannel(plain, nic) for nic in range(len(nics)) if plain[0] in room.near[nic]]
    doubts = []
    if any(nic.index is None for nic in nics):
        taken = ", ".join(f"{nic.name} {ports[nic.name]}" for nic in nics)
        doubts.append(
            f"{host.name}: NCCL's numbers of its NICs are assumed to be those of a job without NCCL_IB_HCA: "
            f"{taken}; the file that NCCL_TOPO_DUMP_FILE makes has the real ones"
        )
    return HostGraphs(
        host.name,
        _graph("ring", room, ring),
        _graph("tree", room, tree),
        tuple(numbers),
        tuple(ports[nic.name] for nic in nics),
        total_gbs(room, first or [GraphChannel(plain, 0 if nics else None)]),
        not between_hosts and room.alike,
        bool(measured),
        tuple(doubts),
    )


def _chains(rings: Sequence[GraphChannel], offered: Sequence[GraphChannel]) -> list[GraphChannel]:
    """Return candidates for trees: the ``offered`` ones with NICs, else each ring cut open at every GPU."""
    if offered[0].nic is not None:
        return list(offered)
    found: dict[GraphChannel, None] = {}
    for ring in dict.fromkeys(rings):
        for order in (ring.gpus, ring.gpus[::-1]):
            found |= {GraphChannel(order[at:] + order[:at]): None for at in range(len(order))}
    return list(found)


def _graph(kind: Literal["ring", "tree"], room: PathCapacities, found: Packed) -> PlannedGraph:
    intra, inter = ["LOC"], ["PIX" if room.nics else "LOC"]
    for channel in found.channels:
        order = channel.gpus
        intra += [_WORDS[room.path[a][b]] for a, b in itertools.pairwise(order)]
        if channel.nic is None:
            intra += [_WORDS[room.path[order[-1]][order[0]]]] if kind == "ring" else []
        else:
            leaves = order[min(1, len(order) - 1)] if kind == "tree" else order[-1]
            inter += [_WORDS[room.net_path[at][channel.nic]] for at in (order[0], leaves)]
    return PlannedGraph(
        kind,
        found.channels,
        found.gbs,
        found.most_gbs,
        max(intra, key=_FAR.index),
        max(inter, key=_FAR.index),
    )
