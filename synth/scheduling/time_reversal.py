"""Reversal in time: a schedule that copies becomes one that reduces on the transposed network.

A reduce_scatter is an all_gather backwards, and a reduce is a broadcast backwards (TACOS Sec. IV);
``Collective.reversal`` gives the pairs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.base import Floats, Indices, bytes_of, ints
from synth.collective import Collective
from synth.network import Network
from synth.schedules import REDUCE, Schedule
from synth.simulation import replay

__all__ = ["backwards", "reversed_in_time"]


def backwards(arrival_s: Floats) -> Indices:
    """Return the rows of sends backwards in time: the last arrival goes first."""
    return np.argsort(-arrival_s, kind="stable")


def reversed_in_time(schedule: Schedule, network: Network, collective: Collective) -> Schedule:
    """Return ``schedule`` reversed in time, for ``network`` and ``collective``.

    ``schedule`` must be made for the transpose of ``network``. O(sends · log sends).
    """
    order = backwards(replay(schedule).arrival_s)
    return replace(
        schedule,
        network=network,
        collective=collective,
        chunk=ints(schedule.chunk[order]),
        link=ints(schedule.link[order]),
        op=bytes_of(np.full(schedule.sends, REDUCE)),
    )
