"""Recursive halving and doubling: reduce_scatter, and all_reduce as that and then all_gather (Rabenseifner).

Each takes ⌈log₂ N⌉ steps and as many bytes as a ring, also where N is no power of two.
"""

from __future__ import annotations

import numpy as np

from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.methods.doubling import add_tree, partners
from synth.network import Network
from synth.networks.subnetwork import link_table
from synth.schedule import COPY, REDUCE, Schedule
from synth.scheduling.list_scheduling import Sends

__all__ = ["synthesize"]


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """reduce_scatter and all_reduce; raises NotApplicableError for others. O(ranks · chunks) sends."""
    if collective.kind not in ("reduce_scatter", "all_reduce"):
        raise NotApplicableError(f"halving_doubling does not serve {collective.kind}")
    table = link_table(network, chunk_bytes)
    ranks = network.ranks
    chunk = np.arange(collective.chunks)
    scatters = collective.kind == "reduce_scatter"
    owner = collective.target_of() if scatters else chunk % ranks
    steps = (ranks - 1).bit_length()
    lap = (chunk % collective.share if scatters else chunk // ranks) * 2 * steps
    failures: list[NotApplicableError] = []
    for partner in partners(ranks):
        sends = Sends()
        try:
            add_tree(sends, table, chunk, owner, partner, REDUCE, lap, "halving_doubling")
            if not scatters:
                add_tree(sends, table, chunk, owner, partner, COPY, lap + steps, "halving_doubling")
        except NotApplicableError as error:
            failures.append(error)
            continue
        return sends.schedule(network, collective, chunk_bytes, "halving_doubling", seed)
    raise failures[0]
