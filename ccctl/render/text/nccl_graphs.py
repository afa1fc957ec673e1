"""NCCL's graph files for a topology, and the bandwidth of their channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import Column, figures, print_table
from probes.base import plural

if TYPE_CHECKING:
    from synth.nccl_graphs import HostGraphs, PlannedGraph

__all__ = ["draw", "summary"]


def summary(graphs: HostGraphs, names: list[str], path: str | None) -> dict[str, Any]:
    """Return the channels of a kind of host, and their bandwidth."""
    return {
        "names": names,
        "file": path,
        **figures(graphs, "measured alike one_ring_by_numbers_gbs=plain_gbs"),
        **{
            graph.kind: figures(graph, "gbs_each=gbs gbs=total_gbs most_gbs type_intra type_inter")
            | {
                "channels": [
                    {
                        "gpus": [graphs.gpu_numbers[at] for at in channel.gpus],
                        "net": None if channel.nic is None else graphs.net_numbers[channel.nic],
                    }
                    for channel in graph.channels
                ]
            }
            for graph in (graphs.ring, graphs.tree)
        },
    }


def draw(graphs: HostGraphs, names: list[str], path: str | None) -> None:
    """Print the bandwidth of the channels of a kind of host; on stderr if the file is on stdout."""
    from exec.launcher import fold

    say = console.note if path is None else console.data
    basis = "measured rates" if graphs.measured else "nominal rates"
    say(f"{fold(names)}: {plural(len(graphs.gpu_numbers), 'GPU')}, {basis}")
    nics = Column("path types", "type_intra" if not graphs.net_numbers else _types)
    print_table((*_GRAPH, nics), (graphs.ring, graphs.tree), say)
    if graphs.alike:
        say("every order of these GPUs is equally good: NCCL needs no file")
    else:
        gain = graphs.ring.total_gbs / graphs.plain_gbs
        say(
            f"{gain:.2f}x what one ring in the order of the GPU numbers carries ({graphs.plain_gbs:.1f} GB/s)"
            "; NCCL's own search may find as much"
        )
    if path is not None:
        console.note(f"use it as NCCL_GRAPH_FILE={path}, in jobs that use all of these GPUs")


def _types(graph: PlannedGraph) -> str:
    return f"{graph.type_intra}, NICs {graph.type_inter}"


_GRAPH = (
    Column("graph", "kind"),
    Column("channels", lambda graph: len(graph.channels)),
    Column("GB/s each", "gbs", "{:.1f}"),
    Column("all channels", "total_gbs", "{:.1f}"),
    Column("upper bound", "most_gbs", "{:.1f}"),
)
