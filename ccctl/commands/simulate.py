"""`ccctl simulate`: how long a schedule or a program takes on a network, and what binds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccctl import console
from ccctl.arguments import (
    MOST_COUNT,
    GeneralOptions,
    HoldAlpha,
    NetworkOptions,
    Parameters,
    load_network,
    network_option,
    read_or_compiled,
    refuse_unknown,
    written_option,
)
from ccctl.artifacts import codec
from ccctl.completion import words
from ccctl.errors import FoundProblem, UsageError
from probes.base import parse_rate, parse_seconds, parse_size

if TYPE_CHECKING:
    from ccctl.artifacts import Artifact
    from probes.base import Floats
    from synth.network import Network
    from synth.program import Protocol
    from synth.schedules import AnySchedule, Bound, Schedule, Timing

__all__ = ["EXAMPLES", "simulate"]

EXAMPLES = (
    ("ccctl simulate schedule.json", "time a schedule on the network it was made for"),
    ("ccctl simulate schedule.json --network profile.json --size 64M", "on another profile, at another size"),
    (
        "ccctl simulate ring.py -p ranks=8 --network ring:8 --bandwidth 50GB/s --size 64M --step 1us",
        "time an algorithm in Python, instructions included",
    ),
    (
        "ccctl simulate schedule.json --trace trace.json.gz",
        "see every link and port in time: open the file in ui.perfetto.dev",
    ),
    ("ccctl simulate schedule.json --with simgrid", "have another simulator judge the time"),
)
# The largest accepted relative difference between the two simulators. If sends take turns, both simulators
# have the same model.
_AGREE = 0.01


@dataclass(frozen=True)
class SimulateOptions(GeneralOptions, NetworkOptions):
    """The arguments and options of ``simulate``."""

    schedule: Annotated[
        str,
        typer.Argument(
            metavar="ARTIFACT",
            help="A schedule (plain, periodic or symmetric), program, MSCCL XML or file.py; - reads stdin.",
        ),
    ]
    parameters: Parameters = None
    network: Annotated[
        str | None,
        network_option(
            "Network to time it on, by name or file as for ccctl synth; a family such as ring:4 needs "
            "--bandwidth. [the schedule's own]"
        ),
    ] = None
    size: Annotated[
        str | None,
        typer.Option("--size", metavar="SIZE", help="Buffer size to time it for. [the schedule's own]"),
    ] = None
    step: Annotated[
        str, typer.Option("--step", metavar="TIME", help="Time that each instruction of a program costs.")
    ] = "0.5us"
    rate: Annotated[
        str | None,
        typer.Option(
            "--threadblock",
            metavar="RATE",
            help="Rate at which one threadblock moves data. [that of a named machine, else no limit]",
        ),
    ] = None
    fifo: Annotated[
        int,
        typer.Option(
            "--fifo", metavar="N", min=1, max=MOST_COUNT, help="Messages that a connection can buffer."
        ),
    ] = 2
    protocol: Annotated[
        str | None,
        typer.Option(
            "--protocol",
            metavar="NAME",
            autocompletion=words.one_of(*words.PROTOCOLS),
            help="Time a program as NCCL's Simple, LL128 or LL carries it on GPUs: in pieces of 4 "
            "MiB, each in four parts, at the costs in NCCL's tuning. [each chunk as one message, at the "
            "network's costs]",
        ),
    ] = None
    hold_alpha: HoldAlpha = False
    trace: Annotated[
        str | None,
        written_option(
            "--trace",
            help="Write what each link and port carries over time, for Perfetto; .gz compresses, "
            "- is stdout.",
        ),
    ] = None
    judge: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="SIMULATOR",
            autocompletion=words.one_of("simgrid"),
            help="Also time a schedule in simgrid, and compare.",
        ),
    ] = None


def simulate(options: SimulateOptions) -> None:
    """Time a schedule or program on any network by simulation.

    Links and ports are simulated with congestion, and the time is compared with the proven bounds. A wrong
    schedule or program is not timed: all findings are listed (exit 1), as by ccctl verify.

    A schedule has its own network and size. A selection is timed at every size of its sweep, or with --size
    by the schedule that it chooses for that size. A program needs --network and --size; threadblocks,
    channels, FIFO slots and the cost of instructions are simulated, too, and the output names what limits it.
    A periodic or symmetric schedule is timed at any --size, and on another network with all its sends, up to
    half a million.

    Tables show how busy links and shared ports are, by class, and the ten busiest; --trace writes every
    moment. --with simgrid also times a schedule in SimGrid, an independent simulator (apt-get install
    python3-simgrid): if sends take turns at links and ports both must agree within 1 % (else exit 1). A
    second time is for ports that all waiting sends share evenly, as real NVSwitches and NICs do.
    """
    read = _read(options)
    is_program = read.kind == "program"
    if not is_program and not read.body.is_sized and options.size is None:
        _selection(read, options)
        return
    timed = (_program if is_program else _schedule)(read, options)
    if options.trace is not None:
        from ccctl.render import write_trace

        write_trace(options.trace, *timed.trace())
    if options.json and options.trace != "-":
        console.summary(timed.values)
    elif options.trace != "-":
        timed.draw()
        _close(timed, options.trace)
    if (simgrid := timed.values.get("simgrid")) is not None:
        _refuse_apart(simgrid, timed.values["time_s"])


@dataclass(frozen=True)
class Simulated:
    """A simulated schedule or program: its figures, and the functions that draw and trace it."""

    values: dict[str, Any]
    draw: Callable[[], None]
    trace: Callable[[], tuple[dict[str, Any], Any, Any]]


def _read(options: SimulateOptions) -> Artifact:
    """Return what is to be timed; raises UsageError."""
    if options.judge not in (None, "simgrid"):
        raise UsageError(f"--with: expected simgrid, found {options.judge!r}")
    path = options.schedule
    read = read_or_compiled(path, options.parameters, *codec.SCHEDULE_KINDS, "program")
    if options.protocol is not None and read.kind != "program":
        raise UsageError(
            f"--protocol: only programs have one, and {path} is none (it is of kind {read.kind})",
            hint="ccctl compile makes a program of it.",
        )
    return read


def _network(options: SimulateOptions, spec: str) -> Network:
    named = (spec, options.alpha, options.bandwidth)
    return _holding(load_network(*named, unwind=options.unwind, failed=options.without)[0], options)


def _holding(on: Network, options: SimulateOptions) -> Network:
    return replace(on, hold_alpha=True) if options.hold_alpha else on


def _program(read: Artifact, options: SimulateOptions) -> Simulated:
    from ccctl.arguments import refuse_unproven
    from ccctl.render import trace
    from ccctl.render.text import draw_timing, limit_of_program, utilization
    from synth.bounds import bounds
    from synth.check import judge
    from synth.networks import embedded
    from synth.prediction import predicted_s
    from synth.simulation import Costs, simulate_by, simulate_program

    if options.judge is not None:
        raise UsageError(f"--with simgrid: only schedules can be judged, {read.source} is a program")
    if options.network is None or options.size is None:
        raise UsageError(
            f"{read.source}: a program has no network of its own", hint="Add --network and --size."
        )
    network, program = _network(options, options.network), read.body
    costs = Costs(parse_seconds(options.step, "--step"), _threadblock_bytes_per_s(options), options.fifo)
    protocol = _protocol(options)
    refuse_unproven(read.source, judge(program, options.fifo))
    size_bytes = parse_size(options.size, "--size")
    chunk_bytes = max(1, -(-size_bytes // program.collective.total_bytes(1)))
    timed, timed_bytes = program, chunk_bytes
    if protocol is None:
        timing = simulate_program(program, network, chunk_bytes, costs)
    else:
        size_bytes = chunk_bytes * program.collective.total_bytes(1)
        timing, timed, timed_bytes = simulate_by(protocol, program, network, size_bytes, costs)
    # The program runs on the first ranks; further ranks of the network could only relay.
    wanted = embedded(program.collective, network.ranks)
    bound, size_bytes = bounds(network, wanted, chunk_bytes)[0], wanted.total_bytes(chunk_bytes)
    values = _values(network, bound, size_bytes, timing.time_s, timing.link_busy)
    values |= {
        "instructions": program.steps,
        "limited_by": limit_of_program(network, timing),
        **{f"{name}_s": value for name, value in timing.shares.items()},
    }
    if network.measured:
        values["predicted_run_s"] = predicted_s(program, network, chunk_bytes)

    def draw() -> None:
        draw_timing(program, network, timing)
        utilization.draw(network, timing.link_busy)

    about = {"program": program.name, "network": network.name, "time_us": timing.time_s * 1e6}
    return Simulated(
        values,
        draw,
        lambda: (
            about,
            trace.program_tracks(program, network),
            trace.program_blocks(timed, network, timed_bytes, timing),
        ),
    )


def _protocol(options: SimulateOptions) -> Protocol | None:
    name = options.protocol
    if name is not None and (options.rate is not None or options.hold_alpha):
        option = "--threadblock" if options.rate is not None else "--hold-alpha"
        raise UsageError(f"{option}: leave it out; --protocol sets what a threadblock moves and a hop costs")
    if name is not None:
        refuse_unknown("--protocol", name, words.PROTOCOLS)
    return name  # type: ignore[return-value] # one of the protocols


def _threadblock_bytes_per_s(options: SimulateOptions) -> float:
    """Return the rate of a threadblock: the option's, else a named machine's, else infinity."""
    from synth.networks import is_pod, threadblock_bytes_per_s

    if options.rate:
        return parse_rate(options.rate, "--threadblock")
    network = options.network or ""
    return threadblock_bytes_per_s(network) if is_pod(network) else float("inf")


def _selection(read: Artifact, options: SimulateOptions) -> None:
    from ccctl.arguments import refuse_unproven
    from ccctl.render.text import selection
    from synth.check import check
    from synth.portfolio import timed

    if (options.network, options.trace, options.judge) != (None, None, None):
        raise UsageError(f"{read.source}: a selection has many schedules", hint="Add --size to choose one.")
    refuse_unproven(read.source, check(read.body))
    found = timed(read.body)
    # The newly simulated time of a point could be below the bound that the file claims for it.
    refuse_unproven(read.source, found.problems())
    if options.json:
        console.summary(selection.summary(found))
    else:
        selection.draw(found)


def _schedule(read: Artifact, options: SimulateOptions) -> Simulated:
    from ccctl.arguments import listed, refuse_unproven
    from ccctl.render.text import drawing_of
    from synth.bounds import schedule_bounds
    from synth.check import check
    from synth.prediction import schedule_run_s
    from synth.simulation import replay, simulated
    from synth.streams import divided

    made = _moved(read, options)
    refuse_unproven(read.source, check(made))
    timing = simulated(made)
    busy = made.busy_s / timing.time_s if timing.time_s else made.busy_s * 0.0
    size_bytes = made.whole.total_bytes(made.chunk_bytes)
    values = _values(made.network, schedule_bounds(made)[0], size_bytes, timing.time_s, busy)
    values |= {"sends": made.sends, **made.facts}
    if made.is_listed and made.listed_network().measured:
        values["predicted_run_s"] = schedule_run_s(made.expanded())
    if options.judge is not None:
        values["simgrid"] = _in_simgrid(made.expanded())

    def trace() -> tuple[dict[str, Any], Any, Any]:
        plain = listed(made, read.source)
        return _schedule_trace(read.source, divided(plain), timing if made.is_listed else replay(plain))

    return Simulated(values, partial(drawing_of(made.kind), made), trace)


def _moved(read: Artifact, options: SimulateOptions) -> AnySchedule:
    """Return the schedule for the wanted size and network; for another network, list all sends.

    Raises UsageError.
    """
    from ccctl.arguments import listed
    from synth.networks import failures_of, without
    from synth.simulation import moved_to

    made: AnySchedule = read.body
    if options.size is not None:
        made = made.of_size(parse_size(options.size, "--size"))
    if options.network is not None:
        on = _network(options, options.network)
    elif options.without is not None:
        own = made.listed_network()
        on = _holding(without(own, failures_of(options.without, own)), options)
    elif options.hold_alpha:
        on = _holding(made.listed_network(), options)
    else:
        return made if options.judge is None else listed(made, read.source)
    table = listed(made, read.source)
    return moved_to(table, on, table.chunk_bytes)


def _schedule_trace(source: str, schedule: Schedule, timing: Timing) -> tuple[dict[str, Any], Any, Any]:
    from ccctl.render import trace

    about = {"schedule": source, "network": schedule.network.name, "time_us": timing.time_s * 1e6}
    return about, trace.schedule_tracks(schedule.network), trace.schedule_blocks(schedule, timing)


def _in_simgrid(schedule: Schedule) -> dict[str, Any]:
    """Return SimGrid's times of a schedule.

    ``time_s`` is None if its sends do not take turns, ``shared_time_s`` is None if it would equal ``time_s``.
    """
    from synth.simulation import replay_in_simgrid, takes_turns

    turns = replay_in_simgrid(schedule, turns=True) if takes_turns(schedule) else None
    # Without ports nothing is shared, so both ways give the same time.
    apart = turns is None or len(schedule.network.ports)
    shared = replay_in_simgrid(schedule, turns=False) if apart else None
    found = shared or turns
    return {
        "version": found.version if found else "",
        "time_s": turns.time_s if turns else None,
        "shared_time_s": shared.time_s if shared else None,
    }


def _say_judged(judged: dict[str, Any], time_s: float) -> None:
    from ccctl.render import seconds

    for name, how in (
        ("time_s", "sends take turns at links and ports, in the order of the schedule"),
        (
            "shared_time_s",
            "all ready sends share them evenly, as NVSwitches and NICs do if nothing keeps the order",
        ),
    ):
        if (value := judged[name]) is not None:
            more = f", {value / time_s - 1:+.2%} against ccctl" if time_s else ""
            console.data(f"SimGrid {judged['version']}, {how}: {seconds(value)}{more}")


def _refuse_apart(judged: dict[str, Any], time_s: float) -> None:
    value = judged["time_s"]
    if value is not None and abs(value - time_s) > _AGREE * time_s:
        raise FoundProblem(
            f"SimGrid says {value:.6g} s, ccctl {time_s:.6g} s: over 1 % apart, though both take turns"
        )


def _values(network: Any, bound: Bound, size_bytes: int, time_s: float, busy: Floats) -> dict[str, Any]:
    from ccctl.render.text import optimality, utilization

    values = optimality(time_s, bound) | {
        "size_bytes": size_bytes,
        "busiest_link_percent": 100.0 * float(busy.max(initial=0.0)),
    }
    # For a symmetric schedule, ``busy`` covers one link of each orbit, which is no basis for figures by
    # class.
    return values | (
        {"utilization": utilization.summary(network, busy)} if len(busy) == network.links else {}
    )


def _close(timed: Simulated, trace: str | None) -> None:
    from ccctl.render import seconds
    from ccctl.render.text import predicted_line

    values = timed.values
    predicted_s = values.get("predicted_run_s")
    model = "" if predicted_s is None else " in the model of links"
    told = ": ".join(filter(None, (values["binding_bound"], values["binding_detail"])))
    bound = f"{seconds(values['bound_s'])} ({told})"
    console.data(f"{values['percent_of_optimal']:.1f} % of optimal{model}, bound: {bound}")
    if predicted_s is not None:
        console.data(predicted_line(predicted_s))
    if trace is not None:
        console.note(f"{trace}: open it in ui.perfetto.dev or chrome://tracing")
    if (simgrid := values.get("simgrid")) is not None:
        _say_judged(simgrid, values["time_s"])
