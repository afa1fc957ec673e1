"""Recursive doubling: in every step the ranks that hold a chunk double (Thakur, Rabenseifner, Gropp).

Partners are XOR 2^s where the number of ranks is a power of two, else 2^s places round the ring (Bruck);
either way it takes ⌈log₂ N⌉ steps. broadcast and reduce run over the binomial tree that this makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from probes.columns import Indices, Ints
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks.subnetwork import link_table, links_between
from synth.schedule import COPY, REDUCE, Schedule
from synth.scheduling.list_scheduling import Sends

__all__ = ["Partner", "add_tree", "partners", "synthesize"]

Partner = Callable[[Indices, Indices], Indices]
"""(owner, place) → the rank at this place of the owner's tree; place 0 is the owner."""


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """all_gather, broadcast and reduce in ⌈log₂ N⌉ steps; raises NotApplicableError for others.

    O(ranks · chunks) sends.
    """
    if collective.kind not in ("all_gather", "broadcast", "reduce"):
        raise NotApplicableError(f"doubling does not serve {collective.kind}")
    table = link_table(network, chunk_bytes)
    chunk = np.arange(collective.chunks)
    gathers = collective.kind == "all_gather"
    owner = collective.source_of() if gathers else np.full_like(chunk, collective.root)
    # Chunks of one owner are told apart by their turn: the first goes ahead, the others follow.
    lap = chunk % collective.share
    failures: list[NotApplicableError] = []
    for partner in partners(network.ranks):
        sends = Sends()
        op = REDUCE if collective.reduces else COPY
        try:
            add_tree(sends, table, chunk, owner, partner, op, lap, "doubling")
        except NotApplicableError as error:
            failures.append(error)
            continue
        return sends.schedule(network, collective, chunk_bytes, "doubling", seed)
    raise failures[0]


def partners(ranks: int) -> Iterator[Partner]:
    """The ways to pair ranks, the better first."""
    if ranks & (ranks - 1) == 0:
        yield lambda owner, place: owner ^ place
    yield lambda owner, place: (owner - place) % ranks


def add_tree(
    sends: Sends,
    table: Ints,
    chunk: Indices,
    owner: Indices,
    partner: Partner,
    op: int,
    turn: Indices,
    method: str,
) -> None:
    """Each chunk from its owner to every place by doubling, or by halving from all to it (``REDUCE``).

    ``turn`` is that of the first step of each chunk. Raises NotApplicableError for a link that is missing.
    """
    ranks = len(table)
    steps = (ranks - 1).bit_length()
    for step in range(steps):
        place = np.arange(min(1 << step, ranks - (1 << step)))
        near = partner(owner[:, None], place)
        far = partner(owner[:, None], place + (1 << step))
        src, dst = (far, near) if op == REDUCE else (near, far)
        moment = steps - 1 - step if op == REDUCE else step
        sends.add(chunk[:, None], links_between(table, src, dst, method), op, turn[:, None] + moment)
