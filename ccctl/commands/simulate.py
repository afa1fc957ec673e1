"""`ccctl simulate`: how long a schedule or a program takes on a network, and what binds it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccctl import console
from ccctl.arguments import (
    MOST_COUNT,
    Alpha,
    Bandwidth,
    HoldAlpha,
    Json,
    Parameters,
    Quiet,
    Unwind,
    Verbose,
    Without,
    compiled_algorithm,
    is_algorithm,
    load_network,
    parse_failures,
    parse_rate,
    parse_seconds,
    parse_size,
)
from ccctl.artifacts import codec, refuse_unwritable
from ccctl.completion import words
from ccctl.errors import FoundProblem, UsageError

if TYPE_CHECKING:
    from ccctl.artifacts import Artifact
    from probes.base import Floats
    from synth.collective import Collective
    from synth.network import Network
    from synth.program import Program, Protocol
    from synth.schedule import Schedule

__all__ = ["EXAMPLES", "simulate"]

EXAMPLES = (
    ("ccctl simulate schedule.json", "time a schedule on the network it was made for"),
    ("ccctl simulate schedule.json --network profile.json --size 64M", "on another profile, at another size"),
    (
        "ccctl simulate ring.py -p ranks=8 --network ring:8 --bandwidth 50GB/s --size 64M --step 1us",
        "time a program in the chunk language, instructions included",
    ),
    (
        "ccctl simulate schedule.json --trace trace.json.gz",
        "see every link and port in time: open the file in ui.perfetto.dev",
    ),
    ("ccctl simulate schedule.json --with simgrid", "have another simulator judge the time"),
)
# Both simulators have one model where sends take turns: what they differ by beyond this is an error.
_AGREE = 0.01


def _trace(value: str | None) -> str | None:
    if value is not None and value != "-":
        refuse_unwritable(Path(value))
    return value


def simulate(
    schedule: Annotated[
        str,
        typer.Argument(
            metavar="ARTIFACT",
            help="A schedule, plain, periodic or symmetric, a program, MSCCL XML or a file.py; - is stdin.",
        ),
    ],
    parameters: Parameters = None,
    network: Annotated[
        str | None,
        typer.Option(
            "--network",
            metavar="NETWORK|FILE",
            autocompletion=words.networks,
            help="What to time it on; as ccctl synth names networks.",
        ),
    ] = None,
    alpha: Alpha = None,
    bandwidth: Bandwidth = None,
    unwind: Unwind = None,
    without: Without = None,
    size: Annotated[str | None, typer.Option("--size", metavar="SIZE", help="Time it for this size.")] = None,
    step: Annotated[
        str, typer.Option("--step", metavar="TIME", help="What each instruction of a program costs.")
    ] = "0.5us",
    rate: Annotated[
        str | None,
        typer.Option(
            "--threadblock", metavar="RATE", help="What one threadblock can move. [a named machine's]"
        ),
    ] = None,
    fifo: Annotated[
        int,
        typer.Option("--fifo", metavar="N", min=1, max=MOST_COUNT, help="Messages that a connection holds."),
    ] = 2,
    protocol: Annotated[
        str | None,
        typer.Option(
            "--protocol",
            metavar="NAME",
            autocompletion=words.one_of(*words.PROTOCOLS),
            help="Of a program: time it as NCCL's Simple, LL128 or LL carries it on GPUs, in tiles of 4 MiB "
            "and four slices each, at the costs of NCCL's tuning. [whole chunks, at the network's costs]",
        ),
    ] = None,
    hold_alpha: HoldAlpha = False,
    trace: Annotated[
        str | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            callback=_trace,
            help="Write what every link and port carried when, for Perfetto; .gz compresses, - is stdout.",
        ),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="SIMULATOR",
            autocompletion=words.one_of("simgrid"),
            help="Time a schedule in simgrid, too, and compare.",
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Time a schedule or program on any network by simulation.

    Congestion is simulated, too, and the time compared with the proven bounds. What is wrong is not timed:
    all findings are listed first (exit 1), as ccctl verify does. A schedule brings its network and size
    along. Of a selection every size of its sweep is timed again, or with --size the schedule that it
    chooses for that size. Of a program, which needs both, threadblocks, channels, FIFO slots and the
    overhead of instructions are simulated too, and what binds is said. A periodic or symmetric schedule is
    timed at any --size, on its own network only: of a periodic one a few periods are replayed, and each
    further one adds as much; of a symmetric one the listed sends, with larger or smaller chunks. How busy
    links and shared ports are is shown by class, with the ten that are busiest; --trace tells it of every
    moment.

    --with simgrid times a schedule in SimGrid as well, an independent simulator (apt-get install
    python3-simgrid). With turns at links and ports both must agree (else exit 1); a second time is that of
    ports shared by all sends at once, evenly and in no order.
    """
    if judge not in (None, "simgrid"):
        raise UsageError(f"--with: expected simgrid, found {judge!r}")
    if is_algorithm(schedule):
        read = codec.Artifact("program", compiled_algorithm(schedule, parameters)[0], schedule, "")
    else:
        read = codec.read(schedule, "schedule", "periodic", "symmetric", "selection", "program")
    asked = _Asked(size, trace, json, judge is not None)
    if protocol is not None and read.kind != "program":
        raise UsageError(
            f"--protocol: only programs have one, and {schedule} is none (it is of kind {read.kind})",
            hint="ccctl compile makes a program of it.",
        )
    if read.kind == "selection":
        if size is None:
            _selection(read, network, asked)
            return
        chosen = read.body.choose(parse_size(size, "--size"))
        read = codec.Artifact("schedule", chosen, read.source, read.sha256)
    if read.kind in ("periodic", "symmetric"):
        elsewhere = {"--network": network, "--without": without}
        named = [name for name, value in elsewhere.items() if value is not None]
        if named or hold_alpha:
            raise UsageError(
                f"{(named or ['--hold-alpha'])[0]}: a {read.kind} schedule keeps to times of its own network",
                hint="Make one for the other with ccctl synth.",
            )
        if asked.in_simgrid:
            raise UsageError(f"--with simgrid: only plain schedules can be judged, {schedule} is {read.kind}")
        (_periodic if read.kind == "periodic" else _symmetric)(read, asked)
        return
    if read.kind == "schedule":
        on: Network = read.body.network
        if network is not None:
            on, _ = load_network(network, alpha, bandwidth, unwind=unwind, failed=without)
        elif without is not None:
            from synth.networks import without as left_of

            on = left_of(on, parse_failures(without, on))
        _schedule(read, _holding(on, hold_alpha), asked)
        return
    if asked.in_simgrid:
        raise UsageError(f"--with simgrid: only schedules can be judged, {schedule} is a program")
    if network is None or size is None:
        raise UsageError(f"{schedule}: a program has no network of its own", hint="Add --network and --size.")
    on, _ = load_network(network, alpha, bandwidth, unwind=unwind, failed=without)
    limit = parse_rate(rate, "--threadblock") if rate else _threadblock_bytes_per_s(network)
    if protocol is not None and (rate is not None or hold_alpha):
        option = "--threadblock" if rate is not None else "--hold-alpha"
        raise UsageError(f"{option}: leave it out; --protocol sets what a threadblock moves and a hop costs")
    costs = (parse_seconds(step, "--step"), limit, fifo)
    _program(read, _holding(on, hold_alpha), costs, asked, _protocol(protocol))


