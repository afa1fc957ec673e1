"""A symmetric schedule over time: curves for links and ports, a lane for each orbit of links.

All links of an orbit are equally busy at any time, so one lane stands for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ccctl.render.svg import MOST_LANES, held, in_time, slots
from probes.base import plural

if TYPE_CHECKING:
    from ccctl.render.svg import Drawing
    from probes.base import Floats
    from synth.schedules import SymmetricSchedule, Timing

__all__ = ["pictures"]


def pictures(made: SymmetricSchedule, width: int) -> list[Drawing]:
    """Return a picture of the use of links and ports during the listed sends, at most 64 orbits as lanes."""
    from synth.simulation import replay

    if not len(made.chunk):
        return []
    timing = replay(made.quotient)
    if not 0 < timing.time_s < float("inf"):
        return []
    network = made.network
    title = f"{made.collective.label} by {made.method} on {network.name}"
    about = (
        f"{plural(len(made.chunk), 'send')} listed, {network.translations} translates of each: "
        "which share of links and ports is held."
    )
    signs = ["held; of links: each of an orbit", "links, for part of the moment"]
    more = len(network.src) - MOST_LANES
    if more > 0:
        signs.append(f"and {plural(more, 'more orbit')} of links")
    count = slots(width)
    curves, lanes = _curves(made, timing, count), _lanes(made, timing, count)
    return [in_time(title, about, width, timing.time_s, curves, lanes, signs)]


def _curves(made: SymmetricSchedule, timing: Timing, count: int) -> Iterator[tuple[str, Floats]]:
    """Yield the mean over orbits, which is that of all links or ports as orbits are equally large."""
    import numpy as np

    network, rows = made.network, np.arange(len(made.link))
    held_s = network.hold_s(made.chunk_bytes)[made.link]
    yield "links", held(timing, rows, held_s, len(network.src), count)
    if len(network.ports):
        users = np.repeat(rows, np.diff(network.link_port_start)[made.link])
        yield "ports", held(timing, users, held_s[users], len(network.ports), count)


def _lanes(made: SymmetricSchedule, timing: Timing, count: int) -> Iterator[tuple[str, Floats]]:
    import numpy as np

    network = made.network
    held_s = network.hold_s(made.chunk_bytes)
    for link in range(min(len(network.src), MOST_LANES)):
        rows = np.flatnonzero(made.link == link)
        name = f"like {network.src[link]}→{network.dst[link]}"
        yield name, held(timing, rows, np.full(len(rows), held_s[link]), 1, count)
