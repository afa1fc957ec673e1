"""The time of an all_reduce by the algorithm that an MPI library chooses, on any network.

Open MPI 5 and MPICH 4 choose Rabenseifner's algorithm from 8 KiB on (with two or three ranks, from 256 KiB)
and up to thousands of ranks: coll_tuned_decision_fixed.c, and MPICH's table of choices for the network. In
each step, two ranks exchange parts of their sums. Over TCP, Open MPI sends the two directions of an exchange
one after the other: at 50 Mbit/s, 512 KiB took 92 ms in one direction and 190 ms in both, with the same ratio
at all sizes from 32 KiB to 4 MiB. With OMPI_MCA_btl_tcp_links=2 both took 100 ms. So there is one model for
directions in turn and one for both at once; the measured time shows which model applies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import numpy as np

from synth.collective import Kind
from synth.network import Network
from synth.networks import link_table

__all__ = ["library_models", "rabenseifner_s"]

# The least bytes for which the libraries choose Rabenseifner's algorithm, with few ranks and with more.
_FEW_RANKS, _LEAST_BYTES_FEW, _LEAST_BYTES = 4, 256 << 10, 8 << 10
# One message: from, to, bytes.
_Message = tuple[int, int, float]


def library_models(
    library: str, kind: Kind, size_bytes: int, ranks: int
) -> tuple[Callable[[Network], float], ...]:
    """Return the functions that may give the time of ``library`` on a network; () if its choice is unknown.

    ``library`` is the library with its version, as "Open MPI v5.0.11".
    """
    least_bytes = _LEAST_BYTES_FEW if ranks < _FEW_RANKS else _LEAST_BYTES
    known = library.startswith(("Open MPI", "MPICH"))
    if not known or kind != "all_reduce" or ranks < 2 or size_bytes < least_bytes:
        return ()
    halves = library.startswith("Open MPI")
    return tuple(
        lambda network, in_turn=in_turn: rabenseifner_s(network, size_bytes, halves=halves, in_turn=in_turn)
        for in_turn in (False, True)
    )


def rabenseifner_s(network: Network, size_bytes: int, *, halves: bool, in_turn: bool) -> float:
    """Return the time of Rabenseifner's all_reduce, step after step; infinite if a link is missing.

    If the number of ranks is no power of two, the excess ranks first hand over their data: in two ``halves``
    (Open MPI) or whole (MPICH). With ``in_turn``, the two directions of an exchange follow each other.
    """
    table = link_table(network, max(1, size_bytes // 2))
    free_s = [0.0] * network.ranks
    for messages in _steps(network.ranks, float(size_bytes), halves=halves):
        taken_s = _step_s(network, [int(table[src, dst]) for src, dst, _ in messages], messages)
        pairs = sorted(zip(messages, taken_s, strict=True), key=lambda one: _pair(one[0]))
        for (one, other), ways in groupby(pairs, key=lambda item: _pair(item[0])):
            both_s = [way_s for _, way_s in ways]
            end_s = max(free_s[one], free_s[other]) + (sum(both_s) if in_turn else max(both_s))
            free_s[one] = free_s[other] = end_s
    return max(free_s)


def _pair(message: _Message) -> tuple[int, int]:
    return min(message[:2]), max(message[:2])


def _steps(ranks: int, size_bytes: float, *, halves: bool) -> Iterator[list[_Message]]:
    power = 1 << (ranks.bit_length() - 1)
    extra = ranks - power
    evens, odds = range(0, 2 * extra, 2), range(1, 2 * extra, 2)
    couples = list(zip(evens, odds, strict=True))
    if extra and halves:
        yield [way for a, b in couples for way in ((a, b, size_bytes / 2), (b, a, size_bytes / 2))]
        yield [(odd, even, size_bytes / 2) for even, odd in couples]
    elif extra:
        yield [(even, odd, size_bytes) for even, odd in couples]
    active = [*(evens if halves else odds), *range(2 * extra, ranks)]
    halving = range(power.bit_length() - 1)
    for step in (*halving, *reversed(halving)):
        part_bytes = size_bytes / 2 ** (step + 1)
        yield [(rank, active[place ^ (1 << step)], part_bytes) for place, rank in enumerate(active)]
    if extra:
        yield [(a, b, size_bytes) if halves else (b, a, size_bytes) for a, b in couples]


def _step_s(network: Network, rows: Sequence[int], messages: Sequence[_Message]) -> list[float]:
    """Return the time of each message of a step, while all of them share the ports."""
    if min(rows) < 0:
        return [math.inf] * len(rows)
    used, sizes = np.array(rows), np.array([size_bytes for _, _, size_bytes in messages])
    row, port = network.ports_along(used)
    load_s = np.bincount(
        port, network.held_s_per_byte[network.port_entries(used)] * sizes[row], len(network.ports)
    )
    busy_s = network.beta_s_per_byte[used] * sizes
    np.maximum.at(busy_s, row, load_s[port])
    found: list[float] = (network.alpha_s[used] + busy_s).tolist()
    return found
