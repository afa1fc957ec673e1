"""`ccctl simulate`: how long a schedule or a program takes on a network, and what binds it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccctl import artifacts, console
from ccctl.algorithms import compiled_algorithm, is_algorithm
from ccctl.errors import UsageError
from ccctl.networks import load_network, parse_failures
from ccctl.options import Json, Parameters, Quiet, Unwind, Verbose, Without
from ccctl.sizes import parse_rate, parse_seconds, parse_size

if TYPE_CHECKING:
    from ccctl.artifacts import Artifact
    from synth.network import Network
    from synth.program import Program
    from synth.schedule import Schedule

__all__ = ["EXAMPLES", "simulate"]

EXAMPLES = (
    ("ccctl simulate schedule.json", "time a schedule on the network it was made for"),
    ("ccctl simulate schedule.json --network profile.json --size 64M", "on another profile, at another size"),
    (
        "ccctl simulate ring.py -p ranks=8 --network ring:8 --bandwidth 50GB/s --size 64M --step 1us",
        "time a program in the chunk language, instructions included",
    ),
)


def simulate(
    schedule: Annotated[
        str,
        typer.Argument(metavar="ARTIFACT", help="A schedule, a program, MSCCL XML or a file.py; - is stdin."),
    ],
    parameters: Parameters = None,
    network: Annotated[
        str | None,
        typer.Option(
            "--network", metavar="NETWORK|FILE", help="What to time it on; as ccctl synth names networks."
        ),
    ] = None,
    alpha: Annotated[
        str | None, typer.Option("--alpha", metavar="TIME", help="Latency of a family's links.")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option("--bandwidth", metavar="RATE", help="Bandwidth of a family's links.")
    ] = None,
    unwind: Unwind = None,
    without: Without = None,
    size: Annotated[str | None, typer.Option("--size", metavar="SIZE", help="Time it for this size.")] = None,
    step: Annotated[
        str, typer.Option("--step", metavar="TIME", help="What each instruction of a program costs.")
    ] = "0.5us",
    rate: Annotated[
        str | None, typer.Option("--threadblock", metavar="RATE", help="What one threadblock can move.")
    ] = None,
    fifo: Annotated[
        int, typer.Option("--fifo", metavar="N", min=1, help="Messages that a connection holds.")
    ] = 2,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Simulate a schedule or a program, congestion included, and compare it with the proven bounds.

    A schedule brings its network and size along. Of a program, which needs both, threadblocks, channels,
    FIFO slots and the overhead of instructions are simulated too, and what binds is said.
    """
    if is_algorithm(schedule):
        read = artifacts.Artifact("program", compiled_algorithm(schedule, parameters)[0], schedule, "")
    else:
        read = artifacts.read(schedule, "schedule", "program")
    if read.kind == "schedule":
        on: Network = read.body.network
        if network is not None:
            on, _ = load_network(network, alpha, bandwidth, unwind=unwind, failed=without)
        elif without is not None:
            from synth.failures import without as left_of

            on = left_of(on, parse_failures(without, on))
        _schedule(read, on, size, json)
        return
    if network is None or size is None:
        raise UsageError(f"{schedule}: a program has no network of its own", hint="Add --network and --size.")
    on, _ = load_network(network, alpha, bandwidth, unwind=unwind, failed=without)
    _program(read.body, on, size, (step, rate, fifo), json)


def _program(
    program: Program, network: Network, size: str, costs: tuple[str, str | None, int], json: bool
) -> None:
    from ccctl.pictures.program import draw_timing
    from synth.bounds import bounds
    from synth.simulate_program import Costs, simulate_program

    step, rate, fifo = costs
    limit = parse_rate(rate, "--threadblock") if rate else float("inf")
    unit = program.collective.total_bytes(1)
    chunk_bytes = max(1, -(-parse_size(size, "--size") // unit))
    timing = simulate_program(
        program, network, chunk_bytes, Costs(parse_seconds(step, "--step"), limit, fifo)
    )
    if timing.time_s == float("inf"):
        raise UsageError(f"{program.name}: it deadlocks with --fifo {fifo}; see ccctl verify")
    proven = bounds(network, program.collective, chunk_bytes)
    percent = 100.0 * min(1.0, proven[0].time_s / timing.time_s) if timing.time_s else 100.0
    values: dict[str, Any] = {
        "time_s": timing.time_s,
        "bound_s": proven[0].time_s,
        "binding_bound": proven[0].name,
        "percent_of_optimal": percent,
        "size_bytes": program.collective.total_bytes(chunk_bytes),
        "instructions": program.steps,
        "busiest_link_percent": 100.0 * float(timing.link_busy.max(initial=0.0)),
        "limited_by": timing.binding,
        **{f"{name}_s": value for name, value in timing.shares.items()},
    }
    if json:
        console.summary(values)
        return
    draw_timing(program, timing)
    console.data(f"{percent:.1f} % of optimal with these chunks, bound: {proven[0].name}")


def _schedule(read: Artifact, on: Network, size: str | None, json: bool) -> None:
    from synth.bounds import bounds
    from synth.simulate import replay, utilization

    moved = _moved(read.body, on, size)
    timing = replay(moved)
    if timing.time_s == float("inf"):
        raise UsageError(
            f"{read.source}: a send starts at a rank that never holds its chunk; see ccctl verify"
        )
    proven = bounds(moved.network, moved.collective, moved.chunk_bytes)
    share = utilization(moved, timing)
    percent = 100.0 * min(1.0, proven[0].time_s / timing.time_s) if timing.time_s else 100.0
    values: dict[str, Any] = {
        "time_s": timing.time_s,
        "bound_s": proven[0].time_s,
        "binding_bound": proven[0].name,
        "percent_of_optimal": percent,
        "size_bytes": moved.collective.total_bytes(moved.chunk_bytes),
        "sends": moved.sends,
        "busiest_link_percent": 100.0 * float(share.max(initial=0.0)),
    }
    if json:
        console.summary(values)
        return
    from ccctl.pictures.schedule import draw

    draw(moved)
    console.data(f"{percent:.1f} % of optimal with these chunks, bound: {proven[0].name}")


def _moved(schedule: Schedule, on: Network, size: str | None) -> Schedule:
    """The same sends on another network, or with chunks for another size."""
    if on is not schedule.network:
        schedule = replace(schedule, network=on, link=_same_links(schedule, on), outcome=None)
    if size is not None:
        unit = schedule.collective.total_bytes(1)
        chunk_bytes = max(1, -(-parse_size(size, "--size") // unit))
        schedule = replace(schedule, chunk_bytes=chunk_bytes, outcome=None)
    return schedule


def _same_links(schedule: Schedule, other: Network) -> Any:
    """The rows of the other network's links between the same ranks."""
    from probes.columns import ints
    from synth.ordering import fastest_links

    if other.ranks != schedule.network.ranks:
        raise UsageError(
            f"--network {other.name}: it has {other.ranks} ranks, the schedule {schedule.network.ranks}"
        )
    rows = fastest_links(other, schedule.chunk_bytes)
    pairs = zip(schedule.network.src.tolist(), schedule.network.dst.tolist(), strict=True)
    moved = [rows.get(pair, -1) for pair in pairs]
    used = sorted(set(schedule.link.tolist()))
    for link in used:
        if moved[link] < 0:
            src, dst = schedule.network.src[link], schedule.network.dst[link]
            raise UsageError(f"--network {other.name}: the schedule uses a link {src}→{dst} that it lacks")
    return ints([moved[link] for link in schedule.link.tolist()])
