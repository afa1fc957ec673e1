"""Plans NCCL's settings by size, for links whose rates differ from NCCL's assumptions.

NCCL chooses by its model of time, at the rates that the hardware declares. This module evaluates the same
model at the rates of NCCL's rings and trees on the real links. If both rates agree, NCCL's choice is the best
by construction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from probes.base import UsageError, floats
from synth.collective import Kind
from synth.nccl_tuning.cost_model import BusRates, NcclWorld, times_us
from synth.network import Network
from synth.rank_order import algorithm_of, pattern_time_s

__all__ = ["SizeChoice", "TuningPlan", "plan_tuning"]

# The rates are computed from the time of a buffer of this size, of which latency is a small part.
_LARGE_BYTES = 1 << 32
# A setting replaces NCCL's choice only if it is at least 1.02 times as fast, as in `ccctl tune`.
_LEAST_GAIN = 1.02
# Microseconds of a hop with Simple in NCCL's model, over NVLink and over a network.
_SIMPLE_INTRA_US, _SIMPLE_INTER_US = 3.4, 14.0


@dataclass(frozen=True)
class SizeChoice:
    """The setting that NCCL takes for a size, and the fastest setting, with their times on these links."""

    size_bytes: int
    default: str
    best: str
    default_us: float
    best_us: float

    @property
    def gain(self) -> float:
        """Predicted speed relative to NCCL's choice."""
        return self.default_us / self.best_us


@dataclass(frozen=True)
class TuningPlan:
    """The choices for each collective, in order of size; where the gain is small, ``best`` is the default."""

    world: NcclWorld
    believed: BusRates
    real: BusRates
    choices: dict[Kind, tuple[SizeChoice, ...]]

    @property
    def most_gain(self) -> float:
        return max((one.gain for found in self.choices.values() for one in found), default=1.0)

    @property
    def changed(self) -> int:
        """Number of sizes at which another setting than NCCL's is the fastest."""
        return sum(one.best != one.default for found in self.choices.values() for one in found)


def plan_tuning(
    network: Network,
    world: NcclWorld,
    sizes: Sequence[int],
    *,
    believed: Network | None = None,
    order: Sequence[int] | None = None,
) -> TuningPlan:
    """Return NCCL's choice and the fastest setting for each size of all_reduce, all_gather, reduce_scatter.

    ``believed`` is the network with the rates that NCCL assumes; by default each link has the rate of the
    fastest one of its kind (within a host, between hosts). ``order[i]`` is the rank at place i of the rings
    and trees. Raises UsageError if hosts have different numbers of ranks.
    """
    if world.ranks % world.hosts:
        raise UsageError(f"{network.name}: NCCL's model needs equally many ranks on all hosts")
    thought = rates_of(_as_fast_as_the_fastest(network) if believed is None else believed)
    real = rates_of(network, order)
    # NCCL assumes only the latencies of its own model.
    thought = replace(thought, more_intra_us=0.0, more_inter_us=0.0)
    kinds: tuple[Kind, ...] = ("all_reduce", "all_gather", "reduce_scatter")
    choices = {kind: tuple(_choice(kind, world, thought, real, size) for size in sizes) for kind in kinds}
    return TuningPlan(world, thought, real, choices)


def rates_of(network: Network, order: Sequence[int] | None = None) -> BusRates:
    """Return the rates of NCCL's rings and trees, and the latencies that NCCL's model lacks."""
    ranks = network.ranks
    ring_s, tree_s = (
        pattern_time_s(network, algorithm_of(f"nccl:{name}", "all_reduce"), _LARGE_BYTES, order)
        for name in ("ring", "tree")
    )
    within = network.within_host
    alpha_us = network.alpha_s * 1e6
    intra, inter = (float(np.median(alpha_us[rows])) if rows.any() else 0.0 for rows in (within, ~within))
    return BusRates(
        2 * (ranks - 1) / ranks * _LARGE_BYTES / ring_s / 1e9,
        2 * _LARGE_BYTES / tree_s / 1e9,
        max(0.0, intra - _SIMPLE_INTRA_US),
        max(0.0, inter - _SIMPLE_INTER_US),
    )


def _as_fast_as_the_fastest(network: Network) -> Network:
    within, beta = network.within_host, network.beta_s_per_byte.copy()
    for rows in (within, ~within):
        if rows.any():
            beta[rows] = beta[rows].min()
    return replace(network, beta_s_per_byte=floats(beta))


def _choice(kind: Kind, world: NcclWorld, thought: BusRates, real: BusRates, size_bytes: int) -> SizeChoice:
    believed = times_us(kind, world, thought, size_bytes)
    default = min(believed, key=lambda setting: believed[setting])
    times = times_us(kind, world, real, size_bytes)
    best = min(times, key=lambda setting: times[setting])
    if times[default] < _LEAST_GAIN * times[best]:
        best = default
    return SizeChoice(size_bytes, default, best, times[default], times[best])
