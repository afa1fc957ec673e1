"""Lowers a program to an MSCCL++ plan: messages become puts into the peer's memory, signals and waits.

Memory channels connect ranks of one host, port channels the others; each pair of communicating blocks has its
own channel. Semaphores replace the waits between threadblocks of a rank. They also chain the pieces of a
block that has more operations than the executor takes. What several peers send into one place is added up at
once. The receiver acknowledges puts over a port at the end if the sender has no other sign of their arrival.
"""

from __future__ import annotations

from collections.abc import Sequence

from probes.base import UsageError, gc_paused
from synth.mscclpp.block_waits import BlockWaits
from synth.mscclpp.emission import Emission, RankPlan, Semaphores
from synth.mscclpp.messages import MatchedMessages
from synth.mscclpp.plan import COLLECTIVES, ExecutionPlan
from synth.multimem import refuse_switches
from synth.program import Program

__all__ = ["plan_of"]


@gc_paused()
def plan_of(program: Program, hosts: Sequence[int], *, in_place: bool | None = None) -> ExecutionPlan:
    """Return a plan equivalent to a proven program; ``hosts[rank]`` is the number of its host.

    With ``in_place`` None, the plan is in place if the program allows it. Raises UsageError for a collective
    that plans do not have or that leaves out ranks, for a placement that the program does not support, and
    if switches carry out some steps: `switch_plan` makes the plan of their schedule. Takes O(steps²) bits of
    memory.
    """
    refuse_switches(program, "a plan made of a program")
    collective = program.collective
    if collective.kind not in COLLECTIVES or not collective.whole or program.input_chunks:
        raise UsageError(
            f"a plan of MSCCL++ cannot do {collective.label}{'' if collective.whole else ' of some ranks'}",
            hint=f"It can do {', '.join(COLLECTIVES)} of all ranks.",
        )
    if len(hosts) != program.ranks:
        raise UsageError(f"hosts of {len(hosts)} ranks are known, {program.name} has {program.ranks}")
    placed = program.in_place if in_place is None else in_place
    if not (program.in_place if placed else program.out_of_place):
        raise UsageError(f"{program.name} cannot run {'in' if placed else 'out of'} place")
    messages = MatchedMessages(program, hosts, in_place=placed)
    ranks = [RankPlan(rank) for rank in range(program.ranks)]
    channels = _channels(messages, ranks)
    idle = messages.idle()
    waits = BlockWaits(messages.accesses, idle, messages.sums)
    semaphores = _semaphores(waits, messages, ranks)
    acknowledged = messages.unacknowledged(waits)
    for tb in range(program.threadblocks):
        rank = ranks[int(program.tb_rank[tb])]
        rank.blocks += Emission(messages, rank, channels, semaphores, idle, tb).threadblocks(acknowledged)
    sizes = zip(messages.cells.size.tolist(), messages.scratch, strict=True)
    plan = ExecutionPlan(
        name=program.name,
        collective=COLLECTIVES[collective.kind],
        protocol="Simple",
        in_place=placed,
        gpus=tuple(
            rank.gpu(size[0], size[1], scratch) for rank, (size, scratch) in zip(ranks, sizes, strict=True)
        ),
    )
    return plan.within(program.min_bytes, program.max_bytes or plan.most_bytes)


def _channels(
    messages: MatchedMessages, ranks: list[RankPlan]
) -> dict[tuple[int, int, int], tuple[str, int]]:
    """Return (type, number) of the channel of each connection, by (sending block, receiving block, rank).

    The k-th channels of two ranks to each other are paired, so both ranks list them in the same order.
    """
    found: dict[tuple[int, int, int, int], tuple[int, int, str]] = {}
    for message in messages.out.values():
        source, target = messages.rank[message.send], messages.rank[message.receive]
        blocks = messages.tb[message.send], messages.tb[message.receive]
        kind = "port" if message.port else "memory"
        found[min(source, target), max(source, target), *blocks] = (source, target, kind)
    channels = {}
    for key in sorted(found):
        source, target, kind = found[key]
        for rank, peer in ((source, target), (target, source)):
            peers = ranks[rank].peers[kind]
            channels[key[2], key[3], rank] = (kind, len(peers))
            peers.append(peer)
    return channels


def _semaphores(waits: BlockWaits, messages: MatchedMessages, ranks: list[RankPlan]) -> Semaphores:
    """Return one semaphore per pair of blocks, released after each step that the other block waits for."""
    found = Semaphores()
    number: dict[tuple[int, int], int] = {}
    for step, awaited in sorted(waits.awaited.items()):
        for one in awaited:
            blocks = messages.tb[one], messages.tb[step]
            if blocks not in number:
                number[blocks] = ranks[messages.rank[step]].new_semaphore()
            found.acquired.setdefault(step, []).append(number[blocks])
            found.released.setdefault(one, []).append(number[blocks])
    return found
