"""`ccctl compile`: an algorithm, or a schedule, as the program that each rank executes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccctl import console
from ccctl.arguments import FileOrFolder, GeneralOptions, Parameters, refuse_given
from ccctl.artifacts import codec, made_folder, refuse_unwritable, write_atomically, write_output
from ccctl.completion import words
from ccctl.errors import FoundProblem, UsageError
from ccctl.render import figures
from probes.base import format_size, parse_size, plural

if TYPE_CHECKING:
    from synth.mscclpp import ExecutionPlan
    from synth.network import Network
    from synth.program import Program
    from synth.schedules import Schedule

__all__ = ["EXAMPLES", "compile"]

EXAMPLES = (
    ("ccctl compile schedule.json -o program.json", "compile a schedule and keep the program"),
    ("ccctl compile schedule.json --json", "say only how large the program is"),
    ("ccctl compile schedule.json -o - | ccctl show -", "see the instructions of each rank"),
    (
        "ccctl compile ring.py -p ranks=8 --instances 2 -o ring.xml",
        "compile an algorithm in Python to MSCCL XML",
    ),
    ("ccctl compile periodic.json --size 64M -o program.json", "expand a periodic schedule for 64 MiB"),
    ("ccctl compile ring.xml --target msccl -o ring.json", "prove MSCCL XML and convert it"),
    (
        "ccctl compile schedule.json --to mscclpp --ranks-per-host 2 -o ring-plan.json",
        "write an execution plan that MSCCL++ loads; ccctl verify ring-plan.json judges it again",
    ),
    (
        "ccctl compile table.json --to msccl -o xmls",
        "a folder of MSCCL XML from a selection: a file for each range of sizes",
    ),
    (
        "ccctl compile schedule.json --to chakra -o traces",
        "write Chakra traces and the configuration of ASTRA-sim into a folder",
    ),
)
_TRACES = ("chakra", "goal")
# Programs of at most this many steps are timed, in 0.3 s; one this many times as slow as its schedule is
# reported.
_MOST_TIMED_STEPS, _SLOWER = 30_000, 1.5


@dataclass(frozen=True)
class CompileOptions(GeneralOptions):
    """The arguments and options of ``compile``."""

    schedule: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM.py|SCHEDULE|XML",
            help="An algorithm in Python (FILE.py, or FILE.py:FUNCTION if it has several), a schedule "
            "(plain, periodic or symmetric), MSCCL XML, or with --to msccl a selection; - "
            "reads stdin.",
        ),
    ]
    parameters: Parameters = None
    instances: Annotated[
        int | None,
        typer.Option(
            "--instances",
            metavar="N",
            min=1,
            max=64,
            help="Cut every chunk into N parts that travel in parallel.",
        ),
    ] = None
    fuse: Annotated[
        bool, typer.Option("--fuse/--no-fuse", help="Receive and forward in one instruction where possible.")
    ] = True
    size: Annotated[
        str | None,
        typer.Option(
            "--size",
            metavar="SIZE",
            help="Buffer size for a periodic schedule, which repeats its period as often as "
            "needed, or a symmetric one, whose chunks become larger or smaller. [its own]",
        ),
    ] = None
    network: Annotated[
        str | None,
        typer.Option(
            "--network",
            metavar="FILE",
            help="Refuse messages for which this profile or topology has no link.",
        ),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="RUNTIME",
            autocompletion=words.one_of("msccl", "rccl"),
            help="Refuse a program that msccl or rccl cannot run.",
        ),
    ] = None
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            autocompletion=words.one_of(*words.COMPILE_FORMATS),
            help="Write for another runtime. mscclpp: an execution plan of MSCCL++ 0.8 or later. "
            "msccl, from a selection: a folder with an XML for each range of sizes. chakra "
            "and goal, from a schedule: input of the network simulators ASTRA-sim (a folder of traces and "
            "configuration) and LogGOPSim (a file).",
        ),
    ] = None
    ranks_per_host: Annotated[
        int | None,
        typer.Option(
            "--ranks-per-host",
            metavar="N",
            min=1,
            max=1024,
            help="With --to mscclpp: number of ranks that reach each other's memory, if the "
            "network does not state it.",
        ),
    ] = None
    placement: Annotated[
        str | None,
        typer.Option(
            "--placement",
            metavar="in|out",
            autocompletion=words.one_of("in", "out"),
            help="With --to mscclpp: in place or out of place. [in place if possible]",
        ),
    ] = None
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="Name of the program.")] = ""
    output: FileOrFolder = None


def compile(options: CompileOptions) -> None:  # noqa: A001 - the command has this name
    """Compile a schedule, or an algorithm in Python, to a program.

    A program holds the instructions of every rank's threadblocks. The schedule is proven before it is
    compiled, and the program afterwards: every rank ends with the right result, no two threadblocks race,
    nothing deadlocks. If the output's name ends in .xml, it is MSCCL XML; --to writes for other runtimes,
    proven by their own rules, and for simulators.

    A periodic schedule is expanded to the sends of all its periods, a symmetric one to those of all ranks, up
    to half a million sends.
    """
    if options.to not in ("chakra", "msccl") and options.output not in (None, "-"):
        refuse_unwritable(Path(options.output))
    given = {
        "--size": options.size,
        "--instances": options.instances,
        "--ranks-per-host": options.ranks_per_host,
        "--placement": options.placement,
        "--name": options.name or None,
        "-p": options.parameters or None,
        "--no-fuse": None if options.fuse else True,
    }
    if options.to in _TRACES:
        refuse_given({**given, "--target": options.target}, f"a schedule goes to {options.to} as it is")
        _write_traces(options.schedule, options.to, options.network, options.output, json=options.json)
        return
    if options.to == "msccl":
        refuse_given({**given, "--network": options.network}, "leave it out; a selection has its own")
        _write_folder(options.schedule, options.target or "msccl", options.output, json=options.json)
        return
    from dataclasses import replace

    from ccctl.arguments import load_network, proven_program

    _refuse_contradictions(options.to, options.ranks_per_host, options.placement)
    on = load_network(options.network, None, None)[0] if options.network else None
    size_bytes = parse_size(options.size, "--size") if options.size is not None else None
    found = proven_program(
        options.schedule,
        parameters=options.parameters,
        network=on,
        size_bytes=size_bytes,
        runtime=options.target or ("mscclpp" if options.to == "mscclpp" else ""),
        instances=options.instances,
        fuse=options.fuse,
    )
    program = replace(found.program, name=options.name) if options.name else found.program
    network = found.schedule.network if on is None and found.schedule is not None else on
    multiprocessors = network.multiprocessors if network is not None else 0
    _refuse_beyond(program, options.target, multiprocessors)
    if options.to is not None:
        plan = _plan(program, found.schedule, network, options.ranks_per_host, options.placement)
        _write_plan(plan, multiprocessors, options.output, json=options.json)
        return
    if options.output is not None:
        codec.write(options.output, "program", program, found.inputs)
        if options.target is None and options.output.removesuffix(".gz").endswith(".xml"):
            _say_beyond(program, multiprocessors)
    if options.output == "-":
        return
    _say(program, found.compile_s, options.json)
    to_xml = options.output is not None and options.output.removesuffix(".gz").endswith(".xml")
    if not options.json and (options.target or to_xml):
        from ccctl.render.text import multiples
        from synth.msccl import granule_bytes

        console.data(multiples(granule_bytes(program), options.target or "msccl"))
    if not options.json and found.schedule is not None:
        _say_slower(program, found.schedule)
    console.next_step(f"ccctl bench {options.output or options.schedule} --vs mpi")


def _refuse_contradictions(to: str | None, ranks_per_host: int | None, placement: str | None) -> None:
    if to not in (None, *words.COMPILE_FORMATS):
        raise UsageError(f"--to: expected {' or '.join(words.COMPILE_FORMATS)}, found {to!r}")
    if placement not in (None, "in", "out"):
        raise UsageError(f"--placement: expected in or out, found {placement!r}")
    if to is None and (ranks_per_host is not None or placement is not None):
        option = "--placement" if ranks_per_host is None else "--ranks-per-host"
        raise UsageError(f"{option}: only plans of MSCCL++ need it", hint="Add --to mscclpp.")


def _hosts_of(program: Program, network: Network | None, ranks_per_host: int | None) -> Sequence[int]:
    """Return each rank's host number: from the option if given, otherwise from the network."""
    if ranks_per_host is not None:
        return [rank // ranks_per_host for rank in range(program.ranks)]
    if network is None:
        raise UsageError(
            "which ranks share a host is not known", hint="Add --ranks-per-host N, or --network FILE."
        )
    hosts: list[int] = network.host_of.tolist()
    return hosts


def _plan(
    program: Program,
    schedule: Schedule | None,
    network: Network | None,
    ranks_per_host: int | None,
    placement: str | None,
) -> ExecutionPlan:
    """Return the plan of a program; where switches sum and copy, the plan is made of its schedule."""
    from synth.mscclpp import plan_of, switch_plan

    in_place = None if placement is None else placement == "in"
    if schedule is not None and schedule.uses_switches:
        return switch_plan(schedule, program.name, in_place=in_place)
    return plan_of(program, _hosts_of(program, network, ranks_per_host), in_place=in_place)


def _write_plan(plan: ExecutionPlan, multiprocessors: int, output: str | None, *, json: bool) -> None:
    from synth.mscclpp import examine_plan, write_plan
    from synth.portfolio import plan_limit

    if limit := plan_limit(plan, multiprocessors):
        raise FoundProblem(
            f"the plan of {plan.name}: {limit}",
            hint="ccctl synth --for mscclpp finds the fastest schedule that fits.",
        )
    verdict = examine_plan(plan)
    if verdict.findings:
        raise FoundProblem(verdict.findings)
    for caution in verdict.cautions:
        console.doubt(caution)
    content = write_plan(plan)
    if output is not None:
        write_output(output, content)
    if output == "-":
        return
    _say_plan(plan, json)
    if output is not None:
        console.next_step(f"ccctl verify {output}")


def _say_plan(plan: ExecutionPlan, json: bool) -> None:
    values = figures(plan, "ranks operations threadblocks_max in_place granule_bytes max_bytes") | {
        "memory_channels": sum(len(gpu.memory) for gpu in plan.gpus),
        "port_channels": sum(len(gpu.port) for gpu in plan.gpus),
        "scratch_chunks_max": max(gpu.scratch_chunks for gpu in plan.gpus),
    }
    if json:
        console.summary(values)
    else:
        console.data(
            f"{plan.name}: {plan.operations} operations on {plan.ranks} ranks, at most "
            f"{plural(plan.threadblocks_max, 'threadblock')} a rank, "
            f"{plural(values['memory_channels'] // 2, 'memory channel')} and "
            f"{plural(values['port_channels'] // 2, 'port channel')}, {'in' if plan.in_place else 'out of'} "
            f"place, for multiples of {format_size(plan.granule_bytes)}; proven"
        )


def _write_folder(path: str, target: str, output: str | None, *, json: bool) -> None:
    """Write MSCCL XML of a selection into the folder ``output``, a file for each range of sizes.

    A file is named by the first size of its range, in bytes. Without ``output`` only the table is printed.
    """
    from ccctl.arguments import refuse_unproven
    from ccctl.launching import Drawn
    from ccctl.render.text import draw_runtime, runtime_summary
    from synth.check import check
    from synth.lang import is_algorithm
    from synth.msccl import write_xml
    from synth.portfolio import runtime_sweep

    read = None if is_algorithm(path) else codec.read(path, *codec.SCHEDULE_KINDS, "program")
    if read is None or read.kind == "program" or read.body.is_sized:
        what = "program" if read is None or read.kind == "program" else "schedule"
        raise UsageError(
            f"--to msccl: {path} is one {what}, not a selection",
            hint="Its XML is what -o FILE.xml writes without --to; ccctl synth --sizes makes a selection.",
        )
    if output == "-":
        raise UsageError(
            "-o -: a selection is a file for each range of sizes", hint="Name a folder: -o xmls."
        )
    selection = read.body
    refuse_unproven(path, check(selection))
    with console.progress("protocols and instances", 1.0) as bar:
        entries = runtime_sweep(selection, target, progress=Drawn(bar))
    names = [f"{entry.from_bytes:011d}.xml" if entry.program else "" for entry in entries]
    if output is not None:
        folder = made_folder(output)
        for entry, name in zip(entries, names, strict=True):
            if entry.program is not None:
                write_atomically(folder / name, write_xml(entry.program))
    if json:
        console.summary(runtime_summary(entries))
    else:
        draw_runtime(entries, console.data)
    if output is not None and any(names):
        console.next_step(f"ccctl verify {Path(output) / next(filter(None, names))}")


def _write_traces(path: str, to: str, network: str | None, output: str | None, *, json: bool) -> None:
    from ccctl.arguments import listed, load_network, refuse_unproven
    from synth.check import check
    from synth.simulation import moved_to

    if to == "chakra" and output == "-":
        raise UsageError("-o -: a trace is a file for each rank", hint="Name a folder: -o traces.")
    schedule = listed(codec.read(path, *codec.SCHEDULE_KINDS).body, path)
    if network is not None:
        schedule = moved_to(schedule, load_network(network, None, None)[0], schedule.chunk_bytes)
        refuse_unproven(path, check(schedule))
    (_write_goal if to == "goal" else _write_chakra)(schedule, output, json)


def _write_goal(schedule: Schedule, output: str | None, json: bool) -> None:
    from shlex import quote

    from synth.traces import goal_text

    content = goal_text(schedule).encode()
    if output is not None:
        write_output(output, content)
    if output == "-":
        return
    _say_traces(schedule, 1, json, output)
    if output is not None:
        console.next_step(f"txt2bin -i {quote(output)} -o {quote(output)}.bin")


def _write_chakra(schedule: Schedule, output: str | None, json: bool) -> None:
    from shlex import quote

    from synth.traces import astra_sim_files

    written = astra_sim_files(schedule)
    for caution in written.cautions:
        console.doubt(caution)
    if output is not None:
        folder = made_folder(output)
        for name, content in written.contents.items():
            write_atomically(folder / name, content)
    _say_traces(schedule, len(written.contents), json, output)
    if output is not None and {"network.yml", "system.json"} <= written.contents.keys():
        console.next_step(
            f"cd {quote(output)} && AstraSim_Analytical_Congestion_Aware --workload-configuration=workload "
            "--system-configuration=system.json --remote-memory-configuration=memory.json "
            "--network-configuration=network.yml"
        )


def _say_traces(schedule: Schedule, files: int, json: bool, output: str | None) -> None:
    ranks, adds = schedule.network.ranks, int(schedule.op.sum())
    if json:
        console.summary({"ranks": ranks, "messages": schedule.sends, "adds": adds, "files": files})
    else:
        console.data(
            f"{schedule.method} {schedule.collective.label}: {plural(schedule.sends, 'message')} and "
            f"{plural(adds, 'add')} on {plural(ranks, 'rank')}, "
            + (f"in {plural(files, 'file')}" if output is not None else f"{plural(files, 'file')} with -o")
        )


def _refuse_beyond(program: Program, target: str | None, multiprocessors: int) -> None:
    from synth.msccl import doubts, separate_reductions
    from synth.portfolio import program_limits

    if target is None:
        return
    findings = program_limits(separate_reductions(program), target, multiprocessors)
    for doubt in doubts(program, target):
        console.doubt(doubt)
    if findings:
        raise FoundProblem(findings, hint=f"ccctl synth --for {target} finds the fastest schedule that fits.")


def _say_beyond(program: Program, multiprocessors: int) -> None:
    """Warn of MSCCL XML that MSCCL does not load, or runs with another result."""
    from synth.msccl import separate_reductions
    from synth.portfolio import program_limits

    if findings := program_limits(separate_reductions(program), "msccl", multiprocessors):
        console.doubt(f"{findings[0]}; with --target msccl or rccl such a program is not written")


def _say_slower(program: Program, schedule: Schedule) -> None:
    """Warn of a program that does not fit its GPUs, or whose threadblocks make it slower than its schedule.

    Only the rates of named machines' threadblocks are known, and a long program would take a while to time.
    """
    from ccctl.render import percent, seconds
    from synth.networks import is_pod, threadblock_bytes_per_s
    from synth.simulation import Costs, simulate_program

    network, outcome = schedule.network, schedule.outcome
    if 0 < network.multiprocessors < program.threadblocks_max:
        console.doubt(
            f"a rank has {program.threadblocks_max} threadblocks, of which its GPU runs "
            f"{network.multiprocessors} at once"
        )
    if outcome is None or not outcome.bounds or not is_pod(network.name) or program.steps > _MOST_TIMED_STEPS:
        return
    chunk_bytes = -(-schedule.whole.total_bytes(schedule.chunk_bytes) // program.collective.total_bytes(1))
    costs = Costs(threadblock_bytes_per_s=threadblock_bytes_per_s(network.name))
    timing = simulate_program(program, network, max(1, chunk_bytes), costs)
    if timing.time_s > _SLOWER * outcome.time_s:
        optimal = percent(min(1.0, outcome.binding.time_s / timing.time_s))
        console.doubt(
            f"as a program this takes {seconds(timing.time_s)} ({optimal} of optimal), limited by "
            f"{timing.binding}; ccctl synth --for msccl or mscclpp plans for that"
        )


def _say(program: Program, compile_s: float, json: bool) -> None:
    from ccctl.render import seconds

    if json:
        values = figures(program, "ranks instructions=steps threadblocks_max channels")
        console.summary(values | {"compile_s": compile_s})
    else:
        # MSCCL XML and programs that are read are not compiled.
        took = f", compiled in {seconds(compile_s)}" if compile_s else ""
        console.data(
            f"{program.name}: {program.steps} instructions on {program.ranks} ranks, at most "
            f"{plural(program.threadblocks_max, 'threadblock')} a rank, "
            f"{plural(program.channels, 'channel')}{took}; proven"
        )
