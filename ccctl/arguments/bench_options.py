"""Options of ``bench``: nccl-tests' letters where meanings agree, hints for its other options."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated

import typer

from ccctl.arguments.options import (
    MOST_COUNT,
    MOST_RANKS,
    Device,
    GeneralOptions,
    Output,
    Parameters,
    Percentage,
    WiresOption,
    WorldOptions,
)
from ccctl.completion import words
from ccctl.errors import UsageError
from ccctl.help_sections import COLLECTIVE, COMPARISON, MEASUREMENT
from probes.base import parse_size

__all__ = ["NCCL_TESTS_OPTIONS", "BenchOptions", "sizes_between"]

# Each function declares an option in the section of the help that the function is named after.
_collective = partial(typer.Option, rich_help_panel=COLLECTIVE)
_comparison = partial(typer.Option, rich_help_panel=COMPARISON)
_measurement = partial(typer.Option, rich_help_panel=MEASUREMENT)

# A small increment can make millions of sizes, which are refused before they fill the memory.
_MOST_SIZES = 10_000
_BEGIN, _END = "1K", "16M"

# The options that also hold for the groups of a step.
_BESIDE_GROUPS = {
    *(option.name for option in (*fields(GeneralOptions), *fields(WorldOptions))),
    *("groups", "fresh", "warmup", "iterations", "average", "per_iteration", "check", "dtype", "op"),
    *("wires", "profile", "output"),
}

# Advice for options of nccl-tests and rccl-tests that bench lacks or names otherwise. A key holds the letter
# and the names of an option.
NCCL_TESTS_OPTIONS = {
    "t nthreads": "a rank is a process; -n RANKS or --hosts say how many",
    "g ngpus": "a rank is a process, which has one GPU with --device cuda; -n RANKS says how many",
    "s stress_cycles": "leave it out; -N N goes through all sizes N times",
    "z blocking": "leave it out; a call returns when it is done, as nccl-tests does with -z 1",
    "y stream_null": "leave it out; calls run on CPUs, or on a stream of their own with --device cuda",
    "G cudagraph hipgraph": "leave it out; calls are not captured in graphs",
    "C report_cputime": "leave it out; calls run on CPUs, so their time is CPU time",
    "R local_register": "write --window, which keeps buffers where other ranks read them in place",
    "S report_timestamps": "leave it out; rows come as they are measured, without the time of day",
    "x cta_policy": "leave it out; no kernels of NCCL run",
    "D device_implementation": "leave it out; no kernels of NCCL run",
    "V device_cta_count": "leave it out; no kernels of NCCL run",
    "H host_rma_implementation": "leave it out; no kernels of NCCL run",
    "M memory memory_report": "leave it out; what does not fit into memory is refused at the start",
    "Y memory_type": "write --device cpu or --device cuda",
    "u cumask unalign": "leave it out; no kernels of NCCL run",
    "O out_of_place": "write --placement out, in or both",
    "F cache_flush": "leave it out; caches are not flushed between runs",
    "E rotating_tensor": "leave it out; all runs have the same buffers",
    "Z output_format": "write --json, or -o report.json",
    "J output_file": "write -o report.json",
    "X rccl_output_file": "write -o report.json",
    "A output_algo_proto_channels": "write --explain, which says what ran and where the time went",
    "T": "write --timeout SECONDS",
    "k side_comp": "leave it out; nothing is calculated beside the calls",
    "l replay": "leave it out; calls are not captured in graphs",
    "parallel_init": "leave it out; ranks start at the same time",
    "delay_inout_place": "leave it out; all placements take turns",
    "minbytes": "write -b SIZE",
    "maxbytes": "write -e SIZE",
    "stepbytes": "write -i SIZE",
    "stepfactor": "write -f N",
    "warmup_iters": "write -w N",
    "agg_iters": "write -m N",
    "run_cycles": "write -N N",
    "datatype": "write -d TYPE",
}


@dataclass(frozen=True)
class BenchOptions(GeneralOptions, WorldOptions):
    """The arguments and options of ``ccctl bench``."""

    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ARTIFACT…]",
            help="Schedules, selections, programs, XML or file.py to time in turn; - reads stdin.",
        ),
    ] = None
    collective: Annotated[
        str | None,
        _collective(
            "--collective",
            metavar="NAME",
            autocompletion=words.spelled(*words.COLLECTIVES),
            help="Without ARTIFACT: the collective to synthesize and run. [all_reduce]",
        ),
    ] = None
    groups: Annotated[
        str | None,
        _collective(
            "--groups",
            metavar="FILE",
            help="Without ARTIFACT: the groups of a training step, side by side (TOML, JSON or a folder "
            "of Chakra traces, as in synth).",
        ),
    ] = None
    parameters: Parameters = None
    begin: Annotated[str, _collective("-b", "--begin", metavar="SIZE", help="The smallest size.")] = _BEGIN
    end: Annotated[str, _collective("-e", "--end", metavar="SIZE", help="The largest size.")] = _END
    factor: Annotated[
        int,
        _collective("-f", "--factor", metavar="N", min=2, help="Multiply each size by N to get the next."),
    ] = 4
    step: Annotated[
        str | None, _collective("-i", "--step", metavar="SIZE", help="Add SIZE to each size to get the next.")
    ] = None
    listed: Annotated[
        str | None,
        _collective(
            "--sizes", metavar="SIZES", help="Exactly these sizes, 1K,64K,1M; or a range, 1K:16M, with -f."
        ),
    ] = None
    runtime: Annotated[
        str | None,
        _collective(
            "--for",
            metavar="RUNTIME",
            autocompletion=words.one_of(*words.RUNTIMES),
            help="Without ARTIFACT: run only schedules that msccl, rccl or mscclpp can load.",
        ),
    ] = None
    fresh: Annotated[
        bool,
        _measurement(
            "--fresh",
            help="Without ARTIFACT: measure and synthesize again, instead of using what an earlier run kept.",
        ),
    ] = False
    warmup: Annotated[
        int,
        _measurement("-w", "--warmup", metavar="N", min=0, max=MOST_COUNT, help="Untimed runs at the start."),
    ] = 3
    iterations: Annotated[
        int,
        _measurement("--iters", metavar="N", min=1, max=MOST_COUNT, help="Timed runs (-n in nccl-tests)."),
    ] = 20
    aggregate: Annotated[
        int,
        _measurement(
            "-m", "--aggregate", metavar="N", min=1, max=MOST_COUNT, help="Time N calls in a row as one run."
        ),
    ] = 1
    cycles: Annotated[
        int,
        _measurement("-N", "--cycles", metavar="N", min=1, max=10_000, help="Go through all sizes N times."),
    ] = 1
    average: Annotated[
        int,
        _measurement(
            "-a",
            "--average",
            metavar="WHOSE",
            autocompletion=words.one_of("0", "1", "2", "3"),
            min=0,
            max=3,
            help="Time to report: 0 of rank 0, 1 the average of all ranks, 2 of the fastest rank, "
            "3 of the slowest rank.",
        ),
    ] = 3
    per_iteration: Annotated[
        bool,
        _measurement(
            "-I", "--per-iteration", help="Show how much the runs differ, and keep each time in the report."
        ),
    ] = False
    check: Annotated[
        int,
        _measurement(
            "-c",
            "--check",
            metavar="0|1",
            autocompletion=words.one_of("0", "1"),
            min=0,
            max=MOST_COUNT,
            help="Check every element of the results: 1 yes, 0 no.",
        ),
    ] = 1
    dtype: Annotated[
        str,
        _collective(
            "-d",
            "--dtype",
            metavar="TYPES",
            autocompletion=words.several_of(*words.DTYPES, "all"),
            help="Element types: float, half, int8 …; several with commas; or all.",
        ),
    ] = "float32"
    op: Annotated[
        str,
        _collective(
            "--op",
            metavar="OPS",
            autocompletion=words.several_of(*words.REDOPS, "all"),
            help="Reductions: sum, prod, min, max or avg; several with commas; or all.",
        ),
    ] = "sum"
    root: Annotated[
        int | None,
        _collective(
            "-r",
            "--root",
            metavar="RANK",
            min=0,
            max=MOST_RANKS,
            help="Root of a rooted collective. The root of an ARTIFACT is fixed: another one is refused.",
        ),
    ] = None
    placement: Annotated[
        str,
        _collective(
            "--placement",
            metavar="WHERE",
            autocompletion=words.one_of("out", "in", "both"),
            help="out (out of place), in (in place) or both.",
        ),
    ] = "both"
    window: Annotated[
        bool,
        _measurement(
            "--window",
            help="Put the buffers into shared memory, where the other ranks of the host read them without "
            "a copy (as registered buffers, -R in nccl-tests).",
        ),
    ] = False
    explain: Annotated[
        bool,
        _comparison(
            "--explain",
            help="Show for each row where its time went: bound, prediction, and the critical path "
            "of one run.",
        ),
    ] = False
    device: Device = "cpu"
    wires: WiresOption = "auto"
    vs: Annotated[
        str | None,
        _comparison(
            "--vs",
            metavar="PEERS",
            autocompletion=words.several_of(*words.PEERS),
            help="Libraries to time in turn with ours: mpi, mpi:ALGORITHM, mpi:all, gloo, nccl; "
            "several with commas; none for no library. [without ARTIFACT: the library of the "
            "ranks]",
        ),
    ] = None
    profile: Annotated[
        str | None,
        _comparison(
            "--profile",
            metavar="FILE",
            help="Predict with this profile instead of the schedule's network; without ARTIFACT, "
            "synthesize for it.",
        ),
    ] = None
    baseline: Annotated[
        str | None,
        _comparison(
            "--baseline",
            metavar="FILE",
            help="Compare with a report or an nccl-tests log: exit 1 if a row is slower.",
        ),
    ] = None
    tolerance: Annotated[
        float,
        _comparison(
            "--tolerance",
            metavar="PERCENT",
            click_type=Percentage(min=0, max=1e9),
            help="How much slower than the baseline a row may be.",
        ),
    ] = 10.0
    output: Output = None

    def sizes(self) -> tuple[int, ...]:
        """Return the sizes that are asked for, in order; raises UsageError."""
        if self.listed is None:
            return sizes_between(self.begin, self.end, self.factor, self.step)
        return _listed(self.listed, self.factor)

    def refuse_beside_groups(self) -> None:
        """Raise UsageError for an option that has no meaning beside ``--groups``."""
        for option in fields(self):
            if option.name in _BESIDE_GROUPS or getattr(self, option.name) in (option.default, None, False):
                continue
            flag = f"--{option.name.replace('_', '-')}"
            named = {"paths": "ARTIFACT", "listed": "--sizes", "runtime": "--for"}
            raise UsageError(
                f"{named.get(option.name, flag)}: leave it out with --groups, which run out of place on "
                "processors, with sizes and roots of their own"
            )

    @property
    def nccl_tests(self) -> bool:
        """Whether a size range, warmup, aggregate or cycles is given that is not the default."""
        sizes = (self.begin, self.end, self.step) != (_BEGIN, _END, None)
        return sizes or (self.warmup, self.aggregate, self.cycles) != (3, 1, 1)


def sizes_between(begin: str, end: str, factor: int, step: str | None = None) -> tuple[int, ...]:
    """Return sizes ``begin`` to ``end``, plus ``step`` or times ``factor``; raises UsageError."""
    first, last = parse_size(begin, "-b"), parse_size(end, "-e")
    increment = parse_size(step, "-i") if step is not None else 0
    if first > last:
        unsaid = _BEGIN if begin == _BEGIN else _END
        hint = f"{unsaid} is the default." if unsaid in (begin, end) else ""
        raise UsageError(f"-b {begin} is larger than -e {end}", hint=hint)
    sizes = [first]
    while (following := sizes[-1] + increment if increment else sizes[-1] * factor) <= last:
        sizes.append(following)
        if len(sizes) > _MOST_SIZES:
            raise UsageError(f"-b {begin} -e {end}: more than {_MOST_SIZES} sizes", hint="Take larger steps.")
    return tuple(sizes)


def _listed(text: str, factor: int) -> tuple[int, ...]:
    """Return the sizes of ``--sizes``: 1K,64K,1M, or 1K:16M by a factor."""
    if ":" in text:
        first, last = text.split(":", 1)
        if parse_size(first, "--sizes") > parse_size(last, "--sizes"):
            raise UsageError(f"--sizes {text}: expected FROM:TO that rises")
        return sizes_between(first, last, factor)
    return tuple(sorted({parse_size(part, "--sizes") for part in text.split(",")}))
