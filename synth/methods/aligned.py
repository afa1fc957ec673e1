"""Aligned: sums in the order of the aligned tree (`synth.collective`), made where links are least busy.

A rank that makes a sum receives the parts separately and adds them up in the tree's order, so parts may also
pass through ranks that add nothing. `synth.routing.sum_trees` chooses the rank that makes each sum. In an
all_reduce the results then take trees of least congestion, chosen with the same loads, or the ways of the
parts backwards, which take no more latency than these.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from probes.base import Floats, Indices, Ints, UsageError
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.routing import ETA, Resources, SumTree, aligned_tree, batch_of, grow, place_sums, resources
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling import SendsOfParts, justified
from synth.simulation import replay

__all__ = ["synthesize"]

# The most ranks: the search takes the cube of their number.
_MOST_RANKS = 256
# The longest path that is stored, and the most links of all chunks.
_MOST_HOPS, _MOST_STORED = 64, 1 << 26
# The price of latency in a second search: the price of time on a link half as busy as the busiest.
_LATENCY = float(np.exp(ETA / 2))
# The second search is made if a chunk's latency exceeds this share of its time on a link.
_NOTICEABLE = 0.05
# The addend that stands for a rank's own part.
_OWN = -1


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return a schedule of a reducing collective whose sums all follow the aligned tree.

    Raises NotApplicableError for other collectives and on too many ranks, UsageError if a rank cannot be
    reached. O(ranks³ · chunks).
    """
    if collective.sum_order != "aligned" or not bool(np.all(collective.reduced)):
        raise NotApplicableError(f"aligned serves only sums in a fixed order, not {collective.label}")
    if network.ranks > _MOST_RANKS:
        raise NotApplicableError(f"aligned is for at most {_MOST_RANKS} ranks")
    slow = bool((network.alpha_s > _NOTICEABLE * network.hold_s(chunk_bytes)).any())
    searches: list[tuple[float, Indices | None]] = [(0.0, None)]
    if slow:
        searches.append((_LATENCY, None))
        opposite = _opposite(network) if collective.kind == "all_reduce" else None
        if opposite is not None:
            searches.append((_LATENCY, opposite))
    found = [_Search(network, collective, chunk_bytes, *search, seed).schedule() for search in searches]
    return min(found, key=lambda schedule: replay(schedule).time_s)


def _opposite(network: Network) -> Indices | None:
    """Return for each link one in the other direction, whatever it costs; None if some link has none."""
    forward = np.lexsort((network.beta_s_per_byte, network.dst, network.src))
    backward = np.lexsort((network.beta_s_per_byte, network.src, network.dst))
    there, back = (
        np.stack((network.src, network.dst))[:, forward],
        np.stack((network.dst, network.src))[:, backward],
    )
    if not np.array_equal(there, back):
        return None
    found = np.empty(network.links, np.int64)
    found[forward] = backward
    return found


@dataclass
class _Search:
    """The search for one schedule; ``load_s`` has the loads of links, then of ports.

    If ``opposite`` has the opposite link of each link, complete sums go the ways of their parts backwards.
    """

    network: Network
    collective: Collective
    chunk_bytes: int
    latency: float
    opposite: Indices | None
    seed: int
    sends: SendsOfParts = field(default_factory=SendsOfParts)

    def schedule(self) -> Schedule:
        network, sources = self.network, self.collective.sources
        through = resources(network, self.chunk_bytes, self.latency)
        load_s = np.zeros(network.links + len(network.ports))
        roots = self._roots()
        for group in np.unique(sources.group):
            chunks = np.flatnonzero(sources.group == group)
            self._sum_up(through, chunks, roots[chunks], load_s)
        for chunk in range(self.collective.chunks if self.opposite is None else 0):
            self._spread(through, chunk, int(roots[chunk]), load_s)
        made = self.sends.schedule(network, self.collective, self.chunk_bytes, "aligned", self.seed)
        return justified(made)

    def _roots(self) -> Indices:
        """Return the rank at which each sum becomes complete; several targets take turns."""
        targets = self.collective.targets
        found = [targets.of(chunk) for chunk in range(self.collective.chunks)]
        return np.array([ranks[chunk % len(ranks)] for chunk, ranks in enumerate(found)], np.int64)

    def _sum_up(self, through: Resources, chunks: Indices, roots: Indices, load_s: Floats) -> None:
        """Add the sends of all sums of ``chunks``, which have the same sources, and of their ways back."""
        tree = aligned_tree(self.collective.sources.of(int(chunks[0])))
        ranks, nodes = self.network.ranks, 2 * len(tree.source) - 1
        most_hops = max(1, min(ranks - 1, _MOST_HOPS))
        if len(chunks) * nodes * most_hops > _MOST_STORED:
            raise NotApplicableError(f"aligned would store {len(chunks)} trees of {nodes} nodes")
        rank, hops, link, _ = place_sums(
            through, tree, roots, load_s, batch_of(ranks, len(chunks)), most_hops, self.seed, False
        )
        if (rank < 0).any():
            raise UsageError(f"{self.network.name}: not every rank can be reached from those with a part")
        for at, chunk in enumerate(chunks.tolist()):
            self._add(chunk, tree, hops[at], link[at])
            if self.opposite is not None:
                self._send_back(chunk, int(roots[at]), hops[at], self.opposite[link[at]])

    def _add(self, chunk: int, tree: SumTree, hops: Ints, link: Ints) -> None:
        """Add the sends that bring each node's value to the rank that makes its parent."""
        leaves = len(tree.source)
        parts: list[list[int]] = []
        for node in range(2 * leaves - 1):
            inner = node - leaves
            value = [_OWN] if inner < 0 else parts[tree.left[inner]] + parts[tree.right[inner]]
            for at in link[node, : hops[node]].tolist():
                value = [self.sends.add(chunk, at, REDUCE, value)]
            parts.append(value)

    def _send_back(self, chunk: int, root: int, hops: Ints, back: Indices) -> None:
        """Add the sends of a complete sum over the links ``back``, opposite to those of its parts.

        Each rank gets it once.
        """
        reached = {root}
        # Parents come after their children.
        for node in reversed(range(len(hops))):
            for at in back[node, : hops[node]].tolist()[::-1]:
                rank = int(self.network.dst[at])
                if rank not in reached:
                    reached.add(rank)
                    self.sends.add(chunk, at, COPY, [])

    def _spread(self, through: Resources, chunk: int, root: int, load_s: Floats) -> None:
        """Add the sends of a complete sum from its root to the other targets."""
        targets = self.collective.targets.of(chunk)
        if len(targets) == 1:
            return
        link, depth, missing = grow(through, np.array([root]), targets, load_s, False)
        if missing >= 0:
            raise UsageError(f"{self.network.name}: rank {missing} cannot be reached from rank {root}")
        for at in link[np.argsort(depth, kind="stable")].tolist():
            self.sends.add(chunk, at, COPY, [])
