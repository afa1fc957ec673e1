"""The options of ``ccctl run``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from ccctl.arguments.options import (
    MOST_COUNT,
    Device,
    GeneralOptions,
    Parameters,
    WiresOption,
    WorldOptions,
    collective_option,
    written_option,
)
from ccctl.completion import words

__all__ = ["RunOptions"]


@dataclass(frozen=True)
class RunOptions(GeneralOptions, WorldOptions):
    """The arguments and options of ``ccctl run``."""

    artifact: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCHEDULE|SELECTION|PROGRAM|PROFILE]",
            help="What to run: an artifact, XML or file.py; - reads stdin. Of a selection, the "
            "schedule for the size of the input is run. With --adaptive: a profile; without "
            "one the links are measured.",
            show_default=False,
        ),
    ] = None
    data: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="A .npy file with one row per rank; with {rank} in its name, one file per rank.",
        ),
    ] = None
    output: Annotated[
        str | None,
        written_option(
            "-o",
            "--output",
            help="Write the results as .npy, one row per rank; with {rank} in its name, one file per rank.",
        ),
    ] = None
    parameters: Parameters = None
    op: Annotated[
        str,
        typer.Option(
            "--op",
            metavar="OP",
            autocompletion=words.one_of(*words.REDOPS),
            help="Reduction: sum, prod, min, max or avg.",
        ),
    ] = "sum"
    adaptive: Annotated[
        bool,
        typer.Option(
            "--adaptive",
            help="Run a collective many times in a session that adapts to changing links, late "
            "ranks and lost ranks.",
        ),
    ] = False
    collective: Annotated[
        str,
        collective_option(
            "With --adaptive: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or reduce.",
            "NAME[@ROOT]",
        ),
    ] = "all_reduce"
    size: Annotated[
        str,
        typer.Option(
            "--size", metavar="SIZE", help="With --adaptive: size of the larger buffer of each rank."
        ),
    ] = "8M"
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations", metavar="N", min=1, max=MOST_COUNT, help="With --adaptive: how many times to run."
        ),
    ] = 300
    profile_every: Annotated[
        int,
        typer.Option(
            "--profile-every",
            metavar="N",
            min=0,
            max=MOST_COUNT,
            help="With --adaptive: measure the links every N iterations; 0: never.",
        ),
    ] = 50
    relays: Annotated[
        bool,
        typer.Option(
            "--relays/--no-relays",
            help="With --adaptive: start without late ranks if that pays; their processes may "
            "pass on the data of others before their own is ready.",
        ),
    ] = True
    as_published: Annotated[
        bool,
        typer.Option(
            "--as-published",
            help="With --adaptive, for comparison with the AdapCC paper: start and exclude ranks by the "
            "rules of the paper.",
        ),
    ] = False
    rejoin: Annotated[
        int,
        typer.Option(
            "--rejoin",
            metavar="N",
            min=0,
            max=MOST_COUNT,
            help="With --adaptive: restart a lost rank up to N times, to join the others again.",
        ),
    ] = 0
    spare: Annotated[
        str | None,
        typer.Option(
            "--spare",
            autocompletion=words.hosts,
            metavar="HOSTS",
            help="With --adaptive: hosts in reserve, as for --hosts, whose ranks join once they answer.",
        ),
    ] = None
    device: Device = "cpu"
    wires: WiresOption = "auto"
