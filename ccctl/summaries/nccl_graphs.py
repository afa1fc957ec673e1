"""NCCL's graph files for a topology, and the bandwidth of their channels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.artifacts import write_output
from ccctl.errors import UsageError
from ccctl.render import figures
from probes.base import plural

if TYPE_CHECKING:
    from probes.link_costs import Profile
    from synth.nccl_graphs import HostGraphs, PlannedGraph

__all__ = ["write"]


def write(
    network: str, profile: str | None, *, one_host: bool, seed: int, output: str | None, json: bool
) -> None:
    """Write a graph file for each kind of host, and print the bandwidth of its channels.

    ``network`` is a topology file. ``profile`` is a file of measurements between its GPUs; with it, every
    host is its own kind. Raises DataError, and UsageError where ``network`` is no file, or where ``output``
    is missing for several files.
    """
    from ccctl.arguments import read_or_described
    from ccctl.artifacts import codec, exists
    from probes.diff import Alike, fold_hosts
    from probes.paths import measured_gbs
    from synth.nccl_graphs import graph_file, plan_graphs

    if network != "-" and not exists(network):
        raise UsageError(
            f"{network}: --to nccl-graph needs a file that says what is inside a host",
            hint="Run ccctl detect -o topology.json on the host, or give what NCCL_TOPO_DUMP_FILE wrote.",
        )
    topology = read_or_described(network, "topology").body
    measured: Profile | None = codec.read(profile, "profile").body if profile is not None else None
    groups = fold_hosts(topology) if measured is None else [Alike((host,)) for host in topology.hosts]
    if len(groups) > 1 and output in (None, "-"):
        raise UsageError(
            f"{network}: {len(topology.hosts)} hosts of {plural(len(groups), 'kind')} need a file each",
            hint="-o graph.xml writes graph.HOST.xml for the first host of each kind.",
        )
    told = []
    for group in groups:
        host = group.hosts[0]
        pairs = measured_gbs(topology, measured, host) if measured is not None else None
        graphs = plan_graphs(host, between_hosts=not one_host, measured=pairs, seed=seed)
        for doubt in graphs.doubts:
            console.doubt(doubt)
        if profile is not None and not pairs:
            console.doubt(f"{profile}: nothing was measured between GPUs of {host.name}; nominal rates count")
        path = _path(output, host.name, several=len(groups) > 1)
        write_output(None if path is None else str(path), graph_file(graphs))
        told.append(_summary(graphs, group.names, path))
        if not json:
            _tell(graphs, group.names, path)
    if json:
        console.summary({"hosts": told})


def _path(output: str | None, host: str, *, several: bool) -> Path | None:
    if output in (None, "-"):
        return None
    path = Path(str(output))
    return path.with_name(f"{path.stem}.{host}{path.suffix}") if several else path


def _tell(graphs: HostGraphs, names: list[str], path: Path | None) -> None:
    from exec.launcher import fold

    say = console.note if path is None else console.data
    basis = "as measured" if graphs.measured else "as links should carry"
    say(f"{fold(names)}: {plural(len(graphs.gpu_numbers), 'GPU')}, {basis}")
    rows = [_row(graph, graphs) for graph in (graphs.ring, graphs.tree)]
    heads = ["graph", "channels", "GB/s each", "together", "at most", "path types"]
    console.say_table(say, heads, rows)
    if graphs.alike:
        say("every order of these GPUs is equally good: NCCL needs no file")
    else:
        gain = graphs.ring.total_gbs / graphs.plain_gbs
        say(f"one ring by the numbers of the GPUs: {graphs.plain_gbs:.1f} GB/s; in this order {gain:.2f}x")
    if path is not None:
        console.note(f"use it as NCCL_GRAPH_FILE={path}, in jobs that use all of these GPUs")


def _row(graph: PlannedGraph, graphs: HostGraphs) -> list[str]:
    types = graph.type_intra if not graphs.net_numbers else f"{graph.type_intra}, NICs {graph.type_inter}"
    numbers = (f"{gbs:.1f}" for gbs in (graph.gbs, graph.total_gbs, graph.most_gbs))
    return [graph.kind, str(len(graph.channels)), *numbers, types]


def _summary(graphs: HostGraphs, names: list[str], path: Path | None) -> dict[str, Any]:
    return {
        "names": names,
        "file": None if path is None else str(path),
        "measured": graphs.measured,
        "alike": graphs.alike,
        "one_ring_by_numbers_gbs": graphs.plain_gbs,
        **{
            graph.kind: {
                "channels": [
                    {
                        "gpus": [graphs.gpu_numbers[at] for at in channel.gpus],
                        "net": None if channel.nic is None else graphs.net_numbers[channel.nic],
                    }
                    for channel in graph.channels
                ],
                "gbs_each": graph.gbs,
                "gbs": graph.total_gbs,
                **figures(graph, "most_gbs type_intra type_inter"),
            }
            for graph in (graphs.ring, graphs.tree)
        },
    }
