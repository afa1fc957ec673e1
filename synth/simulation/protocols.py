"""The costs of NCCL's protocols Simple, LL128 and LL on GPUs (GC3 Sec. 4.3), for the simulator of programs.

LL sends 4 bytes of flag with every 4 bytes of data: the lowest latency, at half of a link's rate. LL128 sends
8 bytes of flag with every 120 bytes of data, for 94 % of the rate. Simple sends data, a memory fence and a
flag: the highest latency, at the full rate. Latencies and rates are from NCCL's tuning model (tuning.cc of
NCCL 2.x), the shares of a link's rate from GC3; none was measured here.
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
    """The rate of a threadblock, the part of a link's bytes that is data, and hop latency."""

    threadblock_bytes_per_s: float
    part: float
    hop_s: tuple[float, float]
    """Inside a host, and between hosts."""


PROTOCOLS: dict[Protocol, ProtocolCosts] = {
    "LL": ProtocolCosts(10e9, 0.5, (0.6e-6, 2.7e-6)),
    "LL128": ProtocolCosts(20e9, 0.94, (1.9e-6, 4.0e-6)),
    "Simple": ProtocolCosts(24e9, 1.0, (3.4e-6, 14.0e-6)),
}


def as_used_by(network: Network, protocol: Protocol) -> Network:
    """The network with the latencies and rates that the protocol has on its links.

    A link's alpha in excess of a Simple hop is the link's own: every protocol has it on top of its hop.
    """
    costs = PROTOCOLS[protocol]
    hop_s, slowest_s = (np.where(network.within_host, *one.hop_s) for one in (costs, PROTOCOLS["Simple"]))
    alpha_s = hop_s + np.maximum(0.0, network.alpha_s - slowest_s)
    return replace(network, alpha_s=alpha_s, beta_s_per_byte=network.beta_s_per_byte / costs.part)


def simulate_by(
    protocol: Protocol, program: Program, network: Network, size_bytes: int, costs: Costs = _NOTHING_MORE
) -> tuple[ProgramTiming, Program, int]:
    """Time a program with a protocol on a buffer of so many bytes: (timing, simulated program, chunk bytes).

    Chunks move in tiles and slices as in GC3: the simulated program has the steps of all tiles in turn. The
    protocol replaces the slices and the threadblock rate of ``costs``.
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
    """The seconds that `simulate_by` finds; a message costs a NIC ``message_s`` in addition to its bytes."""
    return simulate_by(protocol, program, network, size_bytes, Costs(message_s=message_s))[0].time_s
