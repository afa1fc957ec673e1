"""`ccctl bench`: times collectives, compares them with libraries, and checks every element."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.arguments import BenchOptions, check_world, refuse_given
from ccctl.artifacts import codec, exists
from ccctl.errors import FoundProblem, UsageError
from ccctl.launching import World, paced_between_hosts, placed, run_ranks, started_by_mpi
from ccctl.rescue import rescuing

if TYPE_CHECKING:
    from ccctl.arguments import BenchSetup, Contestant
    from exec.benchmark import Report, RowChange

__all__ = ["EXAMPLES", "bench"]

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
        "ccctl bench --groups step.toml -n 4 -o step.json",
        "the groups of a training step: each alone, all at once, and planned together",
    ),
    (
        "ccctl bench ring.py -p ranks=4 -e 64K -f 8 --baseline report.json --tolerance 900",
        "exit with 1 where it became slower",
    ),
)


def bench(options: BenchOptions) -> None:
    """Time collectives beside the libraries, and check the results.

    Schedules and programs run on real buffers, and every element is checked. Without ARTIFACT it measures the
    links between the ranks, synthesizes schedules, races those that are predicted about equal, and keeps all
    in the user's cache folder. The next run on the same hosts uses what was kept, and prints how old it is.
    With --groups the groups of a training step, each with its ranks, size and release, run alone, then all at
    once: planned as if each were alone, and planned together. The time of a group counts from its release.

    With --for only schedules that a runtime can load take part, and none is raced: predictions decide.

    Prints the columns of nccl-tests, then how the runs differ and which rank is slowest, the predicted time
    and the peers, which run in turn with ours on the same buffers. Times, bandwidths and ratios follow from
    medians. Rows are printed and written as they finish: a run that is interrupted leaves a report of those
    it has. Exit status 1 if any of our elements was wrong, or a row is slower than in the baseline.
    """
    from ccctl.arguments import setup_of
    from ccctl.runs import BenchRows

    if options.groups is not None:
        _bench_groups(options, options.groups)
        return
    setup = setup_of(options)
    found, timeout_s = _given(setup) if options.paths else _prepared(setup)
    world = options.world(found[0].proven.program.ranks)
    asked = setup.requests(found, _peers(setup))
    inputs = {name: digest for one in found for name, digest in one.proven.inputs.items()}
    rows = BenchRows(asked, options.output, inputs, json=options.json)
    with rescuing(rows.rescue):
        report: Report = run_ranks(
            "exec.benchmark.runner:bench_all_task",
            asked,
            world,
            label="bench",
            timeout_s=timeout_s,
            keep=rows.keep,
            sockets=setup.sockets or _paced(setup, found, world),
        )
    try:
        rows.finish(report)
        changes = _changes(setup, report)
        if options.output != "-":
            _show(report, changes, json=options.json)
    finally:
        if options.output is not None:
            codec.write(options.output, "report", report, inputs)
    _judge(report, changes, options.baseline)
    console.next_with(options.output, "ccctl show {}", "report.json")


def _given(setup: BenchSetup) -> tuple[list[Contestant], float | None]:
    """Return (contestants in the files, timeout); raise UsageError if options contradict them."""
    from ccctl.arguments import contestants
    from exec.peers import library_of

    options, paths = setup.options, setup.options.paths or []
    _refuse_collective(paths)
    without = {"--collective": options.collective, "--for": options.runtime, "--fresh": options.fresh or None}
    refuse_given(without, "it is for a bench without ARTIFACT, which says itself what it does")
    library = library_of(options.device, sockets=setup.sockets)
    found = contestants(paths, options.parameters, options.profile, library)
    program = found[0].proven.program
    check_world(program, options.ranks)
    setup.refuse(program.collective.kind, program.ranks)
    if options.root not in (None, program.collective.root):
        raise UsageError(
            f"-r {options.root}: the root of {program.name} is {program.collective.root}, and is part of it",
            hint=f"Synthesize one with --root {options.root}.",
        )
    return found, options.timeout


def _prepared(setup: BenchSetup) -> tuple[list[Contestant], float | None]:
    """Return ([contestant made for the ranks], seconds left of the timeout); raise UsageError."""
    from ccctl.prepared import BenchWorkload, prepared, request_of

    options = setup.options
    if options.parameters:
        raise UsageError(
            f"-p {options.parameters[0]}: a parameter of an algorithm in a file, and none was given",
            hint="What nccl-tests calls -p has no counterpart: ranks start at the same time.",
        )
    wanted = BenchWorkload(
        options.collective or "all_reduce",
        options.root,
        setup.sizes,
        _world_asked(options),
        options.profile,
        options.device,
        setup.sockets,
        race=options.runtime is None,
        runtime=options.runtime or "",
        fresh=options.fresh,
        timeout_s=options.timeout,
    )
    cores = len(os.sched_getaffinity(0))
    if setup.here and options.nccl_tests and (ranks := options.ranks or 0) > cores:
        console.note(
            f"-n {ranks} starts {ranks} ranks on {cores} cores; what nccl-tests calls -n is --iters {ranks}"
        )
    if options.profile is None:
        count = placed(wanted.world)[0]
        setup.refuse(request_of(wanted, count).kind, count)
    one, left_s = prepared(wanted)
    return [one], left_s


def _bench_groups(options: BenchOptions, path: str) -> None:
    """Run the groups of a step alone, at once and planned together; raises UsageError for other options."""
    from ccctl.arguments import group_elements, groups_request, read_groups
    from ccctl.launching import Drawn, over_sockets
    from ccctl.prepared import BenchWorkload, measured_network
    from ccctl.render.text import report as text
    from synth.side_by_side import side_by_side

    options.refuse_beside_groups()
    dtype, op = group_elements(options)
    sockets = over_sockets(options.wires)
    world = _world_asked(options)
    workload = BenchWorkload(
        "all_reduce",
        None,
        (),
        world,
        options.profile,
        sockets=sockets,
        fresh=options.fresh,
        timeout_s=options.timeout,
    )
    network, inputs, left_s = measured_network(workload)
    groups = read_groups(path, network)
    with console.progress("groups", 1.0) as bar:
        found = side_by_side(network, groups, progress=Drawn(bar))
    asked = groups_request(options, network, found, dtype, op)
    report: Report = run_ranks(
        "exec.benchmark.groups:bench_groups_task",
        asked,
        options.world(network.ranks),
        label="bench",
        timeout_s=left_s,
        sockets=sockets,
    )
    if options.output is not None:
        codec.write(options.output, "report", report, inputs)
    if options.output != "-":
        console.summary(text.summary(report)) if options.json else text.draw(report)
    _judge(report, None, None)


def _peers(setup: BenchSetup) -> tuple[str, ...]:
    """Return the libraries to compare with; by default, without ARTIFACT and --vs, the device's library."""
    from exec.peers import library_of, parse_peers

    if setup.options.paths or setup.options.vs is not None:
        return setup.peers
    return parse_peers(library_of(setup.options.device, sockets=setup.sockets))


