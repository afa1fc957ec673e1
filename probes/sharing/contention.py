"""Contention: the throughput that links between hosts lose under concurrent load.

A link waits for others that send through the same trunk at the same time. Its best time may not show that,
because the others may have ended, or may be delayed themselves, at that moment. So medians are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from probes.sampling import Pair, Samples, best_whole, middle_whole, pace

__all__ = ["behind", "disturbed", "held_up", "kept_waiting"]

# A link was kept waiting if its median under concurrent load exceeds the expected time by this factor.
_WAITED = 1.4
# A link was disturbed if it is slower alone than under concurrent load by more than this factor.
_DISTURBED = 1.1
# A link should be as fast as its trunk and its ends allow. One that is slower by this factor was disturbed,
# or is slower itself.
_BEHIND = 1.04


def held_up(beta: Mapping[Pair, float], samples: Samples) -> list[Pair]:
    """Return the links of ``beta`` (s/byte) slower under load than their ends are with other partners.

    The link that lost most comes first. Links that have been measured alone since then are left out.
    """
    ends = _of_ends(beta)
    times = {}
    for pair in beta:
        company_s = middle_whole(samples.trains[pair])
        if pair not in samples.again and company_s is not None:
            times[pair] = company_s / ends[pair]
    return sorted((pair for pair in times if times[pair] > _WAITED), key=lambda pair: (-times[pair], pair))


def kept_waiting(beta: Mapping[Pair, float], samples: Samples) -> dict[Pair, float]:
    """Return the links whose median under load is clearly above their ``beta`` alone, with the factor."""
    gains = {}
    for pair, value in beta.items():
        company_s = middle_whole(samples.trains[pair])
        if pair in samples.again and company_s is not None and company_s > _WAITED * value:
            gains[pair] = company_s / value
    return gains


def disturbed(pairs: Sequence[Pair], samples: Samples) -> list[Pair]:
    """Return the members of ``pairs`` with an unsound fit alone, or slower alone than under load."""
    found = []
    for pair in pairs:
        alone, company_s = best_whole(samples.again[pair]), best_whole(samples.trains[pair])
        slower = alone is not None and company_s is not None and alone > _DISTURBED * company_s
        if slower or not pace(samples.again[pair]).sound:
            found.append(pair)
    return found


def behind(beta: Mapping[Pair, float], trunks: Iterable[Sequence[Pair]], samples: Samples) -> list[Pair]:
    """Return the links of each trunk that are slower than the trunk, their sender and their receiver allow.

    The trunk's rate is the median of its links measured alone.
    """
    ends, found = _of_ends(beta), dict[Pair, None]()
    for pairs in trunks:
        known = [pair for pair in pairs if pair in beta]
        middle = [beta[pair] for pair in known if pair in samples.again] or [beta[pair] for pair in known]
        trunk = float(np.median(middle)) if middle else 0.0
        found |= dict.fromkeys(pair for pair in known if beta[pair] > _BEHIND * max(trunk, ends[pair]))
    return list(found)


def _of_ends(beta: Mapping[Pair, float]) -> dict[Pair, float]:
    """Return for each link the best beta (s/byte) of the slower of its two ends."""
    best_from: dict[int, float] = {}
    best_to: dict[int, float] = {}
    for (src, dst), value in beta.items():
        best_from[src] = min(best_from.get(src, value), value)
        best_to[dst] = min(best_to.get(dst, value), value)
    return {(src, dst): max(best_from[src], best_to[dst]) for src, dst in beta}
