"""`ccctl simulate`: how long a schedule takes on a network, and what each link does meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccctl import artifacts, console
from ccctl.errors import UsageError
from ccctl.networks import load_network
from ccctl.options import Json, Quiet, Verbose
from ccctl.sizes import parse_size

if TYPE_CHECKING:
    from synth.network import Network
    from synth.schedule import Schedule

__all__ = ["EXAMPLES", "simulate"]

EXAMPLES = (
    ("ccctl simulate schedule.json", "time a schedule on the network it was made for"),
    ("ccctl simulate schedule.json --network profile.json --size 64M", "on another profile, at another size"),
)


def simulate(
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="A schedule artifact; - is stdin.")],
    network: Annotated[
        str | None,
        typer.Option("--network", metavar="FILE", help="Time it on this profile or topology instead."),
    ] = None,
    size: Annotated[
        str | None, typer.Option("--size", metavar="SIZE", help="Time it for this size instead.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Simulate a schedule, congestion included, and compare it with the proven bounds."""
    from synth.bounds import bounds
    from synth.simulate import replay, utilization

    read: Schedule = artifacts.read(schedule, "schedule").body
    moved = _moved(read, network, size)
    timing = replay(moved)
    if timing.time_s == float("inf"):
        raise UsageError(f"{schedule}: a send starts at a rank that never holds its chunk; see ccctl verify")
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


def _moved(schedule: Schedule, network: str | None, size: str | None) -> Schedule:
    """The same sends on another network, or with chunks for another size."""
    if network is not None:
        other, _ = load_network(network, None, None)
        schedule = replace(schedule, network=other, link=_same_links(schedule, other), outcome=None)
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
