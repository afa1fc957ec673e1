"""AdapCC's active probes (Sec. IV-A): NUMA nodes and PCIe switches of NICs and GPUs, found by contention.

(1) The NUMA node of a NIC is the one with the fastest loopback over the NIC. (2) Two GPUs share a PCIe switch
if a copy of 20 MB from one GPU to the CPU slows down while the other GPU copies over eight streams. (3) GPUs
share a switch with a NIC if their copies slow down while the NIC is busy. Unlike in AdapCC's program, each
alternative is tried at least seven times, in random order, each GPU is timed separately, and the threshold
comes from the trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Protocol

import numpy as np

from probes.base import Floats
from probes.statistics import in_random_order, least, lowered
from probes.topology import Probed

__all__ = ["REPETITIONS", "Copies", "Loopback", "ProbeTrials", "gpu_switches", "nic_numa", "nic_switches"]

# A median of seven trials is right even if three of them are disturbed.
REPETITIONS = 7


class Copies(Protocol):
    """Copies from GPUs to the CPU, each timed separately; GPUs are bus ids."""

    def alone_gbs(self, gpu: str) -> float:
        """Return GB/s of one copy without other traffic."""

    def beside_gbs(self, gpu: str, other: str) -> float:
        """Return GB/s of one copy of ``gpu`` during a longer copy of ``other`` over eight streams."""


class Loopback(Protocol):
    """Traffic that leaves a NIC and returns to it."""

    def refusal(self, nic: str) -> str:
        """Return why such traffic does not reach the NIC; "" if it does."""

    def round_trip_s(self, nic: str, node: int) -> float:
        """Return the seconds of a round trip from a process bound to a NUMA node."""

    def busy(self, nic: str) -> AbstractContextManager[None]:
        """Keep the NIC as busy as possible while the block runs."""


@dataclass(frozen=True)
class ProbeTrials:
    """The number of trials of each alternative, and the seed of their order."""

    repetitions: int = REPETITIONS
    seed: int = 0


def nic_numa(
    nics: Sequence[str], nodes: Sequence[int], loopback: Loopback, trials: ProbeTrials
) -> list[Probed]:
    """Find the NUMA node nearest to each NIC; the answer is "" if nodes differ too little."""
    found = []
    for nic in nics:
        blank = Probed("nic_numa", (nic,), repetitions=trials.repetitions, seed=trials.seed)
        reason = loopback.refusal(nic) or ("there is only one NUMA node" if len(nodes) < 2 else "")
        if reason:
            found.append(replace(blank, reason=reason, repetitions=0))
            continue
        seconds: dict[int, list[float]] = {node: [] for node in nodes}
        for node in in_random_order(nodes, trials.repetitions, trials.seed):
            seconds[node].append(loopback.round_trip_s(nic, node))
        verdict = least({node: np.array(times) for node, times in seconds.items()}, trials.seed)
        measured = {str(node): value for node, value in verdict.median.items()}
        if len(verdict.chosen) != 1:
            reason = "no node is nearer than all others by more than the spread of the trials"
            found.append(replace(blank, reason=reason, measured=measured))
            continue
        (nearest,) = verdict.chosen
        sure = verdict.confidence[nearest]
        found.append(replace(blank, answer=str(nearest), confidence=sure, measured=measured))
    return found


def gpu_switches(gpus: Sequence[str], copies: Copies, trials: ProbeTrials) -> list[Probed]:
    """Find whether each pair of GPUs shares a PCIe switch. Costs N² copies per repetition."""
    blank = Probed("gpu_switch", tuple(gpus), repetitions=trials.repetitions, seed=trials.seed)
    if len(gpus) < 2:
        return [replace(blank, reason=f"it takes two GPUs, and there are {len(gpus)}", repetitions=0)]
    ratios = _ratios_of_pairs(gpus, copies, trials)
    verdict = lowered(ratios, trials.seed)
    return [
        replace(
            blank,
            devices=pair,
            answer="yes" if pair in verdict.chosen else "no",
            confidence=verdict.confidence[pair],
            measured={"ratio": round(verdict.median[pair], 4)},
        )
        for pair in ratios
    ]


def nic_switches(
    gpus: Sequence[str], nics: Sequence[str], copies: Copies, loopback: Loopback, trials: ProbeTrials
) -> list[Probed]:
    """Find the GPUs that share a PCIe switch with each NIC: their copies slow down while the NIC is busy."""
    return [_one_nic(gpus, nic, copies, loopback, trials) for nic in nics]


def _one_nic(
    gpus: Sequence[str], nic: str, copies: Copies, loopback: Loopback, trials: ProbeTrials
) -> Probed:
    blank = Probed("nic_switch", (nic, *gpus), repetitions=trials.repetitions, seed=trials.seed)
    reason = loopback.refusal(nic) if gpus else "it takes a GPU, and there is none"
    if reason:
        return replace(blank, reason=reason, repetitions=0)
    ratios: dict[str, list[float]] = {gpu: [] for gpu in gpus}
    for gpu in in_random_order(gpus, trials.repetitions, trials.seed):
        alone = copies.alone_gbs(gpu)
        with loopback.busy(nic):
            ratios[gpu].append(copies.alone_gbs(gpu) / alone)
    verdict = lowered({gpu: np.array(values) for gpu, values in ratios.items()}, trials.seed)
    measured = {gpu: round(value, 4) for gpu, value in verdict.median.items()}
    if not verdict.chosen:
        reason = "no GPU's copies suffer from the NIC's traffic"
        return replace(blank, reason=reason, measured=measured)
    near = [gpu for gpu in gpus if gpu in verdict.chosen]
    sure = min(verdict.confidence[gpu] for gpu in near)
    return replace(blank, answer=",".join(near), confidence=sure, measured=measured)


def _ratios_of_pairs(
    gpus: Sequence[str], copies: Copies, trials: ProbeTrials
) -> Mapping[tuple[str, str], Floats]:
    """Return each pair's GB/s while both copy over GB/s alone, per repetition; the mean of both GPUs."""
    both = list(combinations(gpus, 2))
    tries = [(gpu, other) for pair in both for gpu, other in (pair, pair[::-1])]
    everything: list[tuple[str, str]] = [*tries, *((gpu, "") for gpu in gpus)]
    found: dict[tuple[str, str], list[float]] = {one: [] for one in everything}
    for gpu, other in in_random_order(everything, trials.repetitions, trials.seed):
        found[gpu, other].append(copies.beside_gbs(gpu, other) if other else copies.alone_gbs(gpu))

    def ratio(gpu: str, other: str) -> Floats:
        return np.array(found[gpu, other]) / np.median(found[gpu, ""])

    return {(a, b): (ratio(a, b) + ratio(b, a)) / 2 for a, b in both}
