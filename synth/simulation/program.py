"""The simulator of programs: threadblocks, channels, FIFO slots, overheads, and the critical path.

Each threadblock runs its steps one after the other. A step starts when the step that it waits for has ended,
its message has arrived, and a slot of its FIFO and the link with all its ports are free. A message holds its
link and ports as a send does in ``synth.simulation.schedule``. Paced threadblocks use links and ports at the
same time, each at its given rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, UsageError, floats
from synth.multimem import with_lanes
from synth.network import Network, fastest_links
from synth.program import FIFO_DEPTH, GLRE, READS_SRC, WRITES_DST, Program
from synth.simulation.fifo_order import links_of
from synth.simulation.threadblock_machine import CAUSES, run_threadblocks

__all__ = ["Costs", "ProgramTiming", "links_used", "simulate_program"]


# A computed time below this fraction of its step's time counts as a rounding error.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Costs:
    """The executor's costs beside the network's: the seconds of a step, the rate of a threadblock.

    A message between hosts holds its link and ports for ``message_s`` more than its bytes need. Messages are
    forwarded in ``slices`` (GC3 Sec. 4.3 has four); with 1 they move whole.
    """

    step_s: float = 0.5e-6
    threadblock_bytes_per_s: float = float("inf")
    fifo: int = FIFO_DEPTH
    message_s: float = 0.0
    slices: int = 1


@dataclass(frozen=True, eq=False)
class ProgramTiming:
    """``start_s`` and ``end_s`` of each step, infinite if it never runs.

    ``shares`` divides the critical path into seconds of transfers, latency, threadblocks and instructions;
    ``binding`` names the largest of them. ``link_busy`` is the share of the time for which each link is held.
    For each step, ``cause`` is the kind of its last wait (an index into CAUSES), ``culprit`` the step that
    caused the wait (-1: none), ``link`` the link that it holds, and ``wire_s`` the seconds for which it holds
    the link (0: it sends nothing, or a switch carries it out).
    """

    start_s: Floats
    end_s: Floats
    time_s: float
    shares: dict[str, float]
    binding: str
    link_busy: Floats
    cause: Indices
    culprit: Indices
    link: Indices
    wire_s: Floats


def simulate_program(
    program: Program, network: Network, chunk_bytes: int, costs: Costs | None = None
) -> ProgramTiming:
    """Time a program on a network; O(steps · log threadblocks).

    Raises UsageError if the network lacks a rank or a link that the program needs.
    """
    costs = costs or Costs()
    links, real_links = links_of(program), network.links
    link = links_used(program, network, chunk_bytes)
    network, link, by_switches_s = _with_switches(program, network, chunk_bytes, link)
    by_switch = np.zeros(program.steps, dtype=bool)
    by_switch[program.in_group] = True
    holds = links.sends | by_switch
    talks = links.sends | links.receives
    size = np.where(talks, program.messages, program.count).astype(np.float64) * chunk_bytes
    moved_s = size / costs.threadblock_bytes_per_s
    direct_s = np.where(holds, network.beta_s_per_byte[link] * size, 0.0)
    alpha = np.where(holds, network.alpha_s[link], 0.0)
    paced_s = _paced_s(program, size)
    alpha_held = alpha if network.hold_alpha else np.zeros_like(alpha)
    set_up_s = np.where(network.within_host[link], 0.0, costs.message_s)
    wire_s = np.where(holds, np.maximum(direct_s, paced_s) + alpha_held + set_up_s, 0.0)
    works = np.array(READS_SRC)[program.op] | np.array(WRITES_DST)[program.op]
    # A switch's operation ends when its data are there, not when they have left.
    waited_s = np.where(by_switch, alpha, 0.0)
    busy_s = np.maximum(wire_s, np.where(works, moved_s, 0.0)) + costs.step_s + waited_s
    start_s, end_s, cause, culprit = run_threadblocks(
        program.tb_start.astype(np.int64),
        program.tb_of.astype(np.int64),
        links.goal,
        links.sends,
        links.receives,
        links.sender,
        links.send,
        links.recv,
        links.fifos,
        costs.fifo,
        holds,
        *_resources(program, network, link),
        busy_s,
        wire_s,
        alpha - alpha_held,
        _late_s(program, wire_s),
        1.0 / costs.slices,
    )
    time_s = float(end_s.max(initial=0.0))
    shares = _chain(end_s, cause, culprit, wire_s, alpha, waited_s, busy_s, costs.step_s)
    held = floats(np.bincount(link, weights=direct_s + alpha_held, minlength=network.links))
    held_links = held[:real_links] + by_switches_s
    return ProgramTiming(
        start_s,
        end_s,
        time_s,
        shares,
        _binding(network, shares, held, real_links),
        floats(held_links / time_s if 0 < time_s < np.inf else held_links * 0.0),
        cause,
        culprit,
        np.where(by_switch, 0, link),
        np.where(by_switch, 0.0, wire_s),
    )


class _Switches(NamedTuple):
    """The network with a link for each kind of operation of each rank, and the link of each step on it.

    ``held_s`` are the seconds for which all operations hold each link of the network itself, as in
    `Schedule.busy_s`.
    """

    network: Network
    link: Indices
    held_s: Floats


def _with_switches(program: Program, network: Network, chunk_bytes: int, link: Indices) -> _Switches:
    rows, held_s = program.in_group, np.zeros(network.links)
    if not len(rows):
        return _Switches(network, link, held_s)
    rank = program.tb_rank[program.tb_of[rows]].astype(np.int64)
    used, number = np.unique((program.op[rows] == GLRE) * program.ranks + rank, return_inverse=True)
    is_sum, ranks = np.divmod(used, program.ranks)
    carried_s = np.bincount(number, program.count[rows]) * chunk_bytes * network.multimem_s_per_byte
    pairs = [
        [(other, one)[:: 1 if sums else -1] for other in program.members(one).tolist() if other != one]
        for one, sums in zip(ranks.tolist(), is_sum.tolist(), strict=True)
    ]
    fastest = fastest_links(network, chunk_bytes, {pair for each in pairs for pair in each})
    for each, seconds in zip(pairs, carried_s.tolist(), strict=True):
        held_s[[fastest[pair] for pair in each]] += seconds * (len(each) + 2) / (2 * len(each))
    found = link.copy()
    found[rows] = network.links + number
    return _Switches(
        with_lanes(network, np.array([fastest[each[0]] for each in pairs]), is_sum), found, held_s
    )


def _paced_s(program: Program, size: Floats) -> Floats:
    """Return the seconds of each step at the pace of its threadblock; 0 without a pace."""
    if not len(program.tb_bytes_per_s):
        return np.zeros(program.steps)
    return np.asarray(size / np.maximum(program.tb_bytes_per_s[program.tb_of], 1e-18))


def _resources(
    program: Program, network: Network, link: Indices
) -> tuple[Indices, Indices, Indices, Floats, int, int]:
    """Return the links and ports that steps take turns on: (link, port_start, port, part, links, ports).

    A paced threadblock has a link of its own, and no ports.
    """
    if len(program.tb_bytes_per_s):
        none = np.zeros(program.threadblocks + 1, np.int64)
        return program.tb_of.astype(np.int64), none, none[:0], floats([]), program.threadblocks, 0
    start, port = network.link_port_start.astype(np.int64), network.link_port.astype(np.int64)
    return link, start, port, network.port_part, network.links, len(network.ports)


def links_used(program: Program, network: Network, chunk_bytes: int) -> Indices:
    """Return the link of each sending step; 0 for other steps.

    The channels between two ranks are spread round-robin over the fastest of their parallel links. Raises
    UsageError if the network lacks a rank or link.
    """
    if program.uses_switches and not network.multimem_s_per_byte:
        raise UsageError(
            f"switches sum and copy in {program.name} (NVLink SHARP), and no switch of {network.name} does"
        )
    if network.ranks < program.ranks:
        raise UsageError(f"{network.name} has {network.ranks} ranks, {program.name} needs {program.ranks}")
    pairs = list(zip(program.tb_rank.tolist(), program.tb_send.tolist(), strict=True))
    alike = _alike(network, chunk_bytes, {pair for pair in pairs if pair[1] >= 0})
    channels: dict[tuple[int, int], dict[int, int]] = {}
    of_tb = []
    for pair, channel in zip(pairs, program.tb_channel.tolist(), strict=True):
        rows = alike.get(pair, [0] if pair[1] < 0 else [])
        if not rows:
            raise UsageError(
                f"{program.name} sends from rank {pair[0]} to {pair[1]}: {network.name} has no such link"
            )
        known = channels.setdefault(pair, {})
        of_tb.append(rows[known.setdefault(channel, len(known)) % len(rows)])
    return np.array(of_tb, dtype=np.int64)[program.tb_of]


def _alike(
    network: Network, chunk_bytes: int, pairs: set[tuple[int, int]]
) -> dict[tuple[int, int], list[int]]:
    """Return for each pair of ranks all links that are as fast as its fastest link."""
    travel_s = network.travel_s(chunk_bytes)
    fastest = fastest_links(network, chunk_bytes, pairs)
    found = {pair: [row] for pair, row in fastest.items()}
    for row in np.setdiff1d(network.links_of(pairs), list(fastest.values())).tolist():
        pair = (int(network.src[row]), int(network.dst[row]))
        if travel_s[row] <= travel_s[found[pair][0]]:
            found[pair].append(row)
    return found


def _late_s(program: Program, wire_s: Floats) -> Floats:
    """Return a delay of each step that breaks ties: it rises with the turn and is below any transfer time."""
    if not len(program.turn):
        return np.zeros(program.steps)
    least_s = float(wire_s[wire_s > 0].min(initial=1.0))
    return np.asarray(program.turn * (1e-3 * least_s / max(1, int(program.turn.max(initial=1)))))


def _chain(
    end_s: Floats,
    cause: Indices,
    culprit: Indices,
    wire_s: Floats,
    alpha_s: Floats,
    waited_s: Floats,
    busy_s: Floats,
    step_s: float,
) -> dict[str, float]:
    """Return the time on the critical path, by cause."""
    shares = {"transfer": 0.0, "latency": 0.0, "threadblock": 0.0, "instructions": 0.0}
    if not len(end_s) or not np.isfinite(end_s).all():
        return shares
    step, why = int(np.argmax(end_s)), "order"
    while step >= 0:
        shares["transfer"] += float(wire_s[step])
        if why == "message":
            shares["latency"] += float(alpha_s[step])
        elif why != "link":
            # The later step waited for this step's end, not for its message, and so also for its overheads.
            shares["instructions"] += step_s
            shares["latency"] += float(waited_s[step])
            late_s = float(busy_s[step] - waited_s[step] - wire_s[step] - step_s)
            # A difference of sums: rounding leaves a small remainder of either sign where it should be 0.
            shares["threadblock"] += late_s if late_s > _ROUNDING * busy_s[step] else 0.0
        step, why = int(culprit[step]), CAUSES[cause[step]]
    return shares


def _binding(network: Network, shares: dict[str, float], held_s: Floats, real_links: int) -> str:
    largest = max(shares, key=lambda name: shares[name])
    if largest != "transfer":
        return {
            "latency": "latency of the links",
            "threadblock": "the rate of one threadblock",
            "instructions": "the overhead of instructions",
        }[largest]
    busiest = int(np.argmax(held_s))
    if busiest >= real_links:
        return "sums and copies of switches"
    return f"transfers, most on link {network.src[busiest]} -> {network.dst[busiest]}"
