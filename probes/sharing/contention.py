"""Contention: the throughput that links between hosts lose under concurrent load.

A link in company with others that cross the same trunk waits for them, while its best moment may show
nothing: then one of the others has ended, or was held back itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from probes.sampling import Pair, Samples, best_whole, middle_whole, pace

__all__ = ["behind", "disturbed", "held_up", "kept_waiting"]

# In the middle of what it did in company a link wanders: further than this, it was kept waiting.
_WAITED = 1.4
# So much slower alone than in company, a link was disturbed when it was measured alone.
_DISTURBED = 1.1
# Links through a trunk are what it and their ends are: further behind, one was disturbed, or is slower still.
_BEHIND = 1.04


def held_up(beta: Mapping[Pair, float], samples: Samples) -> list[Pair]:
    """The links of ``beta`` (s/byte) slower in company than their sender and receiver are elsewhere.

    Those that lost most come first; without those that were measured alone since.
    """
    ends = _of_ends(beta)
    times = {}
    for pair in beta:
        company_s = middle_whole(samples.trains[pair])
        if pair not in samples.again and company_s is not None:
            times[pair] = company_s / ends[pair]
    return sorted((pair for pair in times if times[pair] > _WAITED), key=lambda pair: (-times[pair], pair))


def kept_waiting(beta: Mapping[Pair, float], samples: Samples) -> dict[Pair, float]:
    """The links of ``beta`` faster alone than they mostly were in company, and how many times."""
    gains = {}
    for pair, value in beta.items():
        company_s = middle_whole(samples.trains[pair])
        if pair in samples.again and company_s is not None and company_s > _WAITED * value:
            gains[pair] = company_s / value
    return gains


def disturbed(pairs: Sequence[Pair], samples: Samples) -> list[Pair]:
    """Those of ``pairs``, all measured alone, without a sound fit there, or slower than in company."""
    found = []
    for pair in pairs:
        alone, company_s = best_whole(samples.again[pair]), best_whole(samples.trains[pair])
        slower = alone is not None and company_s is not None and alone > _DISTURBED * company_s
        if slower or not pace(samples.again[pair]).sound:
            found.append(pair)
    return found


def behind(beta: Mapping[Pair, float], trunks: Iterable[Sequence[Pair]], samples: Samples) -> list[Pair]:
    """The links of each trunk that are slower than the trunk, their sender and their receiver let through.

    A trunk lets through what most links do that were measured alone.
    """
    ends, found = _of_ends(beta), dict[Pair, None]()
    for pairs in trunks:
        known = [pair for pair in pairs if pair in beta]
        middle = [beta[pair] for pair in known if pair in samples.again] or [beta[pair] for pair in known]
        trunk = float(np.median(middle)) if middle else 0.0
        found |= dict.fromkeys(pair for pair in known if beta[pair] > _BEHIND * max(trunk, ends[pair]))
    return list(found)


def _of_ends(beta: Mapping[Pair, float]) -> dict[Pair, float]:
    """What the slower end of each link reaches elsewhere, or there."""
    best_from: dict[int, float] = {}
    best_to: dict[int, float] = {}
    for (src, dst), value in beta.items():
        best_from[src] = min(best_from.get(src, value), value)
        best_to[dst] = min(best_to.get(dst, value), value)
    return {(src, dst): max(best_from[src], best_to[dst]) for src, dst in beta}
