"""Files for an unmodified NCCL that suit a network: order of hosts, graphs, tuner file, environment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from exec.launcher.starters import PlacedHost, order_file
from exec.library_rules.files import planned_tuner_file
from probes.base import UsageError, format_size, plural
from probes.topology import Topology
from synth.collective import Kind
from synth.nccl_graphs import KindOfHost, graph_file, plan_kinds
from synth.nccl_tuning import NcclWorld, SizeChoice, TuningPlan, plan_tuning
from synth.network import Network
from synth.networks import from_topology, is_pod, threadblock_bytes_per_s
from synth.rank_order import RankOrder, algorithm_of, plan_order

__all__ = ["StockFile", "StockPlan", "nccl_choice", "plan_stock"]

# A smaller gain is not worth a file. The planners of orders and of tuner files have the same limit.
_LEAST_GAIN = 1.02
# The least GB/s of one threadblock on each architecture, in NCCL's model (perChMaxRingLL128Bws). The rate of
# a machine that is known by name tells the architecture of its GPUs.
_ARCHITECTURES = ((40.0, "blackwell"), (36.7, "hopper"), (20.0, "ampere"))
# The rate of PCIe 5.0 with 16 lanes: faster links between GPUs of a host are NVLinks.
_PCIE_BYTES_PER_S = 64e9
_PLUGIN = "libnccl-tuner-example.so"


@dataclass(frozen=True)
class StockFile:
    """One file: its name in the folder, its text, what it sets, and the gain over ``over``."""

    name: str
    content: bytes
    sets: str
    gain: float
    over: str = "the order given"


@dataclass(frozen=True)
class StockPlan:
    """The files that gain something, NCCL's choices by size, and doubts about what was assumed."""

    network: str
    files: tuple[StockFile, ...]
    order: RankOrder | None
    tuning: TuningPlan
    doubts: tuple[str, ...]


def plan_stock(
    network: Network,
    machine: Topology | None,
    sizes: Sequence[int],
    folder: str,
    *,
    spec: str = "",
    seed: int = 0,
) -> StockPlan:
    """Return what NCCL can load for a network; files name others in ``folder``.

    ``machine`` describes the inside of the hosts; without it there are no graph files and no tuner file.
    ``spec`` is the text that named the network; the name of a machine tells the architecture of the GPUs.
    Raises UsageError as the planners do.
    """
    several = len(set(network.hosts)) > 1
    order = (
        plan_order(network, algorithm_of("nccl", "all_reduce"), max(sizes), seed=seed) if several else None
    )
    kinds, doubts = _graphs(machine, several, seed)
    world, unsure = _world(network, spec, machine, kinds)
    believed = None
    if machine is not None and sum(len(host.usable_gpus) for host in machine.hosts) == network.ranks:
        believed = from_topology(machine, network.name)
    ranks = order.ranks if order is not None else None
    tuning = plan_tuning(network, world, sizes, believed=believed, order=ranks)
    files = tuple(_files(order, kinds, tuning, folder))
    if tuning.most_gain >= _LEAST_GAIN and not world.channels:
        doubts.append(
            "no tuner file, although other algorithms or protocols are faster: NVIDIA's plugin needs the "
            "number of channels, which follows from the topology of the hosts (a file of ccctl detect or "
            "NCCL_TOPO_DUMP_FILE)"
        )
    return StockPlan(network.name, files, order, tuning, (*doubts, *unsure))


def nccl_choice(network: Network, kind: Kind, size_bytes: int) -> SizeChoice | None:
    """Return the setting that NCCL takes for a size, with its time by NCCL's model.

    Return None if NCCL's model lacks the collective, if the hosts have different numbers of ranks, or if the
    network does not tell which GPUs it has.
    """
    world, doubts = _world(network, network.name, None, ())
    if doubts:
        return None
    try:
        found = plan_tuning(network, world, [size_bytes]).choices.get(kind)
    except UsageError:
        return None
    return found[0] if found else None


