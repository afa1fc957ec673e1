"""The options of ``synth`` that it shares with no other command: what is asked for, and how hard to look."""

from __future__ import annotations

from typing import Annotated

import typer

from ccctl.arguments.options import MOST_COUNT, MOST_RANKS, positive_seconds
from ccctl.completion import words
from ccctl.help_sections import COLLECTIVE, NETWORK, RANKS, SEARCH

__all__ = [
    "Chunk",
    "Chunks",
    "CollectiveName",
    "DeclaredTopology",
    "Factor",
    "Jobs",
    "MechanismName",
    "Members",
    "Method",
    "NetworkName",
    "RaceOption",
    "Root",
    "SearchHosts",
    "Size",
    "Solver",
    "SubCollectives",
    "Sweep",
    "TimeLimit",
    "TimeStep",
]

NetworkName = Annotated[
    str,
    typer.Option(
        "--network",
        metavar="NETWORK|FILE",
        autocompletion=words.networks,
        help="ring:N, mesh:AxB, torus:AxBxC, hypercube:N, switch:N, fully_connected:N, "
        "switch_switch:AxB, any hierarchy of ring, line, fc and switch as ring_fc_switch:AxBxC, "
        "dragonfly:GxA, fat_tree:AxB/2; a machine such as "
        "dgx-a100:2; a list of links (.csv: src,dst,alpha,bandwidth,port …); a profile or topology "
        "artifact; or what detect reads: NCCL's or hwloc's XML, nvidia-smi topo's text, a recording.",
        rich_help_panel=NETWORK,
    ),
]

CollectiveName = Annotated[
    str,
    typer.Option(
        "--collective",
        metavar="NAME|FILE",
        autocompletion=words.spelled(*words.COLLECTIVES),
        help="all_gather, reduce_scatter, all_reduce, broadcast, reduce, scatter, gather, all_to_all or "
        "all_to_next, also as AllReduce or alltoall; several at once on ranks of their own: "
        "broadcast@3:0-7,all_reduce:8-15; or a TOML or JSON file of collectives, or of chunks with who "
        "holds and who wants each.",
        rich_help_panel=COLLECTIVE,
    ),
]

Members = Annotated[
    str | None,
    typer.Option(
        "--ranks",
        metavar="SET",
        help="Only these take part, others may relay: 0,2,4-7.",
        rich_help_panel=COLLECTIVE,
    ),
]

Size = Annotated[
    str | None,
    typer.Option(
        "--size",
        metavar="SIZE",
        help="The buffer, as nccl-tests counts it; chunks are chosen. [16M]",
        rich_help_panel=COLLECTIVE,
    ),
]

Sweep = Annotated[
    str | None,
    typer.Option(
        "--sizes",
        metavar="FROM:TO",
        help="Sweep: the best schedule for each range of sizes, 1K:1G.",
        rich_help_panel=COLLECTIVE,
    ),
]

Factor = Annotated[
    float,
    typer.Option(
        "-f",
        "--factor",
        metavar="X",
        help="From one size of a sweep to the next.",
        rich_help_panel=COLLECTIVE,
    ),
]

Chunk = Annotated[
    str | None,
    typer.Option(
        "--chunk", metavar="SIZE", help="Fix the chunk instead of the size.", rich_help_panel=COLLECTIVE
    ),
]

Chunks = Annotated[
    int | None,
    typer.Option(
        "--chunks",
        metavar="N",
        min=1,
        max=MOST_COUNT,
        help="How many chunks each rank starts with.",
        rich_help_panel=COLLECTIVE,
    ),
]

Root = Annotated[
    int | None,
    typer.Option(
        "--root",
        metavar="RANK",
        min=0,
        max=MOST_RANKS,
        help="Of broadcast, reduce, scatter, gather. [the first rank]",
        rich_help_panel=COLLECTIVE,
    ),
]

Method = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="NAME",
        autocompletion=words.spelled(*words.METHODS),
        help="auto, or one of ring, tree, greedy, forest, ilp, periodic, symmetric …; auto tries what suits, "
        "but never taccl and adapcc_published (AdapCC's integer program as published, up to 5 ranks).",
        rich_help_panel=SEARCH,
    ),
]


def _time_limit(value: float | None) -> float | None:
    return positive_seconds(value, "--time-limit")


TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        metavar="SECONDS",
        callback=_time_limit,
        help="Then take the best so far.",
        rich_help_panel=SEARCH,
    ),
]

Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        max=1024,
        help="Processes at once, for long work. [one a core]",
        rich_help_panel=SEARCH,
    ),
]

SearchHosts = Annotated[
    str | None,
    typer.Option(
        "--hosts",
        metavar="SET",
        autocompletion=words.hosts,
        help="Hosts that make the attempts of long work, one a slot: gpu[01-08]:4,login1:2; with --race, "
        "where it runs.",
        rich_help_panel=RANKS,
    ),
]

Solver = Annotated[
    str,
    typer.Option(
        "--solver",
        metavar="NAME",
        autocompletion=words.one_of(*words.SOLVERS),
        help="Of integer programs (ilp, adapcc, forest): cbc or highs.",
        rich_help_panel=SEARCH,
    ),
]

SubCollectives = Annotated[
    int | None,
    typer.Option(
        "--sub-collectives",
        metavar="M",
        min=1,
        max=64,
        help="AdapCC's M: parts with a tree of their own. [4]",
        rich_help_panel=SEARCH,
    ),
]


TimeStep = Annotated[
    str | None,
    typer.Option(
        "--time-step",
        metavar="TIME",
        help="Of ilp: times are rounded up to steps, as by TACOS: 1us. [exact]",
        rich_help_panel=SEARCH,
    ),
]

MechanismName = Annotated[
    str | None,
    typer.Option(
        "--mechanism",
        metavar="NAME",
        autocompletion=words.one_of(*words.MECHANISMS),
        help="Of ilp, one mechanism of TACOS alone: early-termination (one program, stopped at --time-limit, "
        "completed by shortest paths) or time-clustering (a program for each short window of time, in turn). "
        "[both, starting from the greedy schedule]",
        rich_help_panel=SEARCH,
    ),
]

DeclaredTopology = Annotated[
    str | None,
    typer.Option(
        "--topology",
        metavar="FILE",
        help="For a profile of GPUs as --network: links through one PCIe switch or one NUMA link of this "
        "topology share its bandwidth. [links share what the profile says]",
        rich_help_panel=NETWORK,
    ),
]

RaceOption = Annotated[
    bool,
    typer.Option(
        "--race",
        help="Run what predictions cannot tell apart on ranks, in turn; keep the fastest.",
        rich_help_panel=SEARCH,
    ),
]
