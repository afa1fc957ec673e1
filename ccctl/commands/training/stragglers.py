"""`ccctl training stragglers`: the gain of not waiting for late ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ccctl import console
from ccctl.arguments import (
    MOST_COUNT,
    FamilyOptions,
    GeneralOptions,
    Seed,
    collective_option,
    load_network,
    network_option,
    refuse_unknown,
    written_option,
)
from ccctl.artifacts import codec, write_output
from ccctl.completion import words
from ccctl.errors import UsageError
from probes.base import decimal, parse_seconds, parse_size, quoted

if TYPE_CHECKING:
    from exec.stragglers import Arrivals, CollectiveCosts
    from synth.schedules import Schedule

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

# A trace has the same limit, in exec.stragglers.arrival_trace.
_MOST_RANKS = 1 << 10
# An arrival is a double of 8 bytes, so this many take 400 MB.
_MOST_ARRIVALS = 50_000_000


@dataclass(frozen=True)
class StragglersOptions(GeneralOptions, FamilyOptions):
    """The arguments and options of ``stragglers``."""

    trace: Annotated[
        str | None,
        typer.Argument(
            metavar="[TRACE]",
            help="CSV with the time at which each rank was ready, a row for each iteration; - reads stdin.",
        ),
    ] = None
    buy: Annotated[
        str | None,
        typer.Option(
            "--buy", metavar="TIME", help="What it costs to go ahead, whichever ranks are ready: 40ms."
        ),
    ] = None
    schedule: Annotated[
        str | None,
        typer.Option("--schedule", metavar="FILE", help="Take the costs from the phases of this schedule."),
    ] = None
    network: Annotated[
        str | None, network_option("Take the costs from a schedule synthesized for this network.")
    ] = None
    collective: Annotated[str, collective_option("Collective to synthesize for --network.")] = "all_reduce"
    size: Annotated[
        str | None,
        typer.Option(
            "--size", metavar="SIZE", help="Size of the buffer, as nccl-tests counts it. [the schedule's]"
        ),
    ] = None
    volume: Annotated[
        bool,
        typer.Option(
            "--volume",
            help="Compute the phases' costs as volume over bandwidth, as AdapCC does, without simulation.",
        ),
    ] = False
    exponential: Annotated[
        str | None,
        typer.Option(
            "--exponential",
            metavar="MEAN",
            help="Draw at random instead of TRACE: stragglers are late by this on average.",
        ),
    ] = None
    bimodal: Annotated[
        str | None,
        typer.Option(
            "--bimodal",
            metavar="TIME:PROBABILITY",
            help="Draw at random instead of TRACE: stragglers are late by TIME with this "
            "probability: 1s:0.05.",
        ),
    ] = None
    ranks: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--ranks",
            metavar="N",
            min=2,
            max=_MOST_RANKS,
            help="Number of ranks to draw, or of a TRACE with one column.",
        ),
    ] = None
    late: Annotated[
        int,
        typer.Option(
            "--stragglers", metavar="K", min=1, max=_MOST_RANKS, help="Number of ranks that may be late."
        ),
    ] = 1
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations", metavar="N", min=1, max=MOST_COUNT, help="Number of iterations to draw."
        ),
    ] = 1000
    unit: Annotated[
        str,
        typer.Option(
            "--unit",
            metavar="UNIT",
            autocompletion=words.one_of("s", "ms", "us"),
            help="Unit of bare numbers in TRACE: s, ms or us.",
        ),
    ] = "ms"
    cycle: Annotated[
        str, typer.Option("--cycle", metavar="TIME", help="Interval at which the coordinator decides.")
    ] = "5ms"
    fault_factor: Annotated[
        float,
        typer.Option(
            "--fault-factor",
            metavar="X",
            min=0.0,
            help="Declare a rank dead if it is later than X times the duration of phase 1.",
        ),
    ] = 5.0
    seed: Seed = 0
    output: Annotated[
        str | None,
        written_option(
            "-o",
            "--output",
            help="Write the decision and costs of each iteration to FILE, as CSV; - prints to stdout.",
        ),
    ] = None


def stragglers(options: StragglersOptions) -> None:
    """Estimate the gain of going ahead without late ranks.

    AdapCC's coordinator waits for late ranks until waiting has cost as much as going ahead would (break-even,
    as in ski rental). Then the ready ranks run a partial collective, in which late ranks relay, and the data
    of the late ones follows. This command replays the times at which ranks were ready under that rule, always
    waiting, always going ahead, and the optimum, which knows all times in advance.

    TRACE has a row for each iteration and a column for each rank, or one column: how late the last rank was.
    --exponential and --bimodal draw one at random instead. Going ahead costs --buy, or what the phases of
    --schedule cost, or those of a schedule synthesized for --network and --size.

    A policy's cost is the time waited plus that of the collective or its two phases. Completion, if phases
    are known, is when every rank has the full result; it may be earlier, as phase 1 runs while late ranks
    still compute. The last table is how often each rank relayed.
    """
    from ccctl.render.text import stragglers as text
    from exec.stragglers import replay_arrivals

    cycle_s = parse_seconds(options.cycle, "--cycle", positive=True)
    arrivals = _arrivals(options)
    costs = _costs(options, arrivals)
    replay = replay_arrivals(arrivals, costs, cycle_s=cycle_s, fault_factor=options.fault_factor)
    if options.output is not None:
        write_output(options.output, text.decisions(replay).encode())
    if options.output != "-":
        (console.summary if options.json else text.draw)(text.summary(replay, costs, cycle_s))


def _arrivals(options: StragglersOptions) -> Arrivals:
    """Return the arrivals of a trace, or random ones; exactly one of the three options must be given."""
    from ccctl.artifacts import read_input
    from exec.stragglers import UNITS, arrivals, parse_trace
    from probes.files import decoded

    given = (options.trace, options.exponential, options.bimodal)
    if sum(one is not None for one in given) != 1:
        raise UsageError(
            "expected one of TRACE, --exponential and --bimodal",
            hint="For example --exponential 20ms --ranks 4.",
        )
    refuse_unknown("--unit", options.unit, UNITS)
    ranks, late, iterations = options.ranks, options.late, options.iterations
    if options.trace is not None:
        content, source = read_input(options.trace)
        return parse_trace(decoded(content, source), source, unit=options.unit, ranks=ranks)
    if ranks is None:
        raise UsageError("expected --ranks: how many ranks arrive", hint="For example --ranks 4.")
    if late > ranks:
        raise UsageError(f"--stragglers: expected at most the {ranks} of --ranks, found {late}")
    if ranks * iterations > _MOST_ARRIVALS:
        raise UsageError(
            f"--ranks {ranks} --iterations {iterations}: expected at most {_MOST_ARRIVALS} arrivals in all"
        )
    how = {"ranks": ranks, "stragglers": late, "iterations": iterations, "seed": options.seed}
    if options.exponential is not None:
        return arrivals.exponential(parse_seconds(options.exponential, "--exponential"), **how)
    slow_s, probability = _bimodal(str(options.bimodal))
    return arrivals.bimodal(slow_s, probability, **how)


def _bimodal(text: str) -> tuple[float, float]:
    """Return seconds and a probability, from ``1s:0.05``."""
    time, _, chance = text.partition(":")
    probability = decimal(chance, 0.0, 1.0)
    if probability is None:
        raise UsageError(
            f"--bimodal: expected TIME:PROBABILITY, found {quoted(text)}",
            hint="For example 1s:0.05: late by a second in a twentieth of all iterations.",
        )
    return parse_seconds(time, "--bimodal"), probability


def _schedule(options: StragglersOptions) -> Schedule | None:
    """Return the schedule of a file, or one synthesized for a network; None where neither is given."""
    file, network, size = options.schedule, options.network, options.size
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

    on, _ = load_network(network, options.alpha, options.bandwidth)
    collectives = parse_collectives(options.collective, on.ranks)
    return synthesize(on, collectives, parse_size(size, "--size"), seed=options.seed, trees=True).listed


def _costs(options: StragglersOptions, arrivals: Arrivals) -> CollectiveCosts:
    """Return the costs of going ahead, for every set of ranks that is ready at some moment."""
    from exec.stragglers import ConstantCosts, SimulatedCosts, VolumeCosts, ready_sets

    schedule = _schedule(options)
    if (options.buy is None) == (schedule is None):
        raise UsageError("expected one of --buy, --schedule and --network: the cost of going ahead")
    if schedule is None:
        if options.volume:
            raise UsageError("--volume: expected a --schedule or a --network, whose volume it is")
        return ConstantCosts(parse_seconds(str(options.buy), "--buy", positive=True))
    if schedule.network.ranks != arrivals.ranks or schedule.collective.size != arrivals.ranks:
        raise UsageError(
            f"the schedule is for {schedule.collective.size} of {schedule.network.ranks} ranks, "
            f"{arrivals.ranks} arrive",
            hint="Each rank of the network takes part, and arrives.",
        )
    costs = VolumeCosts(schedule) if options.volume else SimulatedCosts(schedule)
    needed = ready_sets(arrivals)
    with console.progress("phases", len(needed)) as bar:
        for done, ready in enumerate(sorted(needed, key=sorted), start=1):
            costs.phases(ready)
            bar.update(done)
    return costs
