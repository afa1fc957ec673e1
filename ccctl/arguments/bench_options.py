"""The options of ``bench``: nccl-tests' own letters where they can mean the same, a reason where not."""

from __future__ import annotations

from typing import Annotated

import typer

from ccctl.arguments.options import MOST_COUNT, MOST_RANKS, Percentage
from ccctl.completion import words
from ccctl.errors import UsageError
from ccctl.help_sections import COLLECTIVE, COMPARISON, MEASUREMENT

__all__ = [
    "Aggregate",
    "Average",
    "Baseline",
    "Begin",
    "Blocking",
    "Check",
    "CollectiveName",
    "Cycles",
    "Dtype",
    "End",
    "Explain",
    "Factor",
    "Fresh",
    "Iterations",
    "Op",
    "PerIteration",
    "Placement",
    "ProfileFile",
    "Refused",
    "Root",
    "SizeList",
    "Step",
    "Tolerance",
    "Vs",
    "Warmup",
    "Window",
]

_REASONS = {
    "-t": "a rank is a process, started with -n or --hosts",
    "-g": "a rank is a process, started with -n or --hosts",
    "-G": "a call is not captured in a CUDA graph",
    "-C": "the calls run on CPUs: their time is CPU time",
    "-R": "nothing is registered with a network",
    "-J": "-o FILE writes a report, without the environment",
    "-T": "it is --timeout here",
    "-S": "a rank is where its launcher puts it",
}


def _refused(value: str | None) -> str | None:
    if value is not None:
        why = "; ".join(f"{flag}: {reason}" for flag, reason in _REASONS.items())
        raise UsageError(f"these options of nccl-tests have no meaning here ({why})")
    return value


def _blocking(value: int | None) -> int | None:
    if value not in (None, 1):
        raise UsageError(
            f"-z {value}: a call returns when it is done, and all ranks meet before the next",
            hint="That is what nccl-tests does with -z 1.",
        )
    return value


