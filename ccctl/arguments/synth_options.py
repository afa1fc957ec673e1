"""The options of ``ccctl synth``: what is asked for, and how hard to look."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from ccctl.arguments.options import (
    MOST_COUNT,
    MOST_RANKS,
    FileOrFolder,
    GeneralOptions,
    HoldAlpha,
    Hostfile,
    NetworkOptions,
    Seed,
    TimeoutSeconds,
    positive_seconds,
)
from ccctl.completion import words
from ccctl.help_sections import COLLECTIVE, NETWORK, RANKS, SEARCH

__all__ = ["SynthOptions"]

# Each function declares an option in the section of the help that the function is named after.
_collective = partial(typer.Option, rich_help_panel=COLLECTIVE)
_network = partial(typer.Option, rich_help_panel=NETWORK)
_ranks = partial(typer.Option, rich_help_panel=RANKS)
_search = partial(typer.Option, rich_help_panel=SEARCH)


def _time_limit(value: float | None) -> float | None:
    return positive_seconds(value, "--time-limit")


@dataclass(frozen=True)
class SynthOptions(GeneralOptions, NetworkOptions):
    """The arguments and options of ``ccctl synth``."""

    network: Annotated[
        str,
        _network(
            "--network",
            metavar="NETWORK|FILE",
            autocompletion=words.networks,
            help="The network, by name or file. Names: ring:N, mesh:AxB, torus:AxBxC, "
            "hypercube:N, switch:N, fully_connected:N, switch_switch:AxB, any hierarchy of "
            "ring, line, fc and switch such as ring_fc_switch:AxBxC, dragonfly:GxA, "
            "fat_tree:AxB/2, rail:HxG, all with --bandwidth; machines such as dgx-a100:2, dgx-h100/4x400:2 "
            "(4 NICs of 400 Gbit/s), gb200-nvl72:4, dgx-h100:64/rail/2 (rails, oversubscribed). Files: "
            "a profile, a topology, a list of links (.csv: src,dst,alpha,bandwidth,port …), or "
            "what detect reads: NCCL's or hwloc's XML, nvidia-smi topo's text, a recording.",
        ),
    ]
    collective: Annotated[
        str,
        _collective(
            "--collective",
            metavar="NAME|FILE",
            autocompletion=words.spelled(*words.COLLECTIVES),
            help="all_gather, reduce_scatter, all_reduce, broadcast, reduce, scatter, gather, "
            "all_to_all or all_to_next; AllReduce and alltoall are understood, too. Several "
            "at once, each on its own ranks: broadcast@3:0-7,all_reduce:8-15 (@3 is the "
            "root). Or a TOML or JSON file that lists collectives, or chunks and the ranks "
            "that hold and want each, or groups with sizes of their own and when each may start, "
            "or a folder of Chakra traces, whose process groups these are. "
            "redistribute:FILE: tensors that move from one layout to another.",
        ),
    ] = "all_reduce"
    topology: Annotated[
        str | None,
        _network(
            "--topology",
            metavar="FILE",
            help="With a profile of GPUs: links that pass the same PCIe switch or NUMA link of "
            "this topology share its bandwidth. [the shared ports that ccctl profile found]",
        ),
    ] = None
    ranks: Annotated[
        str | None,
        _collective(
            "--ranks", metavar="SET", help="Only these ranks take part: 0,2,4-7. The others may relay."
        ),
    ] = None
    size: Annotated[
        str | None,
        _collective("--size", metavar="SIZE", help="Size of the buffer, as nccl-tests counts it. [16M]"),
    ] = None
    counts: Annotated[
        str | None,
        _collective(
            "--counts",
            metavar="SIZES|FILE",
            help="A size for each rank (4M,0,1M,2M), as MPI_Allgatherv has; in an all_to_all for each "
            "pair, a row for each source. A list, or a file of text, CSV or JSON.",
        ),
    ] = None
    sizes: Annotated[
        str | None,
        _collective(
            "--sizes", metavar="FROM:TO", help="Find the best schedule for each range of sizes: 1K:1G."
        ),
    ] = None
    factor: Annotated[
        float,
        _collective(
            "-f", "--factor", metavar="X", help="With --sizes: the factor from one size to the next."
        ),
    ] = 2.0
    chunk: Annotated[
        str | None, _collective("--chunk", metavar="SIZE", help="Size of a chunk, instead of the buffer's.")
    ] = None
    chunks: Annotated[
        int | None,
        _collective(
            "--chunks",
            metavar="N",
            min=1,
            max=MOST_COUNT,
            help="Cut each rank's input into so many chunks. [chosen]",
        ),
    ] = None
    root: Annotated[
        int | None,
        _collective(
            "--root",
            metavar="RANK",
            min=0,
            max=MOST_RANKS,
            help="Root of broadcast, reduce, scatter or gather. [the first rank]",
        ),
    ] = None
    reproducible: Annotated[
        bool,
        _collective(
            "--reproducible",
            help="The same bits on any network and at any size: each element is summed in one order, which "
            "depends on the number of ranks only.",
        ),
    ] = False
    method: Annotated[
        str,
        _search(
            "--method",
            metavar="NAME",
            autocompletion=words.spelled(*words.METHODS),
            help="auto tries every method that suits the network. Or one of ring, tree, greedy, "
            "forest, ilp, periodic, symmetric …. Methods for comparison with papers run only by name: taccl, "
            "tacos_published, tacos_ilp_published, adapcc_published.",
        ),
    ] = "auto"
    runtime: Annotated[
        str | None,
        _search(
            "--for",
            metavar="RUNTIME",
            autocompletion=words.one_of(*words.PLANNED_FOR),
            help="Find the fastest schedule that msccl, rccl or mscclpp can load, and write what it loads: "
            "MSCCL's XML, or a plan of MSCCL++; with --sizes a folder with a file for each range. "
            "nccl: a folder of what stock NCCL loads.",
        ),
    ] = None
    time_limit: Annotated[
        float | None,
        _search(
            "--time-limit",
            metavar="SECONDS",
            callback=_time_limit,
            help="Search no longer than this, then take the best schedule so far.",
        ),
    ] = None
    jobs: Annotated[
        int | None,
        _search(
            "--jobs",
            metavar="N",
            min=1,
            max=1024,
            help="Processes that search side by side if the search is long. [one per core]",
        ),
    ] = None
    solver: Annotated[
        str,
        _search(
            "--solver",
            metavar="NAME",
            autocompletion=words.one_of(*words.SOLVERS),
            help="Solver of integer programs (methods ilp, adapcc, forest): cbc or highs.",
        ),
    ] = "cbc"
    sub_collectives: Annotated[
        int | None,
        _search(
            "--sub-collectives",
            metavar="M",
            min=1,
            max=64,
            help="With --method adapcc: cut the buffer into M parts, each with a tree of its own. [4]",
        ),
    ] = None
    time_step: Annotated[
        str | None,
        _search(
            "--time-step",
            metavar="TIME",
            help="With --method ilp: round times up to steps of this length, for a faster search: 1us. "
            "[exact]",
        ),
    ] = None
    mechanism: Annotated[
        str | None,
        _search(
            "--mechanism",
            metavar="NAME",
            autocompletion=words.one_of(*words.MECHANISMS),
            help="Only to compare with the TACOS paper, with --method ilp: one of its two mechanisms. "
            "early-termination is one program, stopped at --time-limit and completed by shortest paths; "
            "time-clustering is a program for each short window of time, in turn. [both, "
            "starting from the greedy schedule]",
        ),
    ] = None
    hold_alpha: HoldAlpha = False
    seed: Seed = 0
    race: Annotated[
        bool,
        _search(
            "--race",
            help="Run the schedules that predictions cannot tell apart on ranks, in turn, and "
            "keep the fastest.",
        ),
    ] = False
    hosts: Annotated[
        str | None,
        _ranks(
            "--hosts",
            metavar="SET",
            autocompletion=words.hosts,
            help="Hosts that search, one attempt per slot: gpu[01-08]:4,login1:2. With --race, "
            "where schedules run.",
        ),
    ] = None
    hostfile: Hostfile = None
    timeout: TimeoutSeconds = None
    output: FileOrFolder = None