def _graphs(machine: Topology | None, between_hosts: bool, seed: int) -> tuple[list[KindOfHost], list[str]]:
    """Return the graphs of each kind of host, none if they cannot be planned, and doubts."""
    if machine is None:
        return [], []
    try:
        kinds = plan_kinds(machine, between_hosts=between_hosts, seed=seed)
    except UsageError as error:
        return [], [f"no graph file: {error.message}"]
    return kinds, [doubt for kind in kinds for doubt in kind.graphs.doubts]


def _world(
    network: Network, spec: str, machine: Topology | None, kinds: Sequence[KindOfHost]
) -> tuple[NcclWorld, list[str]]:
    """Return the communicator as NCCL sees it, and the assumptions made."""
    within, doubts = network.within_host, []
    rate = 1.0 / float(network.beta_s_per_byte[within].min()) if within.any() else 0.0
    world = NcclWorld(network.ranks, len(set(network.hosts)), "hopper", nvlink=rate > _PCIE_BYTES_PER_S)
    gpus = [gpu for host in machine.hosts for gpu in host.usable_gpus] if machine is not None else []
    major = min((gpu.compute_capability.partition(".")[0] for gpu in gpus), default="")
    by_capability = {"7": "volta", "8": "ampere", "9": "hopper", "10": "blackwell", "12": "blackwell"}
    if major in by_capability:
        world = replace(world, architecture=by_capability[major])  # type: ignore[arg-type] # one of them
    elif is_pod(spec) and threadblock_bytes_per_s(spec) < float("inf"):
        gbs = threadblock_bytes_per_s(spec) / 1e9
        known = next((name for least, name in _ARCHITECTURES if gbs >= least), "volta")
        world = replace(world, architecture=known)  # type: ignore[arg-type] # one of them
    else:
        doubts.append("the GPUs are assumed to be Hopper: neither the network nor a topology names them")
    # NCCL takes two channels for each channel of a graph, and the smallest number of all hosts.
    channels = min((2 * len(kind.graphs.ring.channels) for kind in kinds), default=0)
    trusted = all(kind.graphs.ring.type_inter in ("LOC", "PIX", "PXB") for kind in kinds)
    return replace(world, channels=channels, ll128=world.nvlink and trusted), doubts


def _files(
    order: RankOrder | None, kinds: Sequence[KindOfHost], tuning: TuningPlan, folder: str
) -> Iterator[StockFile]:
    environment: list[str] = []
    if order is not None and order.changed:
        index = {machine.host: number for number, machine in enumerate(order.before)}
        placed = [PlacedHost(machine.host, machine.slots, index[machine.host]) for machine in order.after]
        yield StockFile(
            "hosts",
            order_file(placed, "hostfile").encode(),
            f"the order of {plural(len(placed), 'host')}, for all_reduce of {format_size(order.size_bytes)}",
            order.gain,
        )
    for kind in kinds:
        graphs = kind.graphs
        gain = graphs.ring.total_gbs / graphs.plain_gbs if graphs.plain_gbs else 1.0
        if graphs.alike or gain < _LEAST_GAIN:
            continue
        name = f"graph.{graphs.host}.xml" if len(kinds) > 1 else "graph.xml"
        channels = f"{plural(len(graphs.ring.channels), 'channel')} of {graphs.ring.gbs:.1f} GB/s"
        yield StockFile(
            name,
            graph_file(graphs),
            f"the order of GPUs in {graphs.host}: {channels}",
            gain,
            "one ring in the order of the GPU numbers",
        )
        environment.append(f"NCCL_GRAPH_FILE={Path(folder) / name}")
    if tuning.most_gain >= _LEAST_GAIN and tuning.world.channels:
        sizes = sum(len(found) for found in tuning.choices.values())
        yield StockFile(
            "tuner.csv",
            planned_tuner_file(tuning).encode(),
            f"algorithm and protocol: others at {tuning.changed} of {sizes} sizes",
            tuning.most_gain,
            "NCCL's choice, at the size that gains most",
        )
        environment += [
            f"NCCL_TUNER_CONFIG_FILE={Path(folder) / 'tuner.csv'}",
            f"# RCCL 2.28.3 and later needs no plugin.\nNCCL_TUNER_PLUGIN={_PLUGIN}",
        ]
    if environment:
        text = "".join(f"{line}\n" for line in environment)
        yield StockFile("nccl.env", text.encode(), "the variables that name the files above", 1.0, "")