def _paced(setup: BenchSetup, found: Sequence[Contestant], world: World) -> bool:
    """Return whether programs pace connections between hosts, which needs sockets, if no option forbids."""
    if setup.options.wires != "auto" or setup.options.vs is not None:
        return False
    pairs = [(one, size) for one in found for size in setup.sizes]
    if any(one.library(size) for one, size in pairs):
        return False
    return paced_between_hosts((one.at(size).program for one, size in pairs), world)


def _refuse_collective(paths: list[str]) -> None:
    """Raise UsageError if a path is not a file but the name of a collective."""
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


def _world_asked(options: BenchOptions) -> World:
    """Return the ranks to measure and to run on; raises UsageError where nothing says how many."""
    world = options.world(options.ranks)
    if world == World() and options.profile is None and not started_by_mpi():
        raise UsageError(
            "expected an ARTIFACT, or how many ranks to measure and to run on",
            hint="ccctl bench -n 4 runs on this host, --hosts gpu[1-4]:8 on others.",
        )
    return world


def _changes(setup: BenchSetup, report: Report) -> list[RowChange] | None:
    """Return the changes since the baseline; None without a baseline."""
    from exec.benchmark import compare

    if setup.baseline is None:
        return None
    return compare(setup.baseline.body, report, setup.options.tolerance / 100)


def _show(report: Report, changes: list[RowChange] | None, *, json: bool) -> None:
    if json:
        from ccctl.render.text import report as text

        console.summary(text.summary(report, changes))
    elif changes is not None:
        from ccctl.render.text import draw_changes

        draw_changes(changes)


def _judge(report: Report, changes: list[RowChange] | None, baseline: str | None) -> None:
    """Raise FoundProblem where elements were wrong or a row became slower; warn of peers' wrong elements.

    Raises UsageError where nothing can be compared.
    """
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
    if changes == []:
        raise UsageError(
            f"--baseline {baseline}: it has no row of the same collective, size, type and operator",
            hint="Choose the sizes that it has with -b, -e and -f.",
        )
    if slower := [change.told for change in changes or () if change.slower]:
        raise FoundProblem(slower)
