"""The costs of NCCL's protocols Simple, LL128 and LL (GC3 Sec. 4.3), for the simulator of programs.

LL sends 4 bytes of flag with every 4 bytes of data: the lowest latency, at half of a link's rate. LL128 sends
8 bytes of flag with every 120 bytes of data, for 94 % of the rate. Simple sends data, a memory fence and a
flag: the highest latency, at the full rate. Latencies and rates are from NCCL's tuning model (tuning.cc of
NCCL 2.x), the shares of a link's rate from GC3; none was measured here.

Tiles are the outermost loop of GC3's interpreter: all steps run on one tile of each chunk in turn. A chunk
longer than a tile is cut into tiles, which lie in different memory. So a step waits for steps of other tiles
only in its own threadblock. Tiles are simulated as a longer program on shorter chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from probes.base import ints
from synth.network import Network
from synth.program import Program, Protocol
from synth.simulation.program import Costs, ProgramTiming, simulate_program

__all__ = ["PROTOCOLS", "ProtocolCosts", "as_used_by", "in_tiles", "simulate_by", "tiles_of", "time_by"]

# The size of a tile, and the number of slices in which a message is forwarded (GC3 Sec. 4.3).
_TILE_BYTES, _SLICES = 4 << 20, 4
# The most steps that are simulated; longer programs get fewer, longer tiles.
_MOST_STEPS = 4_000_000
_NOTHING_MORE = Costs()


@dataclass(frozen=True)
class ProtocolCosts:
    """The rate of a threadblock, the fraction of a link's bytes that is data, and the latency of a hop."""

    threadblock_bytes_per_s: float
    part: float
    hop_s: tuple[float, float]
    """The latency of a hop within a host, and between hosts."""


PROTOCOLS: dict[Protocol, ProtocolCosts] = {
    "LL": ProtocolCosts(10e9, 0.5, (0.6e-6, 2.7e-6)),
    "LL128": ProtocolCosts(20e9, 0.94, (1.9e-6, 4.0e-6)),
    "Simple": ProtocolCosts(24e9, 1.0, (3.4e-6, 14.0e-6)),
}


def as_used_by(network: Network, protocol: Protocol) -> Network:
    """Return the network with the latencies and rates that the protocol has on its links.

    The part of a link's alpha that exceeds the latency of a Simple hop belongs to the link, so each
    protocol's hop takes that much longer.
    """
    costs = PROTOCOLS[protocol]
    hop_s, slowest_s = (np.where(network.within_host, *one.hop_s) for one in (costs, PROTOCOLS["Simple"]))
    alpha_s = hop_s + np.maximum(0.0, network.alpha_s - slowest_s)
    return replace(network, alpha_s=alpha_s, beta_s_per_byte=network.beta_s_per_byte / costs.part)


def simulate_by(
    protocol: Protocol, program: Program, network: Network, size_bytes: int, costs: Costs = _NOTHING_MORE
) -> tuple[ProgramTiming, Program, int]:
    """Time a program with a protocol on a buffer; return (timing, simulated program, chunk bytes).

    Chunks move in tiles and slices as in GC3: the simulated program has the steps of one tile after the
    other. The protocol replaces the slices and the threadblock rate of ``costs``.
    """
    chunk_bytes = max(1, -(-size_bytes // program.collective.total_bytes(1)))
    tiles = tiles_of(program, chunk_bytes, _TILE_BYTES)
    tiled, tile_bytes = in_tiles(program, tiles), -(-chunk_bytes // tiles)
    moves = PROTOCOLS[protocol].threadblock_bytes_per_s
    by = replace(costs, threadblock_bytes_per_s=moves, slices=_SLICES)
    return simulate_program(tiled, as_used_by(network, protocol), tile_bytes, by), tiled, tile_bytes


def time_by(protocol: Protocol, program: Program, network: Network, size_bytes: int) -> float:
    """Return the seconds that `simulate_by` finds."""
    return simulate_by(protocol, program, network, size_bytes)[0].time_s


def tiles_of(program: Program, chunk_bytes: int, tile_bytes: int) -> int:
    """Return the number of tiles of a chunk, at least 1; fewer if the program would have too many steps."""
    wanted = max(1, -(-chunk_bytes // tile_bytes))
    return max(1, min(wanted, _MOST_STEPS // max(1, program.steps)))


def in_tiles(program: Program, tiles: int) -> Program:
    """Return the program with each threadblock's steps repeated for each tile; O(steps · tiles).

    The result serves only for timing: all tiles use the slots of the first tile.
    """
    if tiles == 1:
        return program
    length = np.diff(program.tb_start)
    start = ints(program.tb_start * tiles)
    # The step that each new step repeats, and its tile.
    tb = np.repeat(np.arange(program.threadblocks), length * tiles)
    within = np.arange(len(tb)) - start[tb]
    tile, step = within // length[tb], program.tb_start[tb] + within % length[tb]
    waits = program.wait_tb[step]
    ahead = np.where(waits >= 0, length[waits] * tile, 0)
    columns = ("op", "src_buffer", "src_slot", "dst_buffer", "dst_slot", "count", "wait_tb")
    repeated = {name: getattr(program, name)[step] for name in columns}
    given = {name: getattr(program, name)[step] for name in ("line", "turn") if len(getattr(program, name))}
    return replace(
        program, tb_start=start, wait_step=ints(program.wait_step[step] + ahead), **repeated, **given
    )
