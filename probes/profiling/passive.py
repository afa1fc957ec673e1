"""A profile made of the sends of a running job, as its profiler recorded them.

A send also waits for its receiver, so the fastest of each size counts. Alpha is the time of the fastest send
of the smallest size, minus beta times its bytes. Links without sends are not in the profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from probes.base import UsageError, floats, ints
from probes.link_costs import Links, Profile, ProfiledRank
from probes.statistics import fit

__all__ = ["Sends", "passive_profile"]

Sends = Mapping[tuple[int, int], Mapping[int, Sequence[float]]]


def passive_profile(ranks: Sequence[ProfiledRank], sends: Sends, library: str) -> Profile:
    """Return the profile of the links in ``sends``, which maps (src, dst) and bytes to seconds.

    If a link has sends of one size only, its beta is that size's seconds per byte, latency included, and it
    is flagged unsound. Raises UsageError if there are no sends.
    """
    pairs = sorted(pair for pair, sizes in sends.items() if any(sizes.values()))
    if not pairs:
        raise UsageError("no message between two ranks was recorded")
    fits = [fit({size: times for size, times in sends[pair].items() if times}) for pair in pairs]
    alphas = []
    for pair, found in zip(pairs, fits, strict=True):
        size = min(size for size, times in sends[pair].items() if times)
        fastest, middle = min(sends[pair][size]), float(np.median(sends[pair][size]))
        alphas.append([max(0.0, one - size * found.beta_s_per_byte) for one in (fastest, middle)])
    columns = np.array(alphas)
    links = Links(
        ints([src for src, _ in pairs]),
        ints([dst for _, dst in pairs]),
        floats(columns[:, 0]),
        floats(columns[:, 1]),
        floats(columns[:, 1]),
        floats([one.beta_s_per_byte for one in fits]),
        floats([one.beta_median_s_per_byte for one in fits]),
        floats([one.beta_p90_s_per_byte for one in fits]),
        floats([one.beta_low_s_per_byte for one in fits]),
        floats([one.beta_high_s_per_byte for one in fits]),
        floats([one.residual for one in fits]),
        ints([one.samples for one in fits]),
        tuple("" if one.sound else "unsound" for one in fits),
    )
    return Profile(tuple(ranks), links, (), "cuda", library, 0.0, 0)