def _protocol(name: str | None) -> Protocol | None:
    if name is not None and name not in words.PROTOCOLS:
        raise UsageError(f"--protocol: expected {', '.join(words.PROTOCOLS)}, found {name!r}")
    return name  # type: ignore[return-value] # one of the protocols


def _threadblock_bytes_per_s(network: str) -> float:
    """What one threadblock of a named machine moves, where that is known."""
    from synth.networks import is_pod, threadblock_bytes_per_s

    return threadblock_bytes_per_s(network) if is_pod(network) else float("inf")


@dataclass(frozen=True)
class _Asked:
    """What was asked for, whatever is simulated."""

    size: str | None
    trace: str | None
    json: bool
    in_simgrid: bool

    def chunk_bytes(self, what: Schedule | Program, otherwise: int = 1) -> int:
        """Of which size chunks are so that the buffer is of the size that was asked for."""
        if self.size is None:
            return otherwise
        return max(1, -(-parse_size(self.size, "--size") // what.collective.total_bytes(1)))


def _holding(on: Network, alpha: bool) -> Network:
    return replace(on, hold_alpha=True) if alpha else on


def _program(
    read: Artifact,
    network: Network,
    costs: tuple[float, float, int],
    asked: _Asked,
    protocol: Protocol | None,
) -> None:
    from ccctl.arguments import refuse_unproven
    from ccctl.render import trace, write_trace
    from ccctl.render.text import draw_timing
    from synth.check import judge
    from synth.networks import embedded
    from synth.prediction import predicted_s as predicted_s_of
    from synth.simulation import Costs, simulate_by, simulate_program

    program = read.body
    refuse_unproven(read.source, judge(program, costs[-1]))
    chunk_bytes = asked.chunk_bytes(program)
    timed, timed_bytes = program, chunk_bytes
    predicted_s = predicted_s_of(program, network, chunk_bytes) if network.measured else None
    if protocol is None:
        timing = simulate_program(program, network, chunk_bytes, Costs(*costs))
    else:
        size_bytes = chunk_bytes * program.collective.total_bytes(1)
        timing, timed, timed_bytes = simulate_by(protocol, program, network, size_bytes, Costs(*costs))
    # The program runs on the first ranks; what a network has beyond them could only relay.
    wanted = embedded(program.collective, network.ranks)
    values = _values(network, wanted, chunk_bytes, timing.time_s, timing.link_busy)
    values |= {
        "instructions": program.steps,
        "limited_by": timing.binding,
        **{f"{name}_s": value for name, value in timing.shares.items()},
    }
    if predicted_s is not None:
        values["predicted_run_s"] = predicted_s
    if asked.trace is not None:
        about = {"program": program.name, "network": network.name, "time_us": timing.time_s * 1e6}
        blocks = trace.program_blocks(timed, network, timed_bytes, timing)
        write_trace(asked.trace, about, trace.program_tracks(program, network), blocks)
    if _told(values, asked):
        return
    from ccctl.render.text import utilization

    draw_timing(program, timing)
    utilization.draw(network, timing.link_busy)
    _close(values, asked)


def _selection(read: Artifact, network: str | None, asked: _Asked) -> None:
    from ccctl.arguments import refuse_unproven
    from ccctl.render.text import selection
    from synth.check import check_selection
    from synth.portfolio import timed

    if network is not None or asked.trace is not None or asked.in_simgrid:
        raise UsageError(f"{read.source}: a selection has many schedules", hint="Add --size to choose one.")
    refuse_unproven(read.source, check_selection(read.body))
    found = timed(read.body)
    # Timed anew, a point could beat the bound that the file claims for it.
    refuse_unproven(read.source, found.problems())
    if asked.json:
        console.summary(selection.summary(found))
    else:
        selection.draw(found)


def _schedule(read: Artifact, on: Network, asked: _Asked) -> None:
    from ccctl.arguments import refuse_unproven
    from ccctl.render import trace, write_trace
    from synth.check import check
    from synth.prediction import schedule_run_s
    from synth.simulation import moved_to, replay, utilization
    from synth.streams import divided

    refuse_unproven(read.source, check(read.body))
    chunk_bytes = asked.chunk_bytes(read.body, read.body.chunk_bytes)
    moved = moved_to(read.body, on, chunk_bytes)
    if moved is not read.body:
        refuse_unproven(read.source, check(moved))
    timing = replay(moved)
    busy = utilization(moved, timing)
    values = _values(moved.network, moved.collective, moved.chunk_bytes, timing.time_s, busy)
    values |= {"sends": moved.sends}
    if moved.network.measured:
        values["predicted_run_s"] = schedule_run_s(moved)
    judged = _in_simgrid(moved) if asked.in_simgrid else None
    if judged is not None:
        values["simgrid"] = judged
    if asked.trace is not None:
        about = {"schedule": read.source, "network": moved.network.name, "time_us": timing.time_s * 1e6}
        apart = divided(moved)
        blocks = trace.schedule_blocks(apart, timing)
        write_trace(asked.trace, about, trace.schedule_tracks(apart.network), blocks)
    if not _told(values, asked):
        from ccctl.render.text import schedule

        schedule.draw(moved)
        _close(values, asked)
        if judged is not None:
            _say_judged(judged, timing.time_s)
    if judged is not None:
        _refuse_apart(judged, timing.time_s)


def _in_simgrid(schedule: Schedule) -> dict[str, Any]:
    """What SimGrid says of a schedule; None is a time that cannot be, or that is the other one."""
    from synth.simulation import replay_in_simgrid, takes_turns

    turns = replay_in_simgrid(schedule, turns=True) if takes_turns(schedule) else None
    # Without ports nothing is shared, and both ways are one.
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
        ("time_s", "in turns"),
        ("shared_time_s", "links and ports shared evenly, in no order"),
    ):
        if (value := judged[name]) is not None:
            more = f", {value / time_s - 1:+.2%} against here" if time_s else ""
            console.data(f"SimGrid {judged['version']}, {how}: {seconds(value)}{more}")


def _refuse_apart(judged: dict[str, Any], time_s: float) -> None:
    value = judged["time_s"]
    if value is not None and abs(value - time_s) > _AGREE * time_s:
        raise FoundProblem(f"SimGrid: {value:.6g} s, here {time_s:.6g} s, though both take turns")


def _periodic(read: Artifact, asked: _Asked) -> None:
    from ccctl.arguments import expanded, refuse_unproven
    from ccctl.render import trace, write_trace
    from synth.check import check_periodic
    from synth.simulation import periodic_time_s, replay

    made = read.body
    if asked.size is not None:
        made = made.of_size(parse_size(asked.size, "--size"))
    refuse_unproven(read.source, check_periodic(made))
    time_s = periodic_time_s(made)
    busy = made.link_busy_s * made.periods / time_s
    # Of chunks in any number only the bytes count.
    share = made.collective.share
    once = replace(made.collective, chunks=made.collective.chunks // share)
    chunk_bytes = made.chunk_bytes * share * made.periods
    values = _values(made.network, once, chunk_bytes, time_s, busy, fluid=True)
    values |= {
        "sends": made.sends,
        "periods": made.periods,
        "period_s": made.period_s,
        "latency_s": made.latency_s,
    }
    if asked.trace is not None:
        plain = expanded(made, read.source)
        about = {"schedule": read.source, "network": made.network.name, "time_us": time_s * 1e6}
        blocks = trace.schedule_blocks(plain, replay(plain))
        write_trace(asked.trace, about, trace.schedule_tracks(plain.network), blocks)
    if _told(values, asked):
        return
    from ccctl.render.text.compact import periodic

    periodic.draw(made)
    _close(values, asked)


def _symmetric(read: Artifact, asked: _Asked) -> None:
    from ccctl.arguments import refuse_unproven
    from ccctl.render.text.compact import symmetric
    from synth.bounds import symmetric_bounds
    from synth.check import check_symmetric
    from synth.simulation import replay

    if asked.trace is not None:
        raise UsageError(f"--trace: {read.source} is symmetric; only schedules that list all sends have one")
    made = read.body
    if asked.size is not None:
        made = made.of_size(parse_size(asked.size, "--size"))
    timing = replay(made.quotient)
    refuse_unproven(read.source, check_symmetric(made, timing))
    size_bytes, time_s = made.collective.total_bytes(made.chunk_bytes), timing.time_s
    bound = symmetric_bounds(made.network, made.collective.kind, size_bytes)[0]
    values = {
        "time_s": time_s,
        "bound_s": bound.time_s,
        "binding_bound": bound.name,
        "percent_of_optimal": 100.0 * min(1.0, bound.time_s / time_s) if time_s else 100.0,
        "size_bytes": size_bytes,
        "busiest_link_percent": 100.0 * float(made.busy_s.max(initial=0.0)) / time_s if time_s else 0.0,
        "sends": made.sends,
        "listed": len(made.chunk),
        "translations": made.network.translations,
    }
    if _told(values, asked):
        return
    symmetric.draw(made)
    console.data(f"{values['percent_of_optimal']:.1f} % of optimal, bound: {bound.name}")


def _values(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    time_s: float,
    busy: Floats,
    *,
    fluid: bool = False,
) -> dict[str, Any]:
    from ccctl.render.text import utilization
    from synth.bounds import bounds

    proven = bounds(network, collective, chunk_bytes, fluid=fluid)[0]
    return {
        "time_s": time_s,
        "bound_s": proven.time_s,
        "binding_bound": proven.name,
        "percent_of_optimal": 100.0 * min(1.0, proven.time_s / time_s) if time_s else 100.0,
        "size_bytes": collective.total_bytes(chunk_bytes),
        "busiest_link_percent": 100.0 * float(busy.max(initial=0.0)),
        "utilization": utilization.summary(network, busy),
    }


def _told(values: dict[str, Any], asked: _Asked) -> bool:
    """Whether nothing is left to print: the object was asked for, or the trace has stdout for itself."""
    if asked.json and asked.trace != "-":
        console.summary(values)
    return asked.json or asked.trace == "-"


def _close(values: dict[str, Any], asked: _Asked) -> None:
    from ccctl.render import seconds

    bound = values["binding_bound"]
    cut = "" if "periods" in values else " with these chunks"
    predicted_s = values.get("predicted_run_s")
    model = "" if predicted_s is None else ", by links alone"
    console.data(f"{values['percent_of_optimal']:.1f} % of optimal{cut}{model}, bound: {bound}")
    if predicted_s is not None:
        console.data(
            f"predicted run: {seconds(predicted_s)}, with what ranks need for steps, copies and shared ports"
        )
    if asked.trace is not None:
        console.note(f"{asked.trace}: open it in ui.perfetto.dev or chrome://tracing")
