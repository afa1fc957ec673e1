"""What the alpha-beta model expects of a schedule at a size, on its own network or on another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.columns import floats
from probes.errors import UsageError
from synth.network import Network
from synth.schedule import Schedule
from synth.simulate import replay

__all__ = ["onto", "predicted_s"]


def onto(schedule: Schedule, network: Network) -> Schedule:
    """The same sends, with each link's costs taken from the same link of ``network``.

    Parallel links of a pair take those of its first one. Raises UsageError where the numbers of
    ranks differ or ``network`` lacks a link that the schedule uses.
    """
    if network.ranks != schedule.network.ranks:
        raise UsageError(
            f"the schedule is for {schedule.network.ranks} ranks, {network.name} has {network.ranks}"
        )
    pairs = zip(network.src.tolist(), network.dst.tolist(), strict=True)
    row_of = {pair: row for row, pair in reversed(list(enumerate(pairs)))}
    own = schedule.network
    rows = [row_of.get(pair, -1) for pair in zip(own.src.tolist(), own.dst.tolist(), strict=True)]
    lacking = [link for link in np.unique(schedule.link).tolist() if rows[link] < 0]
    if lacking:
        link = lacking[0]
        raise UsageError(
            f"the schedule sends from rank {own.src[link]} to {own.dst[link]}, "
            f"for which {network.name} has no link"
        )
    taken = np.array(rows)
    costs = replace(
        own,
        alpha_s=floats(np.where(taken < 0, own.alpha_s, network.alpha_s[taken])),
        beta_s_per_byte=floats(np.where(taken < 0, own.beta_s_per_byte, network.beta_s_per_byte[taken])),
    )
    return replace(schedule, network=costs)


def predicted_s(schedule: Schedule, chunk_bytes: int) -> float:
    """Seconds that the schedule takes with chunks of ``chunk_bytes``."""
    return replay(schedule, chunk_bytes=max(1, chunk_bytes)).time_s
