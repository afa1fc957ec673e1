"""A periodic schedule as text: its properties and quality, the use of links, the sends of a period."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccctl import console
from ccctl.render import seconds
from ccctl.render.text import sends
from probes.base import format_size, plural

if TYPE_CHECKING:
    from synth.schedules import PeriodicSchedule

__all__ = ["draw"]


def draw(made: PeriodicSchedule, lines: int = 32, *, proven: bool = True) -> None:
    """Print ``made``, timed on its network; at most ``lines`` sends.

    A schedule that is not ``proven`` is printed without times, as they could be wrong.
    """
    from ccctl.render.text import utilization
    from synth.simulation import simulated

    network, each = made.network, len(made.chunk)
    console.data(
        f"{made.collective.label} on {made.collective.ranks_in_words}: {format_size(made.size_bytes)} in "
        f"{plural(made.chunks, 'chunk')} of {format_size(made.chunk_bytes)}"
    )
    console.data(f"network  {network.name}: {network.links} links, {len(network.ports)} shared ports")
    console.data(f"method   {made.method}, seed {made.seed}")
    chunks = plural(made.collective.chunks, "chunk")
    console.data(f"period   {plural(each, 'send')} of {chunks}, repeated {plural(made.periods, 'time')}")
    if proven:
        time_s, outcome = simulated(made).time_s, made.outcome
        console.data(
            f"time     {seconds(time_s)}: a period every {seconds(made.period_s)}, each "
            f"{seconds(made.latency_s)} long"
        )
        if outcome is not None and outcome.bounds:
            console.data(
                f"bound    {seconds(outcome.binding.time_s)} by {outcome.binding.name}: "
                f"{outcome.percent_of_optimal:.1f} % of optimal, {outcome.status}"
            )
        if time_s:
            utilization.draw(network, made.link_busy_s * made.periods / time_s)
    src, dst = network.src[made.link], network.dst[made.link]
    sends.draw(made.chunk, src, dst, made.op, (made.start_s, made.arrival_s) if proven else None, lines)
