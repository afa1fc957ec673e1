"""The patterns of libraries' fixed algorithms: messages between places in the order of ranks.

The patterns follow the sources of the libraries: Open MPI (``ompi/mca/coll/base``), MPICH (``src/mpi/coll``),
gloo (``gloo/allreduce.cc``, whose ring runs towards lower ranks), NCCL (``src/graph/connect.cc``,
``src/graph/trees.cc``). Recursive doubling and Rabenseifner's algorithm exchange at distances 1, 2, 4 …; if
the number of ranks is no power of two, pairs of the first ones are folded into one (Thakur, Rabenseifner and
Gropp 2005).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from probes.base import Floats, Indices, UsageError, meant, quoted
from synth.collective import Kind
from synth.methods import parents

__all__ = ["LIBRARIES", "LibraryAlgorithm", "Pattern", "algorithm_of", "pattern"]

_Message = tuple[int, int, float]
# Libraries that pipeline, and that choose the order of ranks in a host themselves.
_OF_GPUS = ("nccl", "rccl")


@dataclass(frozen=True)
class LibraryAlgorithm:
    """One algorithm of a library for one collective."""

    library: str
    name: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.library}:{self.name}"

    @property
    def by_hosts(self) -> bool:
        """Whether the library itself chooses the order of the ranks in a host."""
        return self.library in _OF_GPUS


@dataclass(frozen=True, eq=False)
class Pattern:
    """The messages of an algorithm between places, round by round.

    Message m goes from ``src[m]`` to ``dst[m]`` in round ``round[m]``, ascending, with the fraction
    ``share[m]`` of the buffer. If the pattern is not pipelined, a place sends at most one message in a round
    and receives at most one. Round k is repeated ``repeats[k]`` times in a row. In a ``pipelined`` pattern
    all messages are in flight at once, and round k only adds its latency, ``repeats[k]`` times. In a
    ``symmetric`` pattern, a search may fix one rank at one place: every order has an equally costly
    rearrangement with the rank at this place.
    """

    places: int
    round: Indices
    src: Indices
    dst: Indices
    share: Floats
    repeats: Floats
    pipelined: bool
    symmetric: bool


def algorithm_of(text: str, kind: Kind) -> LibraryAlgorithm:
    """Return the algorithm that ``LIBRARY:ALGORITHM`` names for a collective.

    ``LIBRARY`` alone names its ring. Raises UsageError for unknown words.
    """
    library, colon, name = text.partition(":")
    if library not in LIBRARIES:
        raise UsageError(
            f" {quoted(text)}: unknown library",
            hint=f"{meant(library, LIBRARIES)} Known: {', '.join(LIBRARIES)}".strip(),
            argument="for",
        )
    offered = LIBRARIES[library].get(kind, ())
    if not offered:
        others = ", ".join(LIBRARIES[library])
        raise UsageError(
            f" {library}: no algorithm of its {kind} is known here",
            hint=f"Known are those of {others}.",
            argument="for",
        )
    if colon and name not in offered:
        raise UsageError(
            f" {quoted(text)}: unknown algorithm of {kind}",
            hint=f"{meant(name, offered)} Known: {', '.join(offered)}".strip(),
            argument="for",
        )
    return LibraryAlgorithm(library, name or offered[0], kind)


def pattern(algorithm: LibraryAlgorithm, sizes: Sequence[int]) -> Pattern:
    """Return the messages of an algorithm among hosts that hold ``sizes`` ranks, host after host.

    Raises UsageError if the algorithm does not support that number of ranks.
    """
    places = sum(sizes)
    if places < 2:
        return _pattern(places, [], [], pipelined=False, symmetric=True)
    if algorithm.library in _OF_GPUS:
        return _NCCL[algorithm.name](sizes, algorithm.kind)
    if algorithm.name == "ring":
        steps = (places - 1) * (2 if algorithm.kind == "all_reduce" else 1)
        turn = -1 if algorithm.library == "gloo" else 1
        ring = [(place, (place + turn) % places, 1 / places) for place in range(places)]
        # An order may begin at any host only if all have the same number of ranks.
        return _pattern(places, [ring], [steps], pipelined=False, symmetric=len(set(sizes)) == 1)
    return _MAKERS[algorithm.name](algorithm, places, symmetric=max(sizes) == 1)


def _all_gather_doubling(algorithm: LibraryAlgorithm, places: int, *, symmetric: bool) -> Pattern:
    if places & (places - 1):
        raise UsageError(f" {algorithm}: only for a power of two ranks, found {places}", argument="for")
    rounds, distance = [], 1
    while distance < places:
        rounds.append([(place, place ^ distance, distance / places) for place in range(places)])
        distance *= 2
    return _pattern(places, rounds, [1] * len(rounds), pipelined=False, symmetric=symmetric)


def _recursive_doubling(algorithm: LibraryAlgorithm, places: int, *, symmetric: bool) -> Pattern:
    """Return exchanges of whole buffers at doubling distances; the odd rank of a folded pair takes part."""
    if algorithm.kind == "all_gather":
        return _all_gather_doubling(algorithm, places, symmetric=symmetric)
    active, folded = _folded(places, odd=True)
    before = [(2 * pair, 2 * pair + 1, 1.0) for pair in range(folded)]
    after = [(dst, src, share) for src, dst, share in before]
    rounds = [_exchange(active, distance, 1.0) for distance in _distances(len(active))]
    if folded:
        rounds = [before, *rounds, after]
    return _pattern(places, rounds, [1] * len(rounds), pipelined=False, symmetric=symmetric and not folded)


def _rabenseifner(algorithm: LibraryAlgorithm, places: int, *, symmetric: bool) -> Pattern:
    """Return a reduce-scatter by halving and an all-gather by doubling.

    Open MPI folds pairs into their even ranks, MPICH into their odd ones.
    """
    openmpi = algorithm.library == "openmpi"
    active, folded = _folded(places, odd=not openmpi)
    distances = _distances(len(active))
    halves = [_exchange(active, distance, 0.5 / distance) for distance in distances]
    rounds = [*halves, *reversed(halves)]
    if folded and openmpi:
        pairs = [(2 * pair, 2 * pair + 1) for pair in range(folded)]
        both = [(src, dst, 0.5) for a, b in pairs for src, dst in ((a, b), (b, a))]
        rounds = [both, [(b, a, 0.5) for a, b in pairs], *rounds, [(a, b, 1.0) for a, b in pairs]]
    elif folded:
        before = [(2 * pair, 2 * pair + 1, 1.0) for pair in range(folded)]
        rounds = [before, *rounds, [(dst, src, share) for src, dst, share in before]]
    return _pattern(places, rounds, [1] * len(rounds), pipelined=False, symmetric=symmetric and not folded)


def _folded(places: int, *, odd: bool) -> tuple[list[int], int]:
    """Return (places that take part, a power of two; number of pairs that are folded into one)."""
    most = 1 << (places.bit_length() - 1)
    folded = places - most
    return [2 * pair + odd for pair in range(folded)] + list(range(2 * folded, places)), folded


def _distances(places: int) -> list[int]:
    return [1 << bit for bit in range(places.bit_length() - 1)]


def _exchange(active: Sequence[int], distance: int, share: float) -> list[_Message]:
    return [(here, active[at ^ distance], share) for at, here in enumerate(active)]


def _nccl_ring(sizes: Sequence[int], kind: Kind) -> Pattern:
    """Return a ring for each channel; channels enter and leave a host at different ranks."""
    places, channels = sum(sizes), min(sizes)
    factor = (places - 1) / places * (2 if kind == "all_reduce" else 1)
    rings = [_channel(sizes, channel) for channel in range(channels)]
    hops = [list(zip(ring, [*ring[1:], ring[0]], strict=True)) for ring in rings]
    levels = [[(*ring[at], factor / channels) for ring in hops] for at in range(places)]
    return _pattern(places, levels, [factor] * places, pipelined=True, symmetric=len(set(sizes)) == 1)


def _channel(sizes: Sequence[int], channel: int) -> list[int]:
    """Return the places of a channel's path through all hosts."""
    path, first = [], 0
    for size in sizes:
        path += [first + (channel + at) % size for at in range(size)]
        first += size
    return path


