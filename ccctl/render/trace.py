"""Traces for Perfetto: the sends of schedules and programs on every link, and training iterations.

Tracks of sends are grouped by the sending rank; shared ports form their own group. Each method of training
forms a group of two tracks, its processor and its network.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ccctl.render.chrome_trace import BLOCK, Slices, Track
from probes.base import unsteered_json
from synth.program import BUFFERS, OPS
from synth.simulation import CAUSES, contributions

if TYPE_CHECKING:
    from probes.base import Floats, Indices
    from synth.fusion import FusionPlan, Model
    from synth.network import Network
    from synth.program import Program
    from synth.schedules import Schedule, Timing
    from synth.simulation import ProgramTiming

__all__ = ["iteration_blocks", "iteration_tracks", "program_blocks", "program_tracks", "schedule_blocks"]
__all__ += ["schedule_tracks"]


def schedule_tracks(network: Network) -> Iterator[Track]:
    """Yield a track for each link, grouped by sending rank, and for each shared port."""
    start, links = network.out_links
    for rank, host in enumerate(network.hosts):
        for link in links[start[rank] : start[rank + 1]].tolist():
            yield Track(link + 1, f"{rank}→{network.dst[link]}", rank + 1, f"rank {rank} on {host}")
    yield from _ports(network, network.links)


def schedule_blocks(schedule: Schedule, timing: Timing) -> Iterator[Slices]:
    """Yield every send on its link and on each port of the link, while it holds them."""
    network = schedule.network
    columns = (schedule.chunk, schedule.op, contributions(schedule), timing.arrival_s * 1e6)
    end_s = timing.start_s + network.hold_s(schedule.chunk_bytes)[schedule.link]
    for first in range(0, schedule.sends, BLOCK):
        rows = np.arange(first, min(first + BLOCK, schedule.sends))
        link = schedule.link[rows]
        ends = zip(network.src[link].tolist(), network.dst[link].tolist(), strict=True)
        names, args = [], []
        for (src, dst), chunk, op, summed, arrival_us in zip(
            ends, *(column[rows].tolist() for column in columns), strict=True
        ):
            names.append(f"chunk {chunk} {src}→{dst}")
            args.append(
                f'{{"chunk":{chunk},"bytes":{schedule.chunk_bytes},"op":"{"reduce" if op else "copy"}",'
                f'"contributions":{summed},"arrives_us":{arrival_us:.6f}}}'
            )
        start_s = timing.start_s[rows]
        yield Slices(network.src[link] + 1, link + 1, start_s, end_s[rows], names, args)
        yield _on_ports(network, network.links, link, start_s, end_s[rows], names)


def program_tracks(program: Program, network: Network) -> Iterator[Track]:
    """Yield tracks for each rank's threadblocks and outgoing links, then for the ports.

    If threadblocks have send rates, several use a link or port at the same time. Links and ports then have no
    tracks.
    """
    blocks, paced = program.threadblocks, len(program.tb_bytes_per_s) > 0
    first = np.searchsorted(program.tb_rank, np.arange(program.ranks + 1)).tolist()
    start, links = network.out_links
    for rank, host in enumerate(network.hosts):
        group, name = rank + 1, f"rank {rank} on {host}"
        for block in range(first[min(rank, program.ranks)], first[min(rank + 1, program.ranks)]):
            yield Track(block + 1, f"threadblock {block - first[rank]}", group, name)
        for link in [] if paced else links[start[rank] : start[rank + 1]].tolist():
            yield Track(blocks + link + 1, f"{rank}→{network.dst[link]}", group, name)
    if not paced:
        yield from _ports(network, blocks + network.links)


def program_blocks(
    program: Program, network: Network, chunk_bytes: int, timing: ProgramTiming
) -> Iterator[Slices]:
    """Yield every step on its threadblock, and its send on the link and the link's ports."""
    blocks = program.threadblocks
    rank_of = program.tb_rank[program.tb_of]
    for first in range(0, program.steps, BLOCK):
        rows = np.arange(first, min(first + BLOCK, program.steps))
        args = [_step(program, row, chunk_bytes, timing) for row in rows.tolist()]
        yield Slices(
            rank_of[rows] + 1,
            program.tb_of[rows] + 1,
            timing.start_s[rows],
            timing.end_s[rows],
            [_instruction(program, row) for row in rows.tolist()],
            args,
        )
        if len(program.tb_bytes_per_s):
            continue
        rows = rows[timing.wire_s[rows] > 0]
        link, start_s, end_s = timing.link[rows], timing.start_s[rows], (timing.start_s + timing.wire_s)[rows]
        names = [f"{program.count[row]} of {program.tb_name(program.tb_of[row])}" for row in rows.tolist()]
        sent = [args[row - first] for row in rows.tolist()]
        yield Slices(rank_of[rows] + 1, blocks + link + 1, start_s, end_s, names, sent)
        yield _on_ports(network, blocks + network.links, link, start_s, end_s, names)


