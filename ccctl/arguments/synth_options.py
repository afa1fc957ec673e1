"""The options of ``ccctl synth``: what is asked for, and how hard to look."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from ccctl.arguments.options import (
    MOST_COUNT,
    MOST_RANKS,
    Alpha,
    Bandwidth,
    HoldAlpha,
    Hostfile,
    Json,
    Output,
    Quiet,
    Seed,
    TimeoutSeconds,
    Unwind,
    Verbose,
    Without,
    positive_seconds,
)
from ccctl.completion import words
from ccctl.help_sections import COLLECTIVE, NETWORK, RANKS, SEARCH

__all__ = ["SynthOptions"]

# An option that stands in this section of the help.
_collective = partial(typer.Option, rich_help_panel=COLLECTIVE)
_network = partial(typer.Option, rich_help_panel=NETWORK)
_ranks = partial(typer.Option, rich_help_panel=RANKS)
_search = partial(typer.Option, rich_help_panel=SEARCH)


def _time_limit(value: float | None) -> float | None:
    return positive_seconds(value, "--time-limit")


@dataclass(frozen=True)
class SynthOptions:
    """The arguments and options of ``ccctl synth``."""

    network: Annotated[
        str,
        _network(
            "--network",
            metavar="NETWORK|FILE",
            autocompletion=words.networks,
            help="ring:N, mesh:AxB, torus:AxBxC, hypercube:N, switch:N, fully_connected:N, "
            "switch_switch:AxB, any hierarchy of ring, line, fc and switch as ring_fc_switch:AxBxC, "
            "dragonfly:GxA, fat_tree:AxB/2; a machine such as "
            "dgx-a100:2; a list of links (.csv: src,dst,alpha,bandwidth,port …); a profile or topology "
            "artifact; or what detect reads: NCCL's or hwloc's XML, nvidia-smi topo's text, a recording.",
        ),
    ]
    collective: Annotated[
        str,
        _collective(
            "--collective",
            metavar="NAME|FILE",
            autocompletion=words.spelled(*words.COLLECTIVES),
            help="all_gather, reduce_scatter, all_reduce, broadcast, reduce, scatter, gather, all_to_all or "
            "all_to_next, also as AllReduce or alltoall; several at once on ranks of their own: "
            "broadcast@3:0-7,all_reduce:8-15; or a TOML or JSON file of collectives, or of chunks with who "
            "holds and who wants each.",
        ),
    ] = "all_reduce"
    alpha: Alpha = None
    bandwidth: Bandwidth = None
    unwind: Unwind = None
    topology: Annotated[
        str | None,
        _network(
            "--topology",
            metavar="FILE",
            help="For a profile of GPUs as --network: links through one PCIe switch or one NUMA link of this "
            "topology share its bandwidth. [links share what the profile says]",
        ),
    ] = None
    without: Without = None
    ranks: Annotated[
        str | None,
        _collective("--ranks", metavar="SET", help="Only these take part, others may relay: 0,2,4-7."),
    ] = None
    size: Annotated[
        str | None,
        _collective(
            "--size", metavar="SIZE", help="The buffer, as nccl-tests counts it; chunks are chosen. [16M]"
        ),
    ] = None
    sizes: Annotated[
        str | None,
        _collective(
            "--sizes", metavar="FROM:TO", help="Sweep: the best schedule for each range of sizes, 1K:1G."
        ),
    ] = None
    factor: Annotated[
        float, _collective("-f", "--factor", metavar="X", help="From one size of a sweep to the next.")
    ] = 2.0
    chunk: Annotated[
        str | None, _collective("--chunk", metavar="SIZE", help="Fix the chunk instead of the size.")
    ] = None
    chunks: Annotated[
        int | None,
        _collective(
            "--chunks", metavar="N", min=1, max=MOST_COUNT, help="How many chunks each rank starts with."
        ),
    ] = None
    root: Annotated[
        int | None,
        _collective(
            "--root",
            metavar="RANK",
            min=0,
            max=MOST_RANKS,
            help="Of broadcast, reduce, scatter, gather. [the first rank]",
        ),
    ] = None
    method: Annotated[
        str,
        _search(
            "--method",
            metavar="NAME",
            autocompletion=words.spelled(*words.METHODS),
            help="auto, or one of ring, tree, greedy, forest, ilp, periodic, symmetric …; auto tries "
            "what suits, but never taccl and adapcc_published (AdapCC's integer program as published, up to "
            "5 ranks).",
        ),
    ] = "auto"
    time_limit: Annotated[
        float | None,
        _search("--time-limit", metavar="SECONDS", callback=_time_limit, help="Then take the best so far."),
    ] = None
    jobs: Annotated[
        int | None,
        _search(
            "--jobs", metavar="N", min=1, max=1024, help="Processes at once, for long work. [one a core]"
        ),
    ] = None
    solver: Annotated[
        str,
        _search(
            "--solver",
            metavar="NAME",
            autocompletion=words.one_of(*words.SOLVERS),
            help="Of integer programs (ilp, adapcc, forest): cbc or highs.",
        ),
    ] = "cbc"
    sub_collectives: Annotated[
        int | None,
        _search(
            "--sub-collectives",
            metavar="M",
            min=1,
            max=64,
            help="AdapCC's M: parts with a tree of their own. [4]",
        ),
    ] = None
    time_step: Annotated[
        str | None,
        _search(
            "--time-step",
            metavar="TIME",
            help="Of ilp: times are rounded up to steps, as by TACOS: 1us. [exact]",
        ),
    ] = None
    mechanism: Annotated[
        str | None,
        _search(
            "--mechanism",
            metavar="NAME",
            autocompletion=words.one_of(*words.MECHANISMS),
            help="Of ilp, one mechanism of TACOS alone: early-termination (one program, stopped at "
            "--time-limit, completed by shortest paths) or time-clustering (a program for each short window "
            "of time, in turn). [both, starting from the greedy schedule]",
        ),
    ] = None
    hold_alpha: HoldAlpha = False
    seed: Seed = 0
    race: Annotated[
        bool,
        _search("--race", help="Run what predictions cannot tell apart on ranks, in turn; keep the fastest."),
    ] = False
    hosts: Annotated[
        str | None,
        _ranks(
            "--hosts",
            metavar="SET",
            autocompletion=words.hosts,
            help="Hosts that make the attempts of long work, one a slot: gpu[01-08]:4,login1:2; with --race, "
            "where it runs.",
        ),
    ] = None
    hostfile: Hostfile = None
    timeout: TimeoutSeconds = None
    json: Json = False
    output: Output = None
    quiet: Quiet = False
    verbose: Verbose = 0
