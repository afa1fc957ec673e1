"""The judge of a groups artifact: it computes matrices, consensus and time from their definitions alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from probes.base import Floats, Indices, plural
from synth.groups import Division, Groups

__all__ = ["GroupsVerdict", "examine_groups", "lemma_holds_from"]

# The tolerance of claimed values: absolute for rho and the distance, relative for the time.
_TOLERANCE = 1e-6
# The largest number that counts as a rounding error.
_ROUNDING = 1e-9
# The largest 2-norm that counts as zero: powers of a nilpotent matrix are zero except for rounding.
_VANISHING = 1e-13
# The most periods after which the lemma is tried; each takes two singular value decompositions.
_MOST_POWERS = 32
# The patterns in which a representative speaks for its rack.
_REPRESENTED = ("representatives", "alternating")


@dataclass(frozen=True)
class GroupsVerdict:
    """Findings, cautions, and the number of periods from which Lemma IV.1 is proven."""

    findings: tuple[str, ...]
    cautions: tuple[str, ...]
    lemma_from: int | None


def examine_groups(groups: Groups) -> GroupsVerdict:
    """Return the verdict on groups whose fields are consistent (``problems`` finds nothing).

    Matrices must be doubly stochastic. Rho and the distance must be those of the product of the matrices, and
    the values of rank 0 must reach every rank. The time must follow from the network. The rules of Sec. III-B
    must hold: a rack has one representative at a time, which has no slow NIC unless all NICs of the rack are
    slow, and the representative of a slow rack is in a group of two.
    """
    product = np.eye(groups.ranks)
    findings: list[str] = []
    for number, division in enumerate(groups.iterations):
        matrix, mixed = np.zeros((groups.ranks, groups.ranks)), np.empty_like(product)
        for group in division:
            matrix[np.ix_(group, group)] = 1 / len(group)
            # The group's rows of the matrix are equal, so one is multiplied for all.
            mixed[list(group)] = np.full(len(group), 1 / len(group)) @ product[list(group)]
        sums = np.concatenate((matrix.sum(axis=0), matrix.sum(axis=1)))
        if np.abs(sums - 1).max() > _ROUNDING or (matrix < 0).any():
            findings.append(f"iteration {number}: its mixing matrix is not doubly stochastic")
        product = mixed
    findings += _consensus(groups, product)
    findings += _time(groups)
    if groups.pattern in _REPRESENTED:
        findings += _rules(groups)
    lemma_from = None if findings else lemma_holds_from(product, groups.rho)
    return GroupsVerdict(tuple(findings), tuple(_cautions(groups)), lemma_from)


def _time(groups: Groups) -> Iterator[str]:
    network, ranks = groups.network, groups.ranks
    travel_s = network.travel_s(max(1, groups.size_bytes // groups.layers))
    link = np.full((ranks, ranks), -1)
    # The fastest of parallel links is written last and stays.
    slowest_first = np.argsort(-travel_s, kind="stable")
    link[network.src[slowest_first], network.dst[slowest_first]] = slowest_first
    apart = np.argwhere((link < 0) & ~np.eye(ranks, dtype=bool))
    if len(apart):
        src, dst = apart[0].tolist()
        yield f"{network.name}: expected a link from each rank to each other, found none from {src} to {dst}"
        return
    predicted_s = sum(_iteration_s(groups, division, link) for division in groups.iterations) / groups.period
    if abs(predicted_s - groups.predicted_s) > _TOLERANCE * predicted_s:
        yield f"predicted_s: the file says {groups.predicted_s:g} s, its network takes {predicted_s:g} s"


def _iteration_s(groups: Groups, division: Division, link: Indices) -> float:
    """Return when the last group has averaged; all groups run at once, each as a ring in the order of racks.

    For each layer, a ring of n ranks takes 2(n − 1) steps with messages of 1/n of the layer's bytes; a step
    has the highest latency of the ring's links. The bytes take as long as on the ring's busiest link or port,
    which also carries the bytes of other rings.
    """
    network = groups.network
    place = {rank: at for at, rank in enumerate(rank for rack in groups.racks for rank in rack)}
    rings = [sorted(group, key=place.__getitem__) for group in division if len(group) > 1]
    busy_s = np.zeros(network.links + len(network.ports))
    paths, parts = [], []
    for ring in rings:
        rows = link[ring, ring[1:] + ring[:1]]
        row, port = network.ports_along(rows)
        held = np.append(rows, network.links + port)
        held_s = network.beta_s_per_byte[np.append(rows, rows[row])] * groups.size_bytes
        np.add.at(busy_s, held, held_s * 2 * (len(ring) - 1) / len(ring))
        paths.append(held)
        parts.append(2 * (len(ring) - 1) * groups.layers * network.alpha_s[rows].max())
    return max(
        (float(part + busy_s[held].max()) for part, held in zip(parts, paths, strict=True)), default=0.0
    )


def lemma_holds_from(product: Floats, rho: float) -> int | None:
    """Return the number of periods from which Lemma IV.1 is proven; None if it is for none up to 32.

    The lemma bounds the squared error of every rank after k periods by rho^k · ‖X₀‖². It holds for all k ≥ m
    if the 2-norms of the error's powers m to 2m − 1 satisfy it, because any k ≥ m is a sum of such numbers.
    ``product`` is the product of a period's matrices.
    """
    power = error = product - 1.0 / len(product)
    keeps = list[bool]()
    for exponent in range(1, 2 * _MOST_POWERS):
        squared = float(np.linalg.norm(power, 2)) ** 2
        keeps.append(squared <= (rho**exponent * (1 + 1e-9) if rho else _VANISHING**2))
        first = (exponent + 1) // 2
        if exponent % 2 and all(keeps[first - 1 :]):
            return first
        power = power @ error
    return None


def _consensus(groups: Groups, product: Floats) -> Iterator[str]:
    """Yield findings on consensus: ranks that rank 0 never reaches, or a wrong rho or distance."""
    connected = np.eye(groups.ranks, dtype=bool)
    for group in {group for division in groups.iterations for group in division}:
        connected[np.ix_(group, group)] = True
    party = connected_components(csr_array(connected), directed=False)[1]
    if len(apart := np.flatnonzero(party != party[0])):
        yield f"rho is 1: rank {apart[0]} never hears of rank 0, so their replicas never agree"
        return
    error = product - np.full_like(product, 1 / groups.ranks)
    rho, distance = (
        float(np.abs(np.linalg.eigvals(error)).max()),
        float(np.linalg.svd(error, compute_uv=False)[0]),
    )
    # The eigenvalues of a nilpotent matrix are 0, but computed ones are roots of rounding errors.
    vanishes = float(np.abs(np.linalg.matrix_power(error, 4)).max()) < _ROUNDING
    for name, claimed, found in (("rho", groups.rho, rho), ("distance", groups.distance, distance)):
        is_close = abs(claimed - found) <= _TOLERANCE or (name == "rho" and vanishes and claimed <= found)
        if not is_close:
            yield f"{name}: the file says {claimed:g}, the product of its matrices has {found:g}"


def _rules(groups: Groups) -> Iterator[str]:
    rack_of = {rank: number for number, rack in enumerate(groups.racks) for rank in rack}
    whole_slow = {number for number, rack in enumerate(groups.racks) if set(rack) <= set(groups.slow_ranks)}
    for number, division in enumerate(groups.iterations):
        crossing = [group for group in division if len({rack_of[rank] for rank in group}) > 1]
        senders = Counter(rack_of[rank] for group in crossing for rank in group)
        for rack, count in senders.items():
            if count > 1:
                yield f"iteration {number}: rack {rack} has {count} representatives, which share its trunk"
        for group in crossing:
            for rank in group:
                if rank in groups.slow_ranks and rack_of[rank] not in whole_slow:
                    yield f"iteration {number}: rank {rank} represents its rack although its NIC is slow"
            slow = [rack_of[rank] for rank in group if rack_of[rank] in groups.slow_racks]
            if slow and len(group) > 2:
                yield f"iteration {number}: slow rack {slow[0]} is in an inter-rack group of {len(group)}"


def _cautions(groups: Groups) -> Iterator[str]:
    alone = Counter(group[0] for division in groups.iterations for group in division if len(group) == 1)
    if alone:
        rank, times = alone.most_common(1)[0]
        yield (
            f"{plural(len(alone), 'rank')} average alone in some iterations, rank {rank} in {times} of "
            f"{plural(groups.period, 'iteration')}"
        )
