"""`ccctl bench`: how fast a collective is, beside the libraries, every element checked."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccctl import console
from ccctl.arguments import (
    Aggregate,
    Average,
    Baseline,
    Begin,
    Check,
    Cycles,
    Device,
    Dtype,
    End,
    Explain,
    Fresh,
    Hostfile,
    Hosts,
    Iterations,
    Json,
    Op,
    Output,
    Parameters,
    PerIteration,
    Placement,
    ProfileFile,
    Quiet,
    Ranks,
    SizeList,
    Step,
    TimeoutSeconds,
    Tolerance,
    Verbose,
    Vs,
    Warmup,
    Window,
    WiresOption,
    parse_size,
)
from ccctl.arguments.bench_options import CollectiveName, Factor, Root
from ccctl.artifacts import codec, exists
from ccctl.errors import FoundProblem, UsageError
from ccctl.launching import (
    World,
    over_sockets,
    paced_between_hosts,
    placed,
    run_ranks,
    started_by_mpi,
    world_of,
)
from ccctl.rescue import rescuing

if TYPE_CHECKING:
    from exec.benchmark import Report
    from synth.collective import Kind
    from synth.program import Program

__all__ = ["EXAMPLES", "bench"]

_MOST_SIZES = 10_000
_BEGIN, _END = "1K", "16M"

EXAMPLES = (
    ("ccctl bench -n 4", "all_reduce on four ranks of this host, measured and synthesized for, beside MPI's"),
    (
        "ccctl bench --collective AllGather -n 4 --sizes 64K,1M --fresh",
        "another collective at two sizes; --fresh takes nothing of earlier runs",
    ),
    ("ccctl bench schedule.json --vs mpi", "eight sizes beside the MPI library's own collective"),
    (
        "ccctl bench schedule.json --sizes 1M,16M --explain",
        "and where the time went, by link, port, core, memory",
    ),
    ("ccctl bench schedule.json -b 8 -e 1M -f 4 --vs mpi", "choose the sizes as nccl-tests does"),
    ("ccctl bench program.json -b 1M -e 1M -d float64 --json", "one size, as one object"),
    (
        "ccctl bench ring.py -p ranks=4 -e 64K -f 8 --vs mpi:all -o report.json",
        "beside every algorithm that the MPI library has; keep the report",
    ),
    (
        "ccctl bench ring.py -p ranks=4 -e 64K -f 8 --baseline report.json --tolerance 900",
        "exit with 1 where it became slower",
    ),
)


def bench(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ARTIFACT…]",
            help="Schedules, selections, programs, XML or file.py, which take turns; - is stdin.",
        ),
    ] = None,
    collective: CollectiveName = None,
    parameters: Parameters = None,
    begin: Begin = _BEGIN,
    end: End = _END,
    factor: Factor = 4,
    step: Step = None,
    listed: SizeList = None,
    fresh: Fresh = False,
    warmup: Warmup = 3,
    iterations: Iterations = 20,
    aggregate: Aggregate = 1,
    cycles: Cycles = 1,
    average: Average = 3,
    per_iteration: PerIteration = False,
    check: Check = 1,
    dtype: Dtype = "float32",
    op: Op = "sum",
    root: Root = None,
    placement: Placement = "both",
    window: Window = False,
    explain: Explain = False,
    device: Device = "cpu",
    wires: WiresOption = "auto",
    vs: Vs = None,
    profile: ProfileFile = None,
    baseline: Baseline = None,
    tolerance: Tolerance = 10.0,
    ranks: Ranks = None,
    hosts: Hosts = None,
    hostfile: Hostfile = None,
    json: Json = False,
    output: Output = None,
    timeout: TimeoutSeconds = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Time collectives beside the libraries, and check the results.

    Schedules and programs run on real buffers, and every element is checked. Without ARTIFACT the links
    between the ranks are measured, schedules synthesized for them, the near-best of these raced, and all
    kept in the user's cache folder for the next run on the same hosts, which says how old they are.

    Prints the columns of nccl-tests, then how the runs of the slowest rank differ, the predicted time
    and the peers, which run in turn with ours on the same buffers. Times, bandwidths and ratios are of
    medians. Rows are printed and written as they finish: a run that is interrupted leaves a report of
    those it has. Exit status 1 if any of our elements was wrong, or a row is slower than in the baseline.
    """
    from ccctl.arguments import bench_requests, contestants, elements, placements, requests
    from ccctl.artifacts import read_report
    from ccctl.prepared import BenchWorkload, prepared, request_of
    from ccctl.summaries import BenchRows
    from exec.benchmark import AVERAGES, BenchRequest
    from exec.executors import parse_device
    from exec.peers import library_of, parse_peers
    from synth.collective import REDUCING

    bench_requests.refuse_operator_as_file(output)
    sizes = _sizes(begin, end, factor, step) if listed is None else _listed(listed, factor)
    sockets = over_sockets(wires)
    if explain and aggregate > 1:
        raise UsageError(f"--explain tells of one call: leave out -m {aggregate}")
    if sockets and vs is not None:
        raise UsageError("--vs measures libraries, whose ranks MPI joins: leave out --wires sockets")
    # What is wrong in the command line is said before minutes of measuring.
    parse_device(device)
    types, ops = elements(dtype, op)
    places = placements(placement)
    peers = () if vs == "none" and not paths else parse_peers(vs)
    before = read_report(baseline) if baseline is not None else None
    if before is not None and before.body.interrupted:
        console.warn(f"{before.source} is of a run that was interrupted: {before.body.interrupted}")
    here = hosts is None and world_of(ranks, None, hostfile).hosts is None and hostfile is None
    if here:
        _require_here(peers, device, sockets=sockets)

    def refuse(kind: Kind, count: int) -> None:
        """Refuse what cannot be, once the collective and the ranks are known."""
        bench_requests.refuse_root(kind, root)
        bench_requests.refuse_placement(kind, places)
        if before is not None:
            reduces = kind in REDUCING
            bench_requests.refuse_incomparable(before.body, before.source, kind, types, ops, reduces=reduces)
        if here and not started_by_mpi():
            bench_requests.refuse_crowd_here(kind, count, max(sizes), types, places, peers=bool(peers))

    if paths:
        _refuse_collective(paths)
        _refuse_unprepared(collective, fresh)
        found = contestants(paths, parameters, profile, library_of(device, sockets=sockets))
        _refuse_others(found[0].proven.program, ranks, root)
        refuse(found[0].proven.program.collective.kind, found[0].proven.program.ranks)
    else:
        if parameters:
            raise UsageError(
                f"-p {parameters[0]}: a parameter of an algorithm in a file, and none was given",
                hint="What nccl-tests calls -p has no counterpart: ranks start at the same time.",
            )
        asked_world = _world_asked(ranks, hosts, hostfile, profile)
        letters = (begin != _BEGIN, end != _END, step is not None, warmup != 3, aggregate > 1, cycles > 1)
        bench_requests.note_iterations(ranks if here else None, nccl_tests=any(letters))
        wanted = BenchWorkload(
            collective or "all_reduce",
            root,
            sizes,
            asked_world,
            profile,
            device,
            sockets,
            fresh=fresh,
            timeout_s=timeout,
        )
        if profile is None:
            count = placed(asked_world)[0]
            refuse(request_of(wanted, count).kind, count)
        one, timeout = prepared(wanted)
        # Without an artifact ours stands beside the library of the ranks.
        found = [one]
        if vs is None:
            peers = parse_peers(library_of(device, sockets=sockets))
    world = world_of(found[0].proven.program.ranks, hosts, hostfile)
    if wires == "auto" and vs is None and not any(one.library(size) for one in found for size in sizes):
        sockets = paced_between_hosts((one.at(size).program for one in found for size in sizes), world)
    how = partial(
        BenchRequest,
        warmup=warmup,
        iterations=iterations,
        aggregate=aggregate,
        average=AVERAGES[average],
        check=bool(check),
        samples=per_iteration,
        window=window,
        device=parse_device(device),
        peers=peers,
    )
    asked = requests(found, sizes, dtype, op, placement, how, explain=explain) * cycles
    inputs = {name: digest for one in found for name, digest in one.proven.inputs.items()}
    rows = BenchRows(asked, output, inputs, json=json)
    with rescuing(rows.rescue):
        report: Report = run_ranks(
            "exec.benchmark.runner:bench_all_task",
            asked,
            world,
            label="bench",
            timeout_s=timeout,
            keep=rows.keep,
            sockets=sockets,
        )
    try:
        rows.finish(report)
        _show(report, before.body if before else None, tolerance / 100, json=json, silent=output == "-")
    finally:
        if output is not None:
            codec.write(output, "report", report, inputs)
    _judge(report)
    if before is not None:
        _judge_change(report, before.body, tolerance / 100, before.source)
    console.next_with(output, "ccctl show {}", "report.json")