CollectiveName = Annotated[
    str | None,
    typer.Option(
        "--collective",
        metavar="NAME",
        autocompletion=words.spelled(*words.COLLECTIVES),
        help="Without ARTIFACT: what is synthesized and run. [all_reduce]",
        rich_help_panel=COLLECTIVE,
    ),
]
SizeList = Annotated[
    str | None,
    typer.Option(
        "--sizes",
        metavar="SIZES",
        help="These sizes, 1K,64K,1M, or from one to another, 1K:16M, by -f.",
        rich_help_panel=COLLECTIVE,
    ),
]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh",
        help="Without ARTIFACT: measure and synthesize anew, whatever an earlier run has kept.",
        rich_help_panel=MEASUREMENT,
    ),
]
Begin = Annotated[
    str, typer.Option("-b", "--begin", metavar="SIZE", help="The smallest size.", rich_help_panel=COLLECTIVE)
]
End = Annotated[
    str, typer.Option("-e", "--end", metavar="SIZE", help="The largest size.", rich_help_panel=COLLECTIVE)
]
Factor = Annotated[
    int,
    typer.Option(
        "-f",
        "--factor",
        metavar="N",
        min=2,
        help="From a size to the next: times N.",
        rich_help_panel=COLLECTIVE,
    ),
]
Step = Annotated[
    str | None,
    typer.Option(
        "-i", "--step", metavar="SIZE", help="From a size to the next: plus SIZE.", rich_help_panel=COLLECTIVE
    ),
]
Warmup = Annotated[
    int,
    typer.Option(
        "-w",
        "--warmup",
        metavar="N",
        min=0,
        max=MOST_COUNT,
        help="Untimed runs.",
        rich_help_panel=MEASUREMENT,
    ),
]
Iterations = Annotated[
    int,
    typer.Option(
        "--iters",
        metavar="N",
        min=1,
        max=MOST_COUNT,
        help="Timed runs; what -n is in nccl-tests.",
        rich_help_panel=MEASUREMENT,
    ),
]
Aggregate = Annotated[
    int,
    typer.Option(
        "-m",
        "--aggregate",
        metavar="N",
        min=1,
        max=MOST_COUNT,
        help="Time N calls in a row as one run.",
        rich_help_panel=MEASUREMENT,
    ),
]
Cycles = Annotated[
    int,
    typer.Option(
        "-N",
        "--cycles",
        metavar="N",
        min=1,
        max=10_000,
        help="Go through all sizes N times.",
        rich_help_panel=MEASUREMENT,
    ),
]
Average = Annotated[
    int,
    typer.Option(
        "-a",
        "--average",
        metavar="WHOSE",
        autocompletion=words.one_of("0", "1", "2", "3"),
        min=0,
        max=3,
        help="Whose time counts: 0 rank 0's, 1 the average, 2 the fastest's, 3 the slowest's.",
        rich_help_panel=MEASUREMENT,
    ),
]
PerIteration = Annotated[
    bool,
    typer.Option(
        "-I",
        "--per-iteration",
        help="Show how the runs differ, and keep each time.",
        rich_help_panel=MEASUREMENT,
    ),
]
Check = Annotated[
    int,
    typer.Option(
        "-c",
        "--check",
        metavar="0|1",
        autocompletion=words.one_of("0", "1"),
        min=0,
        max=MOST_COUNT,
        help="Check every element of a last run.",
        rich_help_panel=MEASUREMENT,
    ),
]
Dtype = Annotated[
    str,
    typer.Option(
        "-d",
        "--dtype",
        metavar="TYPES",
        autocompletion=words.several_of(*words.DTYPES, "all"),
        help="float, half, int8 …; several with commas; all.",
        rich_help_panel=COLLECTIVE,
    ),
]
Op = Annotated[
    str,
    typer.Option(
        "--op",
        metavar="OPS",
        autocompletion=words.several_of(*words.REDOPS, "all"),
        help="sum, prod, min, max or avg; several with commas; all.",
        rich_help_panel=COLLECTIVE,
    ),
]
Root = Annotated[
    int | None,
    typer.Option(
        "-r",
        "--root",
        metavar="RANK",
        min=0,
        max=MOST_RANKS,
        help="The root that the program must have; it is part of it.",
        rich_help_panel=COLLECTIVE,
    ),
]
Placement = Annotated[
    str,
    typer.Option(
        "--placement",
        metavar="WHERE",
        autocompletion=words.one_of("out", "in", "both"),
        help="out (of place), in (place) or both.",
        rich_help_panel=COLLECTIVE,
    ),
]
Window = Annotated[
    bool,
    typer.Option(
        "--window",
        help="Keep the buffers where the ranks of a host read them in place.",
        rich_help_panel=MEASUREMENT,
    ),
]
Explain = Annotated[
    bool,
    typer.Option(
        "--explain",
        help="Tell for each row where its time went: bound, prediction, and the critical path of a run.",
        rich_help_panel=COMPARISON,
    ),
]
Vs = Annotated[
    str | None,
    typer.Option(
        "--vs",
        metavar="PEERS",
        autocompletion=words.several_of(*words.PEERS),
        help="Measure beside it, in turn: mpi, mpi:ALGORITHM, mpi:all, gloo, nccl; several with commas. "
        "Without ARTIFACT the library of the ranks; none leaves it out.",
        rich_help_panel=COMPARISON,
    ),
]
ProfileFile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        help="Predict from this profile, not the schedule's network; without ARTIFACT synthesize for it.",
        rich_help_panel=COMPARISON,
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="FILE",
        help="Compare with a report, or with what nccl-tests wrote: exit 1 if slower.",
        rich_help_panel=COMPARISON,
    ),
]
Tolerance = Annotated[
    float,
    typer.Option(
        "--tolerance",
        metavar="PERCENT",
        click_type=Percentage(min=0, max=1e9),
        help="How much slower than the baseline is still the same.",
        rich_help_panel=COMPARISON,
    ),
]
Blocking = Annotated[
    int | None, typer.Option("-z", "--blocking", metavar="1", hidden=True, callback=_blocking)
]
Refused = Annotated[str | None, typer.Option(*_REASONS, metavar="VALUE", hidden=True, callback=_refused)]
