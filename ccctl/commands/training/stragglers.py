"""`ccctl relay`: what it gains not to wait for ranks that are late."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccctl import console
from ccctl.arguments import (
    MOST_COUNT,
    Alpha,
    Bandwidth,
    Json,
    Quiet,
    Seed,
    Verbose,
    load_network,
    parse_seconds,
    parse_size,
)
from ccctl.artifacts import codec, refuse_unwritable, write_atomically
from ccctl.completion import words
from ccctl.errors import UsageError

if TYPE_CHECKING:
    from exec.relays import Arrivals, CollectiveCosts
    from synth.schedule import Schedule

__all__ = ["EXAMPLES", "stragglers"]

EXAMPLES = (
    (
        "ccctl training stragglers --bimodal 1s:0.05 --ranks 4 --buy 40ms",
        "one rank of four is late by a second in a twentieth of all iterations",
    ),
    (
        "ccctl training stragglers --exponential 20ms --ranks 4 --network ring:4 --bandwidth 10GB/s"
        " --alpha 5us --size 64M",
        "what the phases of an all_reduce cost, simulated for every set of ready ranks",
    ),
    (
        "ccctl training stragglers trace.csv --unit s --buy 12ms -o decisions.csv",
        "replay when the ranks of a job were ready; what became of each iteration as a table",
    ),
)

_MOST_RANKS = 1 << 10
_MOST_ARRIVALS = 50_000_000

Trace = Annotated[
    str | None,
    typer.Argument(metavar="[TRACE]", help="CSV: for each iteration when each rank was ready; - is stdin."),
]
Buy = Annotated[
    str | None,
    typer.Option("--buy", metavar="TIME", help="Going costs this, whoever is ready: 40ms."),
]
ScheduleFile = Annotated[
    str | None,
    typer.Option("--schedule", metavar="FILE", help="Costs are those of the phases of this schedule."),
]
NetworkSpec = Annotated[
    str | None,
    typer.Option(
        "--network",
        metavar="NETWORK|FILE",
        autocompletion=words.networks,
        help="Costs are those of a schedule made for it, as ccctl synth makes one.",
    ),
]
Collective = Annotated[
    str,
    typer.Option(
        "--collective",
        metavar="NAME",
        autocompletion=words.spelled(*words.COLLECTIVES),
        help="What is synthesized for --network.",
    ),
]
Size = Annotated[
    str | None,
    typer.Option("--size", metavar="SIZE", help="The buffer, as nccl-tests counts it; else the schedule's."),
]
Volume = Annotated[
    bool,
    typer.Option("--volume", help="Cost the phases by volume over bandwidth, as AdapCC does; no simulation."),
]
Exponential = Annotated[
    str | None,
    typer.Option("--exponential", metavar="MEAN", help="No trace: stragglers are late by this on average."),
]
Bimodal = Annotated[
    str | None,
    typer.Option(
        "--bimodal",
        metavar="TIME:PROBABILITY",
        help="No trace: stragglers are late by TIME, or not at all: 1s:0.05.",
    ),
]
RankCount = Annotated[
    int | None,
    typer.Option(
        "-n",
        "--ranks",
        metavar="N",
        min=2,
        max=_MOST_RANKS,
        help="How many ranks are drawn, or stand behind a trace of one column.",
    ),
]
Stragglers = Annotated[
    int,
    typer.Option("--stragglers", metavar="K", min=1, max=_MOST_RANKS, help="How many ranks may be late."),
]
Iterations = Annotated[
    int, typer.Option("--iterations", metavar="N", min=1, max=MOST_COUNT, help="How many are drawn.")
]
Unit = Annotated[
    str,
    typer.Option(
        "--unit",
        metavar="UNIT",
        autocompletion=words.one_of("s", "ms", "us"),
        help="Of bare numbers in the trace: s, ms or us.",
    ),
]
Cycle = Annotated[str, typer.Option("--cycle", metavar="TIME", help="How often the coordinator decides.")]
FaultFactor = Annotated[
    float,
    typer.Option(
        "--fault-factor",
        metavar="X",
        min=0.0,
        help="A rank is dead X times as long after phase 1 as that took to end.",
    ),
]
Decisions = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write what became of each iteration to FILE, as CSV; - prints it to stdout.",
    ),
]


def stragglers(
    trace: Trace = None,
    buy: Buy = None,
    schedule: ScheduleFile = None,
    network: NetworkSpec = None,
    collective: Collective = "all_reduce",
    alpha: Alpha = None,
    bandwidth: Bandwidth = None,
    size: Size = None,
    volume: Volume = False,
    exponential: Exponential = None,
    bimodal: Bimodal = None,
    ranks: RankCount = None,
    late: Stragglers = 1,
    iterations: Iterations = 1000,
    unit: Unit = "ms",
    cycle: Cycle = "5ms",
    fault_factor: FaultFactor = 5.0,
    seed: Seed = 0,
    json: Json = False,
    output: Decisions = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Judge what it gains to go ahead without ranks that are late.

    The coordinator of AdapCC waits while that costs less than going would (ski rental); then the ready
    ranks run a partial collective, in which the late ones relay, and the data of the late ones follow. When
    ranks were ready is replayed by this rule; beside it stand always waiting and always going.

    TRACE has a row for each iteration and a column for each rank, or one column: how late the last rank was.
    Instead of a trace, --exponential and --bimodal draw one. What going costs is --buy, or follows from the
    phases of --schedule, or of one that is synthesized for --network and --size.

    The cost of a policy is the time waited and then that of the collective or of its two phases; the optimum
    knows all arrivals. Completion, where phases are known, is when every rank has the full result: phase 1
    runs while late ranks still compute. A rank relays in iterations that went without it.
    """
    from exec.relays import replay_arrivals

    if output is not None and output != "-":
        refuse_unwritable(Path(output))
    cycle_s = parse_seconds(cycle, "--cycle")
    if cycle_s <= 0:
        raise UsageError(f"--cycle: expected a time > 0, found {cycle}")
    arrivals = _arrivals(trace, exponential, bimodal, (ranks, late, iterations, seed), unit)
    planned = _schedule(schedule, network, collective, (alpha, bandwidth), size, seed)
    costs = _costs(buy, planned, arrivals, volume)
    replay = replay_arrivals(arrivals, costs, cycle_s=cycle_s, fault_factor=fault_factor)
    from ccctl.render.text import relay as text

    if output is not None:
        content = text.decisions(replay).encode()
        if output == "-":
            console.raw(content)
        else:
            write_atomically(Path(output), content)
    if json and output != "-":
        console.summary(text.summary(replay, costs, cycle_s))
    elif output != "-":
        text.draw(replay, costs, cycle_s)


