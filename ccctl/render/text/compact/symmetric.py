"""A symmetric schedule as text: its properties and quality, the use of links, the first listed sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccctl import console
from ccctl.render import percent, seconds
from ccctl.render.text import sends
from probes.base import format_size, plural

if TYPE_CHECKING:
    from synth.schedules import SymmetricSchedule

__all__ = ["draw"]


def draw(made: SymmetricSchedule, lines: int = 32, *, proven: bool = True) -> None:
    """Print ``made``, timed on its network; at most ``lines`` sends.

    A schedule that is not ``proven`` is printed without times, as they could be wrong.
    """
    from synth.simulation import simulated

    network, shape = made.network, made.collective
    console.data(
        f"{shape.label} on {shape.ranks_in_words}: {format_size(shape.total_bytes(made.chunk_bytes))} in "
        f"{plural(shape.chunks, 'chunk')} of {format_size(made.chunk_bytes)}"
    )
    ports = f"{len(network.ports) * network.translations} shared ports"
    console.data(f"network  {network.name}: {network.links} links, {ports}")
    console.data(f"method   {made.method}, seed {made.seed}")
    digits = "x".join(
        f"{size}*" if axis in network.axes else str(size) for axis, size in enumerate(network.sizes)
    )
    console.data(
        f"orbits   {plural(len(made.chunk), 'send')} listed, {network.translations} translates of each: "
        f"digits {digits}, those with * are shifted"
    )
    timing = simulated(made) if proven else None
    if timing is not None:
        outcome = made.outcome
        console.data(f"time     {seconds(timing.time_s)}")
        if outcome is not None and outcome.bounds:
            console.data(
                f"bound    {seconds(outcome.binding.time_s)} by {outcome.binding.name}: "
                f"{outcome.percent_of_optimal:.1f} % of optimal, {outcome.status}"
            )
        if timing.time_s:
            busy = made.busy_s / timing.time_s
            console.data(
                f"busy     links and ports of an orbit {percent(float(busy.mean()))} of the time, the "
                f"busiest {percent(float(busy.max()))}"
            )
    src = network.moved(network.src[made.link[:lines]], made.shift[:lines])
    dst = network.moved(network.dst[made.link[:lines]], made.shift[:lines])
    times_s = None if timing is None else (timing.start_s, timing.arrival_s)
    sends.draw(made.chunk, src, dst, made.op, times_s, lines)
