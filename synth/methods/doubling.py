"""Recursive doubling, and halving and doubling (Thakur, Rabenseifner, Gropp).

In every step the number of ranks that hold a chunk doubles, or the number that hold a part of its sum halves.

The partner in step s is rank XOR 2^s if the number of ranks is a power of two and these links exist.
Otherwise it is 2^s places round the ring (Bruck). Either way there are ⌈log₂ N⌉ steps. broadcast and reduce
use the binomial tree of these steps.
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

__all__ = ["add_tree", "halving_doubling", "partners", "synthesize"]

_Partner = Callable[[Indices, Indices], Indices]
"""Function from (owner, place) to the rank at this place of the owner's tree; place 0 is the owner."""


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return an all_gather, broadcast or reduce in ⌈log₂ N⌉ steps.

    Raises NotApplicableError for other collectives. O(ranks · chunks) sends.
    """
    if collective.kind not in ("all_gather", "broadcast", "reduce"):
        raise NotApplicableError(f"doubling does not serve {collective.kind}")
    return _paired(network, collective, chunk_bytes, "doubling", seed, 1)


def halving_doubling(
    network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0
) -> Schedule:
    """Return a reduce_scatter by recursive halving, or an all_reduce of it and an all_gather (Rabenseifner).

    Each phase takes ⌈log₂ N⌉ steps and as many bytes as a ring, also if N is no power of two. Raises
    NotApplicableError for other collectives. O(ranks · chunks) sends.
    """
    if collective.kind not in ("reduce_scatter", "all_reduce"):
        raise NotApplicableError(f"halving_doubling does not serve {collective.kind}")
    return _paired(network, collective, chunk_bytes, "halving_doubling", seed, 2 * _steps(network.ranks))


def _paired(
    network: Network, collective: Collective, chunk_bytes: int, method: str, seed: int, period: int
) -> Schedule:
    """Return a schedule of the first pairing whose links exist; laps are ``period`` turns apart."""
    table = link_table(network, chunk_bytes)
    owner, lap = collective.owner_of()
    ranks = network.ranks
    after = _steps(ranks) if collective.reduces else 0
    failures: list[NotApplicableError] = []
    for partner in partners(ranks):
        sends = Sends()
        try:
            if collective.reduces:
                add_tree(sends, table, owner, partner, ranks, REDUCE, lap * period, method)
            if collective.kind not in ("reduce_scatter", "reduce"):
                add_tree(sends, table, owner, partner, ranks, COPY, lap * period + after, method)
        except NotApplicableError as error:
            failures.append(error)
            continue
        return sends.schedule(network, collective, chunk_bytes, method, seed)
    raise failures[0]


def _steps(ranks: int) -> int:
    return (ranks - 1).bit_length()


def partners(ranks: int) -> Iterator[_Partner]:
    """Yield the functions that pair ranks, the better one first."""
    if ranks & (ranks - 1) == 0:
        yield lambda owner, place: owner ^ place
    yield lambda owner, place: (owner - place) % ranks


def add_tree(
    sends: Sends,
    table: Ints,
    owner: Indices,
    partner: _Partner,
    places: int,
    op: int,
    turn: Indices,
    method: str,
) -> None:
    """Add sends of each chunk from its owner to every place by doubling, or back by halving (``REDUCE``).

    ``turn`` is the turn of the first step of each chunk. Raises NotApplicableError if a link is missing.
    """
    chunk, steps = np.arange(len(owner)), _steps(places)
    for step in range(steps):
        place = np.arange(min(1 << step, places - (1 << step)))
        near = partner(owner[:, None], place)
        far = partner(owner[:, None], place + (1 << step))
        src, dst = (far, near) if op == REDUCE else (near, far)
        moment = steps - 1 - step if op == REDUCE else step
        sends.add(chunk[:, None], links_between(table, src, dst, method), op, turn[:, None] + moment)