def _arrivals(
    trace: str | None,
    exponential: str | None,
    bimodal: str | None,
    drawn: tuple[int | None, int, int, int],
    unit: str,
) -> Arrivals:
    """Read from a trace, or drawn at random: exactly one of the three is given."""
    from ccctl.arguments import UNITS, read_trace
    from exec.relays import arrivals

    if sum(given is not None for given in (trace, exponential, bimodal)) != 1:
        raise UsageError(
            "expected one of TRACE, --exponential and --bimodal",
            hint="For example --exponential 20ms --ranks 4.",
        )
    if unit not in UNITS:
        from probes.base import meant

        raise UsageError(
            f"--unit: expected one of {', '.join(UNITS)}, found {unit!r}", hint=meant(unit, UNITS)
        )
    ranks, stragglers, iterations, seed = drawn
    if trace is not None:
        return read_trace(trace, unit=unit, ranks=ranks)
    if ranks is None:
        raise UsageError("expected --ranks: how many ranks arrive", hint="For example --ranks 4.")
    if stragglers > ranks:
        raise UsageError(f"--stragglers: expected at most the {ranks} of --ranks, found {stragglers}")
    if ranks * iterations > _MOST_ARRIVALS:
        raise UsageError(
            f"--ranks {ranks} --iterations {iterations}: expected at most {_MOST_ARRIVALS} arrivals in all"
        )
    how = {"ranks": ranks, "stragglers": stragglers, "iterations": iterations, "seed": seed}
    if exponential is not None:
        return arrivals.exponential(parse_seconds(exponential, "--exponential"), **how)
    slow_s, probability = _bimodal(str(bimodal))
    return arrivals.bimodal(slow_s, probability, **how)


def _bimodal(text: str) -> tuple[float, float]:
    """Seconds and a probability, from ``1s:0.05``."""
    from probes.base import decimal, quoted

    time, _, chance = text.partition(":")
    probability = decimal(chance, 0.0, 1.0)
    if probability is None:
        raise UsageError(
            f"--bimodal: expected TIME:PROBABILITY, found {quoted(text)}",
            hint="For example 1s:0.05: late by a second in a twentieth of all iterations.",
        )
    return parse_seconds(time, "--bimodal"), probability


def _schedule(
    file: str | None,
    network: str | None,
    collective: str,
    links: tuple[str | None, str | None],
    size: str | None,
    seed: int,
) -> Schedule | None:
    """The schedule of a file, or one synthesized for a network; None where neither is given."""
    if file is not None and network is not None:
        raise UsageError("--schedule and --network exclude each other: a schedule has its network")
    if file is not None:
        from ccctl.arguments import refuse_unproven
        from synth.check import check
        from synth.simulation import moved_to

        read = codec.read(file, "schedule")
        made: Schedule = read.body
        refuse_unproven(read.source, check(made))
        if size is None:
            return made
        chunk_bytes = max(1, -(-parse_size(size, "--size") // made.collective.total_bytes(1)))
        return moved_to(made, made.network, chunk_bytes)
    if network is None:
        return None
    if size is None:
        raise UsageError("--network: what the phases cost depends on the size", hint="Add --size.")
    from ccctl.arguments import parse_collectives
    from synth.stages import synthesize

    on, _ = load_network(network, *links)
    collectives = parse_collectives(collective, on.ranks)
    return synthesize(on, collectives, parse_size(size, "--size"), seed=seed, trees=True).schedule


def _costs(buy: str | None, schedule: Schedule | None, arrivals: Arrivals, volume: bool) -> CollectiveCosts:
    """What going costs, for every set of ranks that is ready at some moment."""
    from exec.relays import ConstantCosts, SimulatedCosts, VolumeCosts, ready_sets

    if (buy is None) == (schedule is None):
        raise UsageError("expected one of --buy, --schedule and --network: what going costs")
    if schedule is None:
        if volume:
            raise UsageError("--volume: expected a --schedule or a --network, whose volume it is")
        buy_s = parse_seconds(str(buy), "--buy")
        if buy_s <= 0:
            raise UsageError(f"--buy: expected a time > 0, found {buy}")
        return ConstantCosts(buy_s)
    if schedule.network.ranks != arrivals.ranks or schedule.collective.size != arrivals.ranks:
        raise UsageError(
            f"the schedule is for {schedule.collective.size} of {schedule.network.ranks} ranks, "
            f"{arrivals.ranks} arrive",
            hint="Each rank of the network takes part, and arrives.",
        )
    costs = VolumeCosts(schedule) if volume else SimulatedCosts(schedule)
    needed = ready_sets(arrivals)
    with console.progress("phases", len(needed)) as bar:
        for done, ready in enumerate(sorted(needed, key=sorted), start=1):
            costs.phases(ready)
            bar.update(done)
    return costs
