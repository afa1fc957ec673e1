"""`ccctl tune`: choose a library's own algorithms by size, in a file that the library loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccctl import console
from ccctl.arguments import GeneralOptions, WorldOptions, refuse_unknown, written_option
from ccctl.artifacts import write_output
from ccctl.completion import words
from ccctl.errors import FoundProblem, UsageError
from ccctl.launching import run_ranks
from ccctl.render import seconds
from probes.base import format_size, parse_sizes, plural, some

if TYPE_CHECKING:
    from exec.library_rules import MeasuredSetting, Sweep
    from synth.collective import Kind

__all__ = ["EXAMPLES", "tune"]

# The fields of a line of NCCL's tuner file.
_TUNER_FIELDS = 10

EXAMPLES = (
    (
        "ccctl tune -n 2 --sizes 1K:8K --budget 0.05 -o rules.conf",
        "measure Open MPI's algorithms of all_reduce and write the rules that it loads",
    ),
    (
        "ccctl tune --for ucc -n 8 knomial=knomial.log ring=ring.log default=default.log -o ucc.conf",
        "UCC's fastest algorithm for each size, from tables of osu_allreduce under UCC_TL_UCP_TUNE",
    ),
    (
        "ccctl tune --for nccl ring:simple:16=nccl.log tree:ll:16=old.log -o tuner.csv",
        "a tuner file of tables that nccl-tests wrote under NCCL_ALGO and NCCL_PROTO",
    ),
)


@dataclass(frozen=True)
class TuneOptions(GeneralOptions, WorldOptions):
    """The arguments and options of ``tune``."""

    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SETTING=LOG",
            help="For NCCL, RCCL and NCCLX: ALGORITHM:PROTOCOL:CHANNELS=LOG, the nccl-tests log of a run "
            "with this NCCL_ALGO, NCCL_PROTO and number of channels. For UCC: ALGORITHM=LOG, the log of an "
            "OSU benchmark under this algorithm of TL/UCP, or default.",
        ),
    ] = None
    library: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="LIBRARY",
            autocompletion=words.one_of(*words.TUNED_LIBRARIES),
            help="openmpi or mpich, which are measured here; or nccl, rccl, ncclx or ucc, whose logs are "
            "given.",
        ),
    ] = "openmpi"
    collectives: Annotated[
        str,
        typer.Option(
            "--collective",
            metavar="NAME,…",
            autocompletion=words.several_of(*words.TUNED_COLLECTIVES),
            help="For MPI: all_reduce, all_gather, reduce_scatter, all_to_all.",
        ),
    ] = "all_reduce"
    sizes: Annotated[
        str,
        typer.Option(
            "--sizes", metavar="FROM:TO", help="For MPI: range of buffer sizes, as nccl-tests counts them."
        ),
    ] = "1K:4M"
    budget: Annotated[
        float,
        typer.Option("--budget", metavar="SECONDS", min=0.001, max=3600, help="For MPI: time for each size."),
    ] = 0.5
    merge: Annotated[
        str | None,
        typer.Option(
            "--merge",
            metavar="FILE",
            help="Keep the rules of this file for other collectives and numbers of ranks.",
        ),
    ] = None
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            autocompletion=words.one_of("csv", "env", "json"),
            help="For NCCL, RCCL and NCCLX: csv, a tuner file (the default), or env, NCCL_ALGO "
            "and NCCL_PROTO; for NCCLX also json, to a file that ends in .json.",
        ),
    ] = None
    output: Annotated[str | None, written_option("-o", "--output", help="File to write. [stdout]")] = None


def tune(options: TuneOptions) -> None:
    """Find a library's fastest algorithm for each range of sizes.

    Writes the result in the form that the library loads. The algorithms of the MPI library in ccctl's
    environment are measured in turn, at few sizes, and at more where the fastest changes. An algorithm
    replaces the library's own choice only if it is faster by more than the noise, and by 2 %. The rules hold
    for communicators of as many ranks as were measured: for Open MPI they are dynamic rules of coll/tuned,
    for MPICH its selection table. For NCCL, RCCL and NCCLX they follow from logs of nccl-tests, one for each
    setting. For UCC they follow from logs of the OSU benchmarks, one for each algorithm and collective; -n is
    the number of ranks if a log does not say.

    A size that takes far longer than a larger one is measured again, or left out. In --json, left_out has
    such sizes, and untouched_s is the time of the library without rules.
    """
    from exec.library_rules import environment_of, rules_writer, tuner_file

    refuse_unknown("--for", options.library, words.TUNED_LIBRARIES)
    measured = options.library in ("openmpi", "mpich")
    if options.to not in (None, "csv", "env", "json") or (options.to is not None and measured):
        raise UsageError("--to: expected csv or env with --for nccl, rccl or ncclx, or json with ncclx")
    if options.library in ("ncclx", "ucc") and options.merge is not None:
        raise UsageError(f"--merge: leave it out for {options.library}, whose file is written whole")
    if options.library == "ucc" and options.to is not None:
        raise UsageError("--to: leave it out for ucc, whose file is the variable that the environment takes")
    if options.to == "json" and options.library != "ncclx":
        raise UsageError("--to json: only NCCLX reads it", hint="Add --for ncclx.")
    if options.json and options.output in (None, "-"):
        raise UsageError("--json and the table: one of them to stdout", hint="Add -o FILE.")
    path = str(Path(str(options.output)).absolute())
    if measured:
        if options.tables:
            raise UsageError(
                "logs are for --for nccl, rccl, ncclx or ucc",
                hint="Leave them out: MPI libraries are measured.",
            )
        kinds = _kinds(options.collectives)
        # Read the file to merge first, so that an invalid one is refused before minutes of measuring.
        write = rules_writer(options.library, options.merge)
        found = _swept(kinds, options)
        text = write(found)
        values = {
            "library": found.library,
            "ranks": found.ranks,
            "collectives": found.summary(),
            "left_out": found.left_out,
        }
        loaded = environment_of(options.library, kinds, path)
    else:
        tried = [_tried(given, options) for given in options.tables or ()]
        text, lines = tuner_file(tried, options.merge, options.to or "csv", options.library)
        values, loaded = {"library": options.library, "lines": lines}, {}
        if options.output not in (None, "-") and not options.json:
            _tell_loading(text, lines)
    write_output(options.output, text.encode())
    if options.json:
        console.summary(values)
    elif loaded and options.output not in (None, "-"):
        exports = " ".join(f"{name}={value}" for name, value in loaded.items())
        for kind, sizes in found.left_out.items():
            console.doubt(
                f"{kind}: left out {', '.join(map(format_size, sizes))}: slower than a larger size, even "
                f"when "
                "measured again, so something else ran"
            )
        if found.crowded:
            console.doubt(
                f"{found.crowded}: times are not reliable, so rules may be wrong; tune with at most one rank "
                "a core"
            )
        for line in _gains(found.summary(), exports, merged=options.merge is not None):
            console.note(line)


def _tell_loading(text: str, lines: list[str]) -> None:
    """Print the new rules of a tuner file, and its first comment, which says how the library finds it."""
    for line in lines:
        console.note(_in_words(line))
    if text.startswith("#"):
        console.note(text.splitlines()[0].lstrip("# "))


def _in_words(line: str) -> str:
    """Return a line of NCCL's tuner file in words; another line as it is."""
    from ccctl.render import about
    from exec.library_rules import nccl

    fields = line.split(",")
    if len(fields) != _TUNER_FIELDS or not fields[1].isdigit() or not fields[2].isdigit():
        return line
    collective, low, high, algorithm, protocol, channels, *_ = fields
    least = f"from {about(int(low))} on" if int(low) else ""
    most = f"below {about(int(high) + 1)}" if int(high) < nccl.NO_END else ""
    sizes = ", ".join(filter(None, (least, most))) or "all sizes"
    return f"{collective}, {sizes}: {algorithm}:{protocol}, {plural(int(channels), 'channel')}"