def _sizes(begin: str, end: str, factor: int, step: str | None) -> tuple[int, ...]:
    first, last = parse_size(begin, "-b"), parse_size(end, "-e")
    increment = parse_size(step, "-i") if step is not None else 0
    if first > last:
        unsaid = _BEGIN if begin == _BEGIN else _END
        hint = f"{unsaid} is what is taken where none is said." if unsaid in (begin, end) else ""
        raise UsageError(f"-b {begin} is larger than -e {end}", hint=hint)
    sizes = [first]
    while (following := sizes[-1] + increment if increment else sizes[-1] * factor) <= last:
        sizes.append(following)
        if len(sizes) > _MOST_SIZES:
            raise UsageError(f"-b {begin} -e {end}: more than {_MOST_SIZES} sizes", hint="Take larger steps.")
    return tuple(sizes)


def _listed(text: str, factor: int) -> tuple[int, ...]:
    """The sizes of ``--sizes``: 1K,64K,1M, or 1K:16M by a factor."""
    if ":" in text:
        first, last = text.split(":", 1)
        if parse_size(first, "--sizes") > parse_size(last, "--sizes"):
            raise UsageError(f"--sizes {text}: it ends below its beginning")
        return _sizes(first, last, factor, None)
    return tuple(sorted({parse_size(part, "--sizes") for part in text.split(",")}))


