"""A schedule as text: its properties and quality, the busy times of ranks and links, its sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccctl import console
from ccctl.render import bars, percent, race_lines, seconds
from ccctl.render.text import sends
from probes.base import format_size, plural

if TYPE_CHECKING:
    from probes.base import Floats
    from synth.schedules import Schedule, Timing

__all__ = ["draw"]

_SLOTS = 64


def draw(schedule: Schedule, lines: int = 32, *, proven: bool = True) -> None:
    """Print ``schedule``, timed on its own network; at most ``lines`` ranks and sends.

    A schedule that is not ``proven`` is printed without times, as they could be wrong.
    """
    from ccctl.render.text import utilization as busy
    from synth.simulation import replay, utilization
    from synth.streams import divided

    if not proven:
        _head(schedule, None)
        _sends(schedule, None, lines)
        return
    timing = replay(schedule)
    _head(schedule, timing)
    if schedule.sends and timing.time_s:
        apart = divided(schedule)
        _timeline(apart, timing, lines)
        _busy_over_time(apart, timing)
        busy.draw(schedule.network, utilization(schedule, timing))
    _sends(schedule, timing, lines)


def _head(schedule: Schedule, timing: Timing | None) -> None:
    network, collective, outcome = schedule.network, schedule.collective, schedule.outcome
    size = collective.total_bytes(schedule.chunk_bytes)
    reduces = int((schedule.op != 0).sum())
    console.data(
        f"{collective.label} on {collective.ranks_in_words}: {format_size(size)} in "
        f"{plural(collective.chunks, 'chunk')} of {format_size(schedule.chunk_bytes)}"
    )
    console.data(f"network  {network.name}: {network.links} links, {len(network.ports)} shared ports")
    console.data(f"method   {schedule.method}, seed {schedule.seed}")
    streams = plural(int(schedule.stream.max(initial=-1)) + 1, "stream")
    told = f", in {streams} that share links and ports" if len(schedule.stream) else ""
    console.data(f"sends    {schedule.sends}: {reduces} reduce, {schedule.sends - reduces} copy{told}")
    if timing is None:
        return
    console.data(f"time     {seconds(timing.time_s)}")
    if outcome is not None and outcome.bounds:
        bound = outcome.binding
        detail = f" ({bound.detail})" if bound.detail else ""
        console.data(
            f"bound    {seconds(bound.time_s)} by {bound.name}{detail}: "
            f"{outcome.percent_of_optimal:.1f} % of optimal"
        )
    if schedule.race is not None:
        for line in race_lines(schedule.race):
            console.data(line)


def _timeline(schedule: Schedule, timing: Timing, lines: int) -> None:
    import numpy as np

    network = schedule.network
    held_s = network.hold_s(schedule.chunk_bytes)[schedule.link]
    first = _slot(timing.start_s, timing.time_s)
    last = _slot(timing.start_s + held_s, timing.time_s)
    doing = np.zeros((network.ranks, _SLOTS), dtype=np.int8)
    for rows, bit in ((network.src[schedule.link], 1), (network.dst[schedule.link], 2)):
        for rank, begin, end in zip(rows, first, last, strict=True):
            doing[rank, begin : end + 1] |= bit
    console.data("")
    console.data(f"time     0 to {seconds(timing.time_s)}; s sends, r receives, # both, . idle")
    for rank in range(min(lines, network.ranks)):
        console.data(f"rank {rank:<4}{''.join('.sr#'[state] for state in doing[rank])}")
    sends.left_out(network.ranks, lines, "ranks")


def _slot(moment_s: Floats, total_s: float) -> list[int]:
    import numpy as np

    finite = np.nan_to_num(moment_s / total_s * _SLOTS, posinf=_SLOTS)
    # A send that ends at the border of a slot does not occupy the next slot.
    found: list[int] = np.clip(np.ceil(finite - 1e-9) - 1, 0, _SLOTS - 1).astype(int).tolist()
    return found


def _busy_over_time(schedule: Schedule, timing: Timing) -> None:
    """Print the share of links in use over time."""
    from ccctl.render.text.utilization import over_time

    held_s = schedule.network.hold_s(schedule.chunk_bytes)[schedule.link]
    share = over_time(timing.start_s, timing.start_s + held_s, timing.time_s, _SLOTS, schedule.network.links)
    console.data(f"links    {bars(share)}")
    console.data(f"         busy at once: at most {percent(share.max())} of the links")


def _sends(schedule: Schedule, timing: Timing | None, lines: int) -> None:
    src, dst = schedule.network.src[schedule.link], schedule.network.dst[schedule.link]
    times_s = None if timing is None else (timing.start_s, timing.arrival_s)
    sends.draw(schedule.chunk, src, dst, schedule.op, times_s, lines)