def _gains(summary: Mapping[str, Sequence[dict[str, Any]]], exports: str, *, merged: bool) -> Iterator[str]:
    """Yield a line on what the rules of each collective gain, then how to load them, if that is worth it."""
    from ccctl.render import about
    from exec.library_rules import OWN

    worth = merged
    for kind, points in summary.items():
        ratios = [point["untouched_s"] / point["time_s"] for point in points if point["algorithm"] != OWN]
        worth |= bool(ratios)
        if ratios:
            most = f"up to {max(ratios):.2f}x as fast as the library's choice"
            yield f"{kind}: another algorithm at {len(ratios)} of {len(points)} sizes, {most}:"
            for point in points:
                if point["algorithm"] != OWN:
                    yield (
                        f"  {about(point['size_bytes'])}: {point['algorithm']} "
                        f"{seconds(point['time_s'])}, library {seconds(point['untouched_s'])}"
                    )
        else:
            yield f"{kind}: nothing is faster than the library's own choice at any of {len(points)} sizes"
    yield (
        f"to load the rules: export {exports}" if worth else "the rules need not be loaded: they gain nothing"
    )


def _kinds(text: str) -> tuple[Kind, ...]:
    from exec.library_rules import COLLECTIVES
    from synth.collective import kind_of

    kinds = tuple(dict.fromkeys(kind_of(word.strip()) for word in text.split(",")))
    for kind in kinds:
        if kind not in COLLECTIVES:
            raise UsageError(f"--collective: expected some of {', '.join(COLLECTIVES)}, found {kind}")
    return kinds


def _swept(kinds: tuple[Kind, ...], options: TuneOptions) -> Sweep:
    from exec.library_rules import SweepRequest

    low, high = parse_sizes(options.sizes, "--sizes")
    found: Sweep = run_ranks(
        "exec.library_rules.sweep:sweep_task",
        SweepRequest(options.library, kinds, low, high, options.budget),
        options.world(),
        label="tune",
        timeout_s=options.timeout,
    )
    return found


def _tried(text: str, options: TuneOptions) -> MeasuredSetting:
    from ccctl.artifacts import read_any
    from exec.library_rules import MeasuredSetting, Setting

    setting, mark, path = text.partition("=")
    ucc, ranks = options.library == "ucc", options.ranks
    if not mark or not path:
        expected = "ALGORITHM=LOG, as ring=ring.log" if ucc else "SETTING=LOG, as ring:simple:16=ring.log"
        raise UsageError(f"{text}: expected {expected}")
    report = read_any(path, "report", ranks=None if ranks is None else lambda: ranks).body
    if wrong := report.wrong_results:
        raise FoundProblem(
            f"{path}: {some(wrong, 4)}: the results are wrong, so no rule is made of this setting",
            hint=f"Leave {setting} out, and find out why its results are wrong.",
        )
    return MeasuredSetting(setting if ucc else str(Setting.of(setting)), report, path)
