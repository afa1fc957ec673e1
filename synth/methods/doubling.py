"""Recursive doubling, and halving and doubling (Thakur, Rabenseifner, Gropp).

In every step the ranks that hold a chunk double, or those that hold a part of its sum halve.

Partners are XOR 2^s where the number of ranks is a power of two, else 2^s places round the ring (Bruck);
either way it takes ⌈log₂ N⌉ steps. broadcast and reduce run over the binomial tree that this makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from probes.base import Indices, Ints
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import link_table, links_between
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling import Sends

__all__ = ["halving_doubling", "synthesize"]

_Partner = Callable[[Indices, Indices], Indices]
"""(owner, place) → the rank at this place of the owner's tree; place 0 is the owner."""


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """all_gather, broadcast and reduce in ⌈log₂ N⌉ steps; raises NotApplicableError for others.

    O(ranks · chunks) sends.
    """
    if collective.kind not in ("all_gather", "broadcast", "reduce"):
        raise NotApplicableError(f"doubling does not serve {collective.kind}")
    return _paired(network, collective, chunk_bytes, "doubling", seed, 1)


def halving_doubling(
    network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0
) -> Schedule:
    """reduce_scatter by recursive halving, and all_reduce as that and then all_gather (Rabenseifner).

    Each takes ⌈log₂ N⌉ steps and as many bytes as a ring, also where N is no power of two. Raises
    NotApplicableError for others. O(ranks · chunks) sends.
    """
    if collective.kind not in ("reduce_scatter", "all_reduce"):
        raise NotApplicableError(f"halving_doubling does not serve {collective.kind}")
    return _paired(network, collective, chunk_bytes, "halving_doubling", seed, 2 * _steps(network.ranks))


def _paired(
    network: Network, collective: Collective, chunk_bytes: int, method: str, seed: int, period: int
) -> Schedule:
    """By the first way to pair ranks for which all links are there; laps are ``period`` turns apart."""
    table = link_table(network, chunk_bytes)
    owner, lap = collective.owner_of()
    after = _steps(network.ranks) if collective.reduces else 0
    failures: list[NotApplicableError] = []
    for partner in _partners(network.ranks):
        sends = Sends()
        try:
            if collective.reduces:
                _add_tree(sends, table, owner, partner, REDUCE, lap * period, method)
            if collective.kind not in ("reduce_scatter", "reduce"):
                _add_tree(sends, table, owner, partner, COPY, lap * period + after, method)
        except NotApplicableError as error:
            failures.append(error)
            continue
        return sends.schedule(network, collective, chunk_bytes, method, seed)
    raise failures[0]


def _steps(ranks: int) -> int:
    return (ranks - 1).bit_length()


def _partners(ranks: int) -> Iterator[_Partner]:
    """The ways to pair ranks, the better first."""
    if ranks & (ranks - 1) == 0:
        yield lambda owner, place: owner ^ place
    yield lambda owner, place: (owner - place) % ranks


def _add_tree(
    sends: Sends, table: Ints, owner: Indices, partner: _Partner, op: int, turn: Indices, method: str
) -> None:
    """Each chunk from its owner to every place by doubling, or by halving from all to it (``REDUCE``).

    ``turn`` is that of the first step of each chunk. Raises NotApplicableError for a link that is missing.
    """
    ranks, chunk = len(table), np.arange(len(owner))
    steps = _steps(ranks)
    for step in range(steps):
        place = np.arange(min(1 << step, ranks - (1 << step)))
        near = partner(owner[:, None], place)
        far = partner(owner[:, None], place + (1 << step))
        src, dst = (far, near) if op == REDUCE else (near, far)
        moment = steps - 1 - step if op == REDUCE else step
        sends.add(chunk[:, None], links_between(table, src, dst, method), op, turn[:, None] + moment)
