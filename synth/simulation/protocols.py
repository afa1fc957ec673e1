"""What NCCL's protocols cost on GPUs: Simple, LL128 and LL (GC3 Sec. 4.3), for the simulator of programs.

LL sends 4 bytes of data beside 4 of flag, so that a hop waits for nothing else, at half of a link's rate;
LL128 sends 120 bytes beside 8 of flag, 94 %; Simple sends all data and then orders it before a flag, which
takes longest. Figures are NCCL's own reckoning (tuning.cc of NCCL 2.x; the shares of a link GC3's): none was
measured here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from synth.network import Network
from synth.program import Program, Protocol
from synth.simulation.program import Costs, ProgramTiming, simulate_program
from synth.simulation.tiles import in_tiles, tiles_of

__all__ = ["PROTOCOLS", "ProtocolCosts", "as_used_by", "simulate_by", "time_by"]

# GC3 Sec. 4.3.
_TILE_BYTES, _SLICES = 4 << 20, 4
_NOTHING_MORE = Costs()


@dataclass(frozen=True)
class ProtocolCosts:
    """What a threadblock moves, which part of a link is data, and what a hop takes: inside, between hosts."""

    threadblock_bytes_per_s: float
    part: float
    hop_s: tuple[float, float]


PROTOCOLS: dict[Protocol, ProtocolCosts] = {
    "LL": ProtocolCosts(10e9, 0.5, (0.6e-6, 2.7e-6)),
    "LL128": ProtocolCosts(20e9, 0.94, (1.9e-6, 4.0e-6)),
    "Simple": ProtocolCosts(24e9, 1.0, (3.4e-6, 14.0e-6)),
}


def as_used_by(network: Network, protocol: Protocol) -> Network:
    """The network's links as a protocol uses them.

    A latency beyond a hop of Simple is that of the link itself, which no protocol saves.
    """
    costs = PROTOCOLS[protocol]
    hop_s, slowest_s = (np.where(network.within_host, *one.hop_s) for one in (costs, PROTOCOLS["Simple"]))
    alpha_s = hop_s + np.maximum(0.0, network.alpha_s - slowest_s)
    return replace(network, alpha_s=alpha_s, beta_s_per_byte=network.beta_s_per_byte / costs.part)


def simulate_by(
    protocol: Protocol, program: Program, network: Network, size_bytes: int, costs: Costs = _NOTHING_MORE
) -> tuple[ProgramTiming, Program, int]:
    """(timing, what was timed, bytes of its chunks): the program by a protocol on a buffer of so many bytes.

    Chunks move in tiles and slices as in GC3: what is timed has the steps of all tiles in turn. Of ``costs``
    the protocol sets slices and what a threadblock moves.
    """
    chunk_bytes = max(1, -(-size_bytes // program.collective.total_bytes(1)))
    tiles = tiles_of(program, chunk_bytes, _TILE_BYTES)
    tiled, tile_bytes = in_tiles(program, tiles), -(-chunk_bytes // tiles)
    moves = PROTOCOLS[protocol].threadblock_bytes_per_s
    by = replace(costs, threadblock_bytes_per_s=moves, slices=_SLICES)
    return simulate_program(tiled, as_used_by(network, protocol), tile_bytes, by), tiled, tile_bytes


def time_by(
    protocol: Protocol, program: Program, network: Network, size_bytes: int, *, message_s: float = 0.0
) -> float:
    """Seconds of what ``simulate_by`` times, with what a message costs a NIC beside its bytes."""
    return simulate_by(protocol, program, network, size_bytes, Costs(message_s=message_s))[0].time_s
