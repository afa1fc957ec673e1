"""Options that several commands share, so that they read alike everywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer._click.types import FloatRange

from ccctl import console
from ccctl.artifacts import is_folder, refuse_unwritable
from ccctl.completion import words
from ccctl.errors import UsageError
from ccctl.help_sections import COLLECTIVE, GENERAL, NETWORK, RANKS, SEARCH
from ccctl.launching import HOSTS_VARIABLE, World, world_of
from probes.base import meant

__all__ = [
    "MOST_COUNT",
    "MOST_RANKS",
    "Alpha",
    "Bandwidth",
    "Device",
    "FamilyOptions",
    "GeneralOptions",
    "HoldAlpha",
    "Hostfile",
    "Hosts",
    "Json",
    "MeasuredDevice",
    "NetworkOptions",
    "Output",
    "Page",
    "Parameters",
    "Percentage",
    "Pictures",
    "PrometheusFile",
    "Quiet",
    "Ranks",
    "Seed",
    "Spec",
    "TimeoutSeconds",
    "Unwind",
    "Verbose",
    "WiresOption",
    "WiringPlan",
    "Without",
    "WorldOptions",
    "collective_option",
    "network_option",
    "positive_seconds",
    "refuse_given",
    "refuse_unknown",
    "writable",
    "written_option",
]

# Each function declares an option in the section of the help that the function is named after.
_collective = partial(typer.Option, rich_help_panel=COLLECTIVE)
_general = partial(typer.Option, rich_help_panel=GENERAL)
_network = partial(typer.Option, rich_help_panel=NETWORK)
_ranks = partial(typer.Option, rich_help_panel=RANKS)
_search = partial(typer.Option, rich_help_panel=SEARCH)

# Larger counts are taken for typing errors, and refused before anything of that size is made.
MOST_COUNT = 1_000_000
MOST_RANKS = 1 << 16
MOST_SEED = (1 << 32) - 1


class Percentage(FloatRange):
    """A percentage in a range, with its sign or without: ``10`` and ``10%`` are the same."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        bare = value.strip().removesuffix("%").rstrip() if isinstance(value, str) else value
        return super().convert(bare, param, ctx)


def _quiet(value: bool) -> bool:
    console.configure(quiet=value)
    return value


def _verbose(value: int) -> int:
    console.configure(verbose=value)
    return value


def writable(value: str | None) -> str | None:
    """Return a file to write, or - for stdout; raises CannotWriteError where it plainly cannot be written."""
    if value is not None and value != "-":
        refuse_unwritable(Path(value))
    return value


def _file_or_folder(value: str | None) -> str | None:
    """Return ``value``; raise if it is a file that cannot be written.

    A folder passes here: commands refuse it if their output is a single file.
    """
    if value not in (None, "-") and not is_folder(str(value)):
        refuse_unwritable(Path(str(value)))
    return value


def _prometheus(value: str | None) -> str | None:
    if value is not None:
        if not value.endswith(".prom"):
            raise UsageError(f"--prometheus: expected a file ending in .prom, found {value}")
        refuse_unwritable(Path(value))
    return value


def network_option(help: str) -> Any:  # noqa: A002 - as typer calls it
    """Return an option that takes a network by name or file."""
    return typer.Option("--network", metavar="NETWORK|FILE", autocompletion=words.networks, help=help)


def collective_option(help: str, metavar: str = "NAME") -> Any:  # noqa: A002 - as typer calls it
    """Return an option that takes a collective, however it is spelled."""
    return typer.Option(
        "--collective", metavar=metavar, autocompletion=words.spelled(*words.COLLECTIVES), help=help
    )


def written_option(*names: str, help: str, metavar: str = "FILE") -> Any:  # noqa: A002 - as typer calls it
    """Return an option for an output file, refused at once if it plainly cannot be written."""
    return typer.Option(*names, metavar=metavar, callback=writable, help=help)


def positive_seconds(value: float | None, name: str) -> float | None:
    """Return a limit in seconds; raises UsageError, naming the option, unless it is a positive number."""
    if value is not None and not 0 < value < math.inf:
        raise UsageError(f"{name}: expected seconds > 0, found {value:g}", hint="Leave it out for no limit.")
    return value


def refuse_unknown(option: str, word: str, known: Iterable[str]) -> None:
    """Raise UsageError, with the word that may be meant, unless ``word`` is one of ``known``."""
    words = [*known]
    if word not in words:
        raise UsageError(
            f"{option}: expected one of {', '.join(words)}, found {word!r}", hint=meant(word, words)
        )


def refuse_given(options: Mapping[str, object], why: str) -> None:
    """Raise UsageError for the first option that was given a value."""
    for option, value in options.items():
        if value is not None:
            raise UsageError(f"{option}: {why}")


def _timeout(value: float | None) -> float | None:
    return positive_seconds(value, "--timeout")


