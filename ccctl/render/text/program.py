"""A program as text: a lane of instructions for every threadblock, and each step with its dependence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccctl import console
from ccctl.render import Column, percent, print_table, seconds
from probes.base import plural

if TYPE_CHECKING:
    from synth.network import Network
    from synth.program import Program
    from synth.simulation import ProgramTiming

__all__ = ["MEANINGS", "draw", "draw_timing", "limit_of_program"]

_WIDTH = 64
# Capital letters are steps that forward what they receive.
_LETTERS = dict(zip(("nop", "s", "r", "cpy", "re", "rrc", "rrs", "rcs", "rrcs"), ".srce+FPA", strict=True))
_LETTERS |= {"glre": "g", "gstore": "w", "signal": "!", "wait": "?"}
# The meaning of each instruction, by its name in GC3 or MSCCL++.
MEANINGS = {
    "nop": "only waits",
    "s": "send",
    "r": "receive",
    "cpy": "copy",
    "re": "add",
    "rrc": "receive, add, keep",
    "rrs": "receive, add, send on",
    "rcs": "receive, keep, send on",
    "rrcs": "receive, add, keep, send on",
    "glre": "sum of all ranks by the switch",
    "gstore": "copy to all ranks by the switch",
    "signal": "send without data",
    "wait": "receive without data",
}


# The meaning of each part of the critical path.
_PARTS = {
    "transfer": "bytes on links and ports",
    "latency": "messages in flight",
    "threadblock": "more bytes than one threadblock moves",
}


def draw(program: Program, lines: int = 32) -> None:
    """Print at most ``lines`` lanes and ``lines`` steps of ``program``."""
    console.data(
        f"{program.name}: {_does(program)} on {program.ranks} ranks, "
        f"{plural(program.collective.chunks, 'chunk')}, protocol {program.protocol}"
    )
    console.data(
        f"{plural(program.threadblocks, 'threadblock')}, {plural(program.channels, 'channel')}, "
        f"{plural(program.steps, 'step')}, "
        f"at most {plural(max(program.scratch_chunks, default=0), 'scratch chunk')} a rank"
    )
    _lanes(program, lines)
    left = lines
    for block in range(program.threadblocks):
        if left <= 0:
            break
        left -= _block(program, block, left)
    if program.steps > lines:
        console.data("")
        console.data(f"… and {program.steps - lines} more steps; --lines {program.steps} shows all")


def draw_timing(program: Program, network: Network, timing: ProgramTiming) -> None:
    """Print a simulation's result: the time, the parts of the longest chain, the bottleneck."""
    from ccctl.render.text import utilization

    console.data(f"{program.name}: {_does(program)} on {program.ranks} ranks in {seconds(timing.time_s)}")
    rows = [
        (_PARTS.get(name, name), seconds(value), _share(value, timing.time_s))
        for name, value in timing.shares.items()
    ]
    console.table(("critical path: where the time goes", "time", "share"), rows)
    busiest = f"the busiest link {percent(timing.link_busy.max(initial=0.0))}"
    if len(shared := utilization.port_busy(network, timing.link_busy)):
        busiest += f", the busiest port {percent(shared.max())}"
    console.data(f"limited by {limit_of_program(network, timing)}; {busiest} of the time")


def limit_of_program(network: Network, timing: ProgramTiming) -> str:
    """Return what limits a program; of transfers, a port that is busier than each link behind it."""
    from ccctl.render.text import utilization

    shared = utilization.port_busy(network, timing.link_busy)
    if not timing.binding.startswith("transfers") or shared.max(initial=0.0) <= timing.link_busy.max():
        return timing.binding
    at = int(shared.argmax())
    port = utilization.in_words(network, [f"port {network.ports[at]}"])[0]
    return f"transfers, most through {port}, busy {percent(float(shared[at]))} of the time"


def _does(program: Program) -> str:
    if program.input_chunks and program.collective.blocks is None:
        return "custom"
    return program.collective.label


def _share(part_s: float, whole_s: float) -> str:
    return percent(part_s / whole_s) if whole_s else "-"


def _lanes(program: Program, lines: int) -> None:
    """Print a line for each threadblock: its peers, and a letter for each of its steps."""
    from synth.program import OPS

    used = sorted({OPS[op] for op in program.op}, key=list(_LETTERS).index)
    console.data("")
    console.data(
        "lanes    a line for each threadblock, a letter for each step: "
        + "; ".join(_legend(op) for op in used)
    )
    console.data("         3 > 5 #1: this threadblock receives from rank 3 and sends to rank 5 on channel 1")
    console.data("steps    i[3] is chunk 3 of the input, o of the output, s of scratch memory")
    for block in range(min(lines, program.threadblocks)):
        start, end = int(program.tb_start[block]), int(program.tb_start[block + 1])
        lane = "".join(_LETTERS[OPS[op]] for op in program.op[start : min(end, start + _WIDTH)])
        more = f" … {end - start - _WIDTH} more" if end - start > _WIDTH else ""
        rank = f"rank {program.tb_rank[block]}" if _first(program, block) else ""
        console.data(f"{rank:<9}{_ends(program, block):<16}{lane}{more}")
    if program.threadblocks > lines:
        console.data(f"… and {program.threadblocks - lines} more lanes")


def _legend(op: str) -> str:
    """Return the letter of an instruction and what it does, with its name if that differs."""
    letter = _LETTERS[op]
    return f"{letter} {MEANINGS[op]}" + (f" ({op})" if op != letter else "")


def _first(program: Program, block: int) -> bool:
    return block == 0 or bool(program.tb_rank[block] != program.tb_rank[block - 1])


def _ends(program: Program, block: int) -> str:
    """Return ``3 > 5 #1`` for a threadblock that receives from 3 and sends to 5 on channel 1."""
    send, recv = int(program.tb_send[block]), int(program.tb_recv[block])
    source = str(recv) if recv >= 0 else ""
    to = str(send) if send >= 0 else ""
    talks = f"{source:>4} > {to:<4}" if source or to else f"{'local':>6}"
    return f"{talks}#{program.tb_channel[block]}" if source or to else talks


def _block(program: Program, block: int, most: int) -> int:
    """Print one threadblock with at most ``most`` steps; return how many were printed."""
    from synth.program import OPS

    start, end = int(program.tb_start[block]), int(program.tb_start[block + 1])
    peers = [
        f"{verb} {peer}"
        for verb, peer in (("sends to", program.tb_send[block]), ("receives from", program.tb_recv[block]))
        if peer >= 0
    ]
    console.data("")
    console.data(
        f"rank {program.tb_rank[block]}, threadblock {block}, channel {program.tb_channel[block]}: "
        f"{', '.join(peers) or 'local'}"
    )
    shown = range(start, min(end, start + most))
    columns = (
        Column("step", lambda row: row - start),
        Column("op", lambda row: OPS[program.op[row]]),
        Column("from", lambda row: _place(program.src_buffer[row], program.src_slot[row])),
        Column("to", lambda row: _place(program.dst_buffer[row], program.dst_slot[row])),
        Column("chunks", program.count.__getitem__),
        Column("waits for", lambda row: _after(program.wait_tb[row], program.wait_step[row])),
    )
    print_table(columns, shown)
    return len(shown)


def _after(block: int, step: int) -> str:
    return f"step {step} of threadblock {block}" if block >= 0 else ""


def _place(buffer: int, slot: int) -> str:
    from synth.program import BUFFERS

    return f"{BUFFERS[buffer]}[{slot}]" if slot >= 0 else "-"