def _ports(network: Network, before: int) -> Iterator[Track]:
    for port, name in enumerate(network.ports):
        yield Track(before + port + 1, name, network.ranks + 1, "shared ports")


def _on_ports(
    network: Network, before: int, link: Indices, start_s: Floats, end_s: Floats, names: list[str]
) -> Slices:
    """Return the slices of sends on each port of their links, without the arguments shown on the links."""
    row, port = network.ports_along(link)
    group = np.full(len(row), network.ranks + 1)
    again = [names[at] for at in row.tolist()]
    return Slices(group, before + port + 1, start_s[row], end_s[row], again, ["{}"] * len(row))


def _instruction(program: Program, row: int) -> str:
    """Return a step's instruction and its slots, such as ``cpy i[0-3]→o[4-7]``."""
    ends = []
    for buffer, slots in ((program.src_buffer, program.src_slot), (program.dst_buffer, program.dst_slot)):
        first, last = slots[row], slots[row] + program.count[row] - 1
        if first >= 0:
            ends.append(f"{BUFFERS[buffer[row]]}[{first}{f'-{last}' if last > first else ''}]")
    return " ".join((OPS[program.op[row]], "→".join(ends))).strip()


def _step(program: Program, row: int, chunk_bytes: int, timing: ProgramTiming) -> str:
    """Return a step's arguments as JSON: its number and size, and what it waited for last."""
    block = int(program.tb_of[row])
    arguments: dict[str, object] = {
        "step": row - int(program.tb_start[block]),
        "chunks": int(program.count[row]),
        "bytes": int(program.count[row]) * chunk_bytes,
        "started_after": CAUSES[timing.cause[row]],
    }
    if timing.culprit[row] >= 0:
        arguments["which_was"] = program.place(int(timing.culprit[row]))
    if len(program.line) and program.line[row] > 0:
        arguments["statement"] = f"{program.source}:{program.line[row]}"
    return unsteered_json(json.dumps(arguments, ensure_ascii=False))


def iteration_tracks(plans: Mapping[str, FusionPlan]) -> Iterator[Track]:
    """Yield two tracks for each method."""
    for group, name in enumerate(plans, start=1):
        yield Track(2 * group - 1, "processor", group, name)
        yield Track(2 * group, "network", group, name)


def iteration_blocks(model: Model, plans: Mapping[str, FusionPlan]) -> Iterator[Slices]:
    """Yield every pass of a layer and every collective of a bucket."""
    from synth.fusion import KINDS, REDUCE_SCATTER

    for group, plan in enumerate(plans.values(), start=1):
        line = plan.timeline
        size = np.zeros(plan.buckets, dtype=np.int64)
        np.add.at(size, plan.bucket, plan.tensor_bytes)
        names, args = [], []
        for kind, item in zip(line.kind.tolist(), line.item.tolist(), strict=True):
            collective = kind >= REDUCE_SCATTER
            what = f"bucket {item}" if collective else model.layers[item]
            names.append(unsteered_json(json.dumps(f"{KINDS[kind]} {what}", ensure_ascii=False))[1:-1])
            args.append(json.dumps({"bytes": int(size[item])} if collective else {"layer": item}))
        track = 2 * group - 1 + line.on_network
        yield Slices(np.full(len(names), group), track, line.start_s, line.end_s, names, args)
