"""The operations of switches that sum and copy (NVLink SHARP), and how long they take.

A sum reads a chunk at all ranks of a host at once, and one of them receives the total: every rank's egress
carries the chunk, and the reader's ingress the total. A copy writes one rank's chunk at all ranks: its egress
carries it once, and every ingress. The rank that reads or writes takes part like the others, because the
switch also reads or writes its memory (PTX ISA, ``multimem.ld_reduce`` and ``multimem.st``).

GPUs carry out such instructions beside each other, 16 bytes at a time. So the operations of one kind at one
rank take turns, and all others of its host run beside them. Each has the same share of the busiest port: with
sums and copies at all n ranks, a port carries n + 1 of them at once. A sum takes one latency more than a
copy: the request travels first.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.base import Indices, UsageError, floats, ints
from synth.network import Network
from synth.program import Program
from synth.schedules import REDUCE, Schedule

__all__ = ["RUNS_ELSEWHERE", "laned", "operations", "refuse_switches", "with_lanes"]

# The hint where switches cannot carry out what is asked.
RUNS_ELSEWHERE = "A plan of MSCCL++ can. On the network without +nvls only ranks make sums."


def refuse_switches(made: Schedule | Program, who: str) -> None:
    """Raise UsageError, for ``who`` knows ranks and links only, if switches carry out some sends or steps."""
    if made.uses_switches:
        name = made.name if isinstance(made, Program) else f"{made.method} on {made.network.name}"
        raise UsageError(
            f"in {name} switches sum and copy (NVLink SHARP), which {who} cannot do",
            hint=RUNS_ELSEWHERE,
        )


def operations(schedule: Schedule) -> tuple[Indices, Indices]:
    """Return for each send the first row of its operation, and the row behind its last one.

    A send that no switch carries out is an operation of its own.
    """
    number, rows = schedule.multimem, np.arange(schedule.sends)
    if not len(number):
        return rows, rows + 1
    begins = np.flatnonzero((np.diff(number, prepend=-1) != 0) | (number < 0))
    run = np.searchsorted(begins, rows, side="right") - 1
    return begins[run], np.append(begins[1:], schedule.sends)[run]


def laned(schedule: Schedule) -> Schedule:
    """Return the same sends, with links of their own for the operations of switches; O(sends · log sends).

    The links of an operation have its latency and its share of the ports. A schedule without operations stays
    as it is.
    """
    if not schedule.uses_switches:
        return schedule
    network = schedule.network
    rows = np.flatnonzero(schedule.multimem >= 0)
    sums = (schedule.op[rows] == REDUCE).astype(np.int64)
    used, number = np.unique(sums * network.links + schedule.link[rows], return_inverse=True)
    is_sum, link = np.divmod(used, max(1, network.links))
    moved = schedule.link.copy()
    moved[rows] = network.links + number
    return replace(schedule, network=with_lanes(network, link, is_sum), link=moved)


def with_lanes(network: Network, link: Indices, is_sum: Indices) -> Network:
    """Return the network with further links for operations of switches: one for each (link, whether it sums).

    Such a link has no ports; it is as slow as its share of the busiest port makes it.
    """
    one = np.where(is_sum == 1, network.dst[link], network.src[link]).astype(np.int64)
    shares = _shares(network.host_of, one, is_sum)
    return replace(
        network,
        src=ints(np.append(network.src, network.src[link])),
        dst=ints(np.append(network.dst, network.dst[link])),
        alpha_s=floats(np.append(network.alpha_s, network.alpha_s[link] * (1 + is_sum))),
        beta_s_per_byte=floats(np.append(network.beta_s_per_byte, network.multimem_s_per_byte * shares)),
        link_port_start=ints(np.append(network.link_port_start, np.full(len(link), len(network.link_port)))),
    )


def _shares(host_of: Indices, one: Indices, is_sum: Indices) -> Indices:
    """Return how many operations share the busiest port of its host, for each link of an operation."""
    ranks = len(host_of)
    kind_at = np.unique(is_sum * ranks + one)
    kind, rank = np.divmod(kind_at, ranks)
    hosts = int(host_of.max()) + 1
    sums, copies = (np.bincount(host_of[rank[kind == each]], minlength=hosts) for each in (1, 0))
    busiest = np.maximum(sums + (copies > 0), copies + (sums > 0))
    return np.asarray(busiest[host_of[one]])
