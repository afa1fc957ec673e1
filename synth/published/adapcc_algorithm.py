"""AdapCC's published strategies as algorithms in the chunk language (Sec. V-B).

A chunk of sub-collective m is C_m bytes. A rank that aggregates (a = 1) adds the chunks that it receives to
its own, and forwards the sum. A rank that does not (a = 0) sends its own chunk and forwards each received
chunk separately, through scratch, until a rank that aggregates, or the root, adds it. Chunks follow one
another in a pipeline, and the parts take turns. In an all_reduce the root of a part sends each chunk back as
soon as it is complete.
"""

from __future__ import annotations

from collections import defaultdict
from math import gcd

from synth.errors import NotApplicableError
from synth.lang import Algorithm, Chunk, chunk, program
from synth.published.adapcc_milp import PublishedStrategy, SubCollective, blocks

__all__ = ["strategy_algorithm"]


def strategy_algorithm(strategy: PublishedStrategy, *, back: bool = False) -> tuple[Algorithm, int]:
    """Return (the algorithm, the bytes of its chunks); with ``back`` a reduce becomes an all_reduce.

    Raises NotApplicableError if the parts of a reduce end at several roots: no collective does that.
    """
    question, parts = strategy.question, strategy.parts
    kind = "all_reduce" if back else question.kind
    roots = {part.root for part in parts}
    if kind == "reduce" and len(roots) > 1:
        raise NotApplicableError(f"adapcc: the parts of a reduce have the roots {sorted(map(str, roots))}")
    unit_bytes = gcd(*(size for part in parts for size in (part.choice.size_bytes, part.choice.chunk_bytes)))
    share = question.size_bytes // unit_bytes
    ranks = question.network.ranks
    chunks = share * ranks if kind == "all_to_all" else share

    def body() -> None:
        for part, first, size in blocks(parts, unit_bytes):
            if kind == "all_to_all":
                _exchange(strategy, part, first, size, share)
            elif kind == "broadcast":
                _spread(strategy, part, first, size)
            else:
                _sum(strategy, part, first, size, back=back)

    root = next(iter(roots)) if kind != "all_to_all" else None
    made = program(
        kind,
        ranks,
        chunks=chunks,
        in_place=kind != "all_to_all",
        root=root if root is not None and kind != "all_reduce" else 0,
        name=f"adapcc_{kind}",
    )(body)
    return made, unit_bytes


def _sum(strategy: PublishedStrategy, part: SubCollective, first: int, size: int, *, back: bool) -> None:
    """Send one chunk from every rank to the root of its part, and back if ``back``."""
    network = strategy.question.network
    above = {flow[0]: int(network.dst[path[0]]) for flow, path in part.paths.items() if path}
    depth = {flow[0]: len(path) for flow, path in part.paths.items()}
    passing: dict[int, list[Chunk]] = defaultdict(list)
    for rank in sorted(above, key=lambda rank: -depth[rank]):
        onward = above[rank]
        adds = onward in part.aggregates or onward == part.root
        for packet in (chunk("input", rank, first, size), *passing[rank]):
            if adds:
                chunk("input", onward, first, size).reduce(packet)
            else:
                place = f"for {onward}'s successor, {len(passing[onward])}"
                passing[onward].append(packet.assign(place, onward, first))
    if back:
        for rank in sorted(above, key=lambda rank: depth[rank]):
            chunk("input", above[rank], first, size).assign("input", rank, first)


def _spread(strategy: PublishedStrategy, part: SubCollective, first: int, size: int) -> None:
    """Send one chunk from the root along all paths, once to each rank."""
    network, reached = strategy.question.network, set()
    for path in sorted(part.paths.values(), key=len):
        for link in path:
            src, dst = int(network.src[link]), int(network.dst[link])
            if dst not in reached:
                chunk("input" if src == part.root else "output", src, first, size).assign(
                    "output", dst, first
                )
                reached.add(dst)


def _exchange(strategy: PublishedStrategy, part: SubCollective, first: int, size: int, share: int) -> None:
    """Send one chunk of every flow, through scratch on the ranks between."""
    network = strategy.question.network
    ranks = network.ranks
    for rank in range(ranks):
        chunk("input", rank, rank * share + first, size).assign("output", rank, rank * share + first)
    for (src, dst), path in part.paths.items():
        packet = chunk("input", src, dst * share + first, size)
        for link in path[:-1]:
            packet = packet.assign(f"from {src} to {dst}", int(network.dst[link]), first)
        packet.assign("output", dst, src * share + first)