def _nccl_tree(sizes: Sequence[int], kind: Kind) -> Pattern:
    """Return a double binary tree of hosts for each channel, and a chain through the ranks of each host."""
    channels = min(sizes)
    firsts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).tolist()
    levels: dict[int, list[_Message]] = {}
    for channel in range(channels):
        for size, first in zip(sizes, firsts, strict=True):
            chain = [first + (channel + at) % size for at in range(size)]
            for at, (head, tail) in enumerate(pairwise(chain)):
                both = [(tail, head, 1.0 / channels), (head, tail, 1.0 / channels)]
                levels.setdefault(-1 - at, []).extend(both)
        heads = [first + channel % size for size, first in zip(sizes, firsts, strict=True)]
        for parent in parents(len(sizes)):
            for host, above in enumerate(parent):
                if above >= 0:
                    up, half = (heads[host], heads[above]), 0.5 / channels
                    levels.setdefault(_depth(parent, host), []).extend([(*up, half), (*up[::-1], half)])
    rounds = [levels[level] for level in sorted(levels)]
    return _pattern(sum(sizes), rounds, [2.0] * len(rounds), pipelined=True, symmetric=False)


def _depth(parent: Sequence[int], host: int) -> int:
    depth = 0
    while parent[host] >= 0:
        host, depth = parent[host], depth + 1
    return depth


def _pattern(
    places: int,
    rounds: Sequence[Sequence[_Message]],
    repeats: Sequence[float],
    *,
    pipelined: bool,
    symmetric: bool,
) -> Pattern:
    rows = [(number, *message) for number, messages in enumerate(rounds) for message in messages]
    table = np.array(rows, dtype=np.float64).reshape(len(rows), 4)
    number, src, dst = (np.ascontiguousarray(table[:, at]).astype(np.int64) for at in range(3))
    share = np.ascontiguousarray(table[:, 3])
    return Pattern(places, number, src, dst, share, np.asarray(repeats, np.float64), pipelined, symmetric)


_MAKERS: dict[str, Callable[..., Pattern]] = {
    "recursive_doubling": _recursive_doubling,
    "rabenseifner": _rabenseifner,
}
_NCCL: dict[str, Callable[[Sequence[int], Kind], Pattern]] = {"ring": _nccl_ring, "tree": _nccl_tree}
_MPI: dict[Kind, tuple[str, ...]] = {
    "all_reduce": ("ring", "recursive_doubling", "rabenseifner"),
    "all_gather": ("ring", "recursive_doubling"),
}
_GPU: dict[Kind, tuple[str, ...]] = {
    "all_reduce": ("ring", "tree"),
    "all_gather": ("ring",),
    "reduce_scatter": ("ring",),
}
# The algorithms of each library and collective, the one for large buffers first.
LIBRARIES: dict[str, dict[Kind, tuple[str, ...]]] = {
    "openmpi": {**_MPI, "reduce_scatter": ("ring",)},
    "mpich": _MPI,
    "gloo": {"all_reduce": ("ring",)},
    "nccl": _GPU,
    "rccl": _GPU,
}
