"""Parts that add latency: a link's latency is the sum of what the parts on its way add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probes.base import Floats, Indices
from probes.localization.fit import CauseFit, Sum, explain
from probes.localization.links import LinkTable
from probes.localization.normal import noise, normal
from probes.localization.parts import families
from probes.localization.racks import Racks

__all__ = ["Latencies", "latencies", "one_a_pair"]

# The smallest latencies that count as faults, as logarithms of their ratio to the normal latency. Scheduling
# and cable lengths make latencies differ by less, while faults add several times as much. _SHORT_OF_BOUGHT:
# if all normal latencies are over twice the bought latency, they are lowered to what was bought.
_LEAST = {"end": float(np.log(1.35)), "pair": float(np.log(1.5)), "trunk": float(np.log(1.5))}
_SHORT_OF_BOUGHT = float(np.log(2.0))
# The smallest standard deviation of a latency's logarithm: undisturbed round trips vary by a few per cent.
_LEAST_SIGMA = 0.02


@dataclass(frozen=True, eq=False)
class Latencies:
    """Latencies of links (s), one link per pair of ranks, their normal values, and their causes."""

    table: LinkTable
    alpha_s: Floats
    normal_s: Floats
    found: CauseFit


def one_a_pair(table: LinkTable) -> LinkTable:
    """Return the links with a latency, one per pair of ranks: a round trip has no direction."""
    known = np.flatnonzero(np.isfinite(table.alpha))
    low = np.minimum(table.src[known], table.dst[known]).astype(np.int64)
    high = np.maximum(table.src[known], table.dst[known])
    _, first = np.unique(low * len(table.ends.host) + high, return_index=True)
    return table.at(known[np.sort(first)])


def latencies(
    table: LinkTable, classes: Indices, divisions: Sequence[Racks], bought_s: float | None
) -> Latencies:
    """Explain the latencies of ``table``, which has one link a pair of ranks."""
    rack = divisions[0].apart() if divisions else None
    level = -normal(table, -table.alpha, classes, rack)
    if bought_s is not None and level.min() > np.log(bought_s) + _SHORT_OF_BOUGHT:
        fast = table.alpha[table.alpha < np.log(bought_s) + _SHORT_OF_BOUGHT]
        expected = float(np.median(fast)) if len(fast) > 1 else float(np.log(bought_s))
        level = level - level.min() + expected
    # If most round trips wait for cores, the best one may have waited, too. So sigma is at least the
    # jitter.
    sigma = np.maximum(noise(table.alpha - level, _LEAST_SIGMA), table.jitter)
    model = Sum(np.exp(table.alpha), np.exp(level), sigma)
    least = {**_LEAST, "fabric": _SHORT_OF_BOUGHT}
    parts = families(table, divisions, least, directed=False, fabric=bought_s is not None)
    return Latencies(table, model.values, model.normal, explain(model, parts))