Json = Annotated[bool, _general("--json", help="Print the summary as one JSON object.")]
Output = Annotated[
    str | None,
    _general(
        "-o",
        "--output",
        metavar="FILE",
        callback=writable,
        help="Write the artifact to FILE; - prints it to stdout.",
    ),
]
FileOrFolder = Annotated[
    str | None,
    _general(
        "-o",
        "--output",
        metavar="FILE|FOLDER",
        callback=_file_or_folder,
        help="Write the artifact to FILE, or what consists of several files to FOLDER; - prints to stdout.",
    ),
]
Page = Annotated[
    str | None,
    _general(
        "-o",
        "--output",
        metavar="FILE.html",
        callback=writable,
        help="Write the page; - prints it to stdout.",
    ),
]
Pictures = Annotated[
    str | None,
    _general(
        "-o",
        "--output",
        metavar="FILE.svg|FILE.png",
        callback=writable,
        help="Write pictures instead; - prints SVG to stdout.",
    ),
]
PrometheusFile = Annotated[
    str | None,
    _general(
        "--prometheus",
        metavar="FILE.prom",
        callback=_prometheus,
        help="Write the figures for node_exporter's textfile collector.",
    ),
]
Spec = Annotated[
    str | None,
    typer.Option(
        "--spec",
        metavar="SPEC",
        help="What was bought: a machine with its NICs (dgx-h100/8x400), or rates (400Gbit/s, 8x400, "
        "100Gbit/s,5us). [the links are compared with each other]",
    ),
]
WiringPlan = Annotated[
    str | None,
    typer.Option(
        "--plan",
        metavar="FILE",
        help="Racks and rails as planned: TOML, Slurm's topology.conf, or InfraGraph's JSON.",
    ),
]
Quiet = Annotated[bool, _general("-q", "--quiet", callback=_quiet, help="Print errors only.")]
Verbose = Annotated[
    int,
    _general("-v", "--verbose", count=True, show_default=False, callback=_verbose, help="Print more detail."),
]
Parameters = Annotated[
    list[str] | None,
    _collective("-p", "--param", metavar="NAME=VALUE", help="Set a parameter of an algorithm in Python."),
]
Ranks = Annotated[
    int | None,
    _ranks(
        "-n",
        "--ranks",
        metavar="N",
        min=1,
        max=MOST_RANKS,
        help="Number of ranks to start, on this host unless --hosts or --hostfile name others.",
    ),
]
Hosts = Annotated[
    str | None,
    _ranks(
        "--hosts",
        metavar="SET",
        autocompletion=words.hosts,
        envvar=HOSTS_VARIABLE,
        help="Hosts and their slots, such as gpu[01-08]:4,login1:2. In a Slurm job the default is its nodes.",
    ),
]
Hostfile = Annotated[
    str | None,
    _ranks(
        "--hostfile",
        metavar="FILE",
        help="File with a host per line: name, name:4, name slots=4 or name 4. Slots of a "
        "repeated host add up.",
    ),
]
Device = Annotated[
    str,
    _ranks(
        "--device",
        metavar="KIND",
        autocompletion=words.one_of("cpu", "cuda", "auto"),
        help="cpu, cuda (a GPU for each rank), or auto: GPUs if every rank has one.",
    ),
]
MeasuredDevice = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="KIND",
        autocompletion=words.one_of("auto", "cuda", "process"),
        help="What a rank is: cuda (a GPU), process, or auto.",
    ),
]
WiresOption = Annotated[
    str,
    _ranks(
        "--wires",
        metavar="KIND",
        autocompletion=words.one_of("auto", "mpi", "sockets"),
        help="Transport between ranks: mpi; sockets, ccctl's own TCP, which needs no MPI; or "
        "auto: mpi, or sockets between hosts if the schedule needs connections of set rates.",
    ),
]
Seed = Annotated[
    int,
    _search(
        "--seed",
        metavar="N",
        min=0,
        max=MOST_SEED,
        help="Seed of random choices, such as the order of searches and probes: the same seed and the same "
        "input give the same output, byte for byte.",
    ),
]
Unwind = Annotated[
    str | None,
    _network(
        "--unwind",
        metavar="D",
        help="Only to compare with the TACOS paper: replace each switch of a named network by links from "
        "each rank to the next D; max,1 gives a D for each switch dimension.",
    ),
]
Without = Annotated[
    str | None,
    _network(
        "--without",
        metavar="FAILED",
        help="Leave out what has failed: rank:7, rank:4-7, link:3-4 (both ways), link:3>4 or "
        "host:NAME; several with commas.",
    ),
]
TimeoutSeconds = Annotated[
    float | None,
    _general(
        "--timeout", metavar="SECONDS", callback=_timeout, help="Stop the command after this long (exit 124)."
    ),
]

Alpha = Annotated[
    str | None, _network("--alpha", metavar="TIME", help="Latency of each link of a family: 0.5us.")
]

Bandwidth = Annotated[
    str | None,
    _network(
        "--bandwidth",
        metavar="RATE",
        help="Bandwidth of the links of a family such as ring:8, which needs it: 50GiB/s, or one for each "
        "dimension: 200,100,50GB/s. Machines have their own.",
    ),
]

HoldAlpha = Annotated[
    bool,
    _network(
        "--hold-alpha",
        help="Only to compare with the TACOS paper: count a link as busy for its latency, too.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class GeneralOptions:
    """The options of nearly every command."""

    json: Json = False
    quiet: Quiet = False
    verbose: Verbose = 0


@dataclass(frozen=True, kw_only=True)
class WorldOptions:
    """The options that say which ranks to start, where, and for how long."""

    ranks: Ranks = None
    hosts: Hosts = None
    hostfile: Hostfile = None
    timeout: TimeoutSeconds = None

    def world(self, ranks: int | None = None) -> World:
        """Return the world that the options ask for; ``ranks``, if given, overrides ``--ranks``."""
        return world_of(self.ranks if ranks is None else ranks, self.hosts, self.hostfile)


@dataclass(frozen=True, kw_only=True)
class FamilyOptions:
    """The options that say what the links of a family of networks cost."""

    alpha: Alpha = None
    bandwidth: Bandwidth = None


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(FamilyOptions):
    """The options that change a network: what its links cost, its switches, its failures."""

    unwind: Unwind = None
    without: Without = None