def _require_here(peers: tuple[str, ...], device: str, *, sockets: bool) -> None:
    """Raise UnavailableError where this host lacks what its ranks need, before seconds of synthesis."""
    from exec.executors import require_device_here
    from exec.launcher.starters import mpirun
    from exec.peers import require_here

    require_here(peers)
    require_device_here(device)
    if not sockets and not started_by_mpi():
        mpirun.find()


def _refuse_collective(paths: list[str]) -> None:
    """Raise UsageError where the name of a collective stands in the place of a file."""
    from synth.collective import kind_of

    for path in paths:
        if exists(path) or path == "-":
            continue
        try:
            kind = kind_of(path)
        except UsageError:
            continue
        raise UsageError(
            f"{path}: the name of a collective, where a file was expected",
            hint=f"Write --collective {kind} -n 4.",
        )


def _refuse_unprepared(collective: str | None, fresh: bool) -> None:
    for given, option in ((collective is not None, "--collective"), (fresh, "--fresh")):
        if given:
            raise UsageError(f"{option} is for a bench without ARTIFACT, which says what it does itself")


def _world_asked(ranks: int | None, hosts: str | None, hostfile: str | None, profile: str | None) -> World:
    """The ranks to measure and to run on; raises UsageError where nothing says how many."""
    world = world_of(ranks, hosts, hostfile)
    if (
        ranks is None
        and world.hosts is None
        and hostfile is None
        and profile is None
        and not started_by_mpi()
    ):
        raise UsageError(
            "expected an ARTIFACT, or how many ranks to measure and to run on",
            hint="ccctl bench -n 4 runs on this host, --hosts gpu[1-4]:8 on others.",
        )
    return world


def _refuse_others(program: Program, ranks: int | None, root: int | None) -> None:
    """Raise UsageError where -n or -r asks for other ranks, or another root, than a program has."""
    if ranks is not None and ranks != program.ranks:
        raise UsageError(
            f"-n asks for {ranks} ranks, {program.name} is for {program.ranks}",
            hint="Leave -n out. What nccl-tests calls -n is --iters here.",
        )
    rooted = program.collective.kind in ("broadcast", "reduce", "scatter", "gather")
    if root is not None and rooted and root != program.collective.root:
        raise UsageError(
            f"-r {root}: the root of {program.name} is {program.collective.root}, and is part of it",
            hint=f"Synthesize one with --root {root}.",
        )


def _show(report: Report, before: Report | None, tolerance: float, *, json: bool, silent: bool) -> None:
    from exec.benchmark import compare

    changes = compare(before, report, tolerance) if before is not None else None
    if silent:
        return
    if json:
        from ccctl.summaries import bench as summaries

        console.summary(summaries.summary_of(report, changes))
        return
    if changes is not None:
        from ccctl.render.text.benchmark import draw_changes

        draw_changes(changes)


def _judge(report: Report) -> None:
    """Raise FoundProblem, naming size and placement, where any of our elements was wrong; warn of theirs."""
    from exec.benchmark import label_of

    found = []
    for row in report.rows:
        for name, measured in (("out of place", row.out_of_place), ("in place", row.in_place)):
            if measured is not None and measured.wrong:
                found.append(f"{label_of(row)}, {name}: {measured.wrong} wrong elements")
        for name, peer in row.peers.items():
            if peer.wrong:
                console.warn(f"{label_of(row)}: {name} itself gave {peer.wrong} wrong elements")
    if found:
        raise FoundProblem(found)


def _judge_change(report: Report, before: Report, tolerance: float, source: str) -> None:
    """Raise FoundProblem with every row that became slower; UsageError where nothing can be compared."""
    from exec.benchmark import compare

    changes: list[Any] = compare(before, report, tolerance)
    if not changes:
        raise UsageError(
            f"--baseline {source}: it has no row of the same collective, size, type and operator",
            hint="Choose the sizes that it has with -b, -e and -f.",
        )
    slower = [
        f"{change.label}: {change.new_s * 1e6:.1f} us, was {change.old_s * 1e6:.1f} us "
        f"({change.ratio:.2f} times as long)"
        for change in changes
        if change.slower
    ]
    if slower:
        raise FoundProblem(slower)
