"""All_reduces with NVLink SHARP beside those of ranks alone, by the model of links.

    python -P benchmarks/nvls.py [MACHINE] [HOSTS…]

For each size: the time of the method nvls, of the fastest of a few methods of ranks alone, both bounds, and
bus bandwidths, at line rate and less what NVLink's protocol takes (rings reach 370 of 450 GB/s on DGX H100).
Published for 8 H100 at large sizes: 480 GB/s with NVLink SHARP, 370 without (nccl-tests).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

from probes.base import format_size
from synth.bounds import bounds
from synth.check import check
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.methods import direct, doubling, hierarchical, nvls, ring
from synth.network import Network
from synth.networks.dgx import pod
from synth.schedules import Schedule
from synth.simulation import replay

_SIZES = [1 << power for power in range(10, 31, 4)]
_LAPS = (1, 4, 16, 64)
_ALONE = (
    direct.synthesize,
    direct.all_pairs,
    ring.synthesize,
    hierarchical.synthesize,
    doubling.halving_doubling,
)
_PROTOCOL = 370 / 450
_MOST_SENDS = 100_000
_LEAST_CHUNK_BYTES = 4096


def main() -> None:
    """Print the table."""
    machine = sys.argv[1] if len(sys.argv) > 1 else "dgx-h100"
    hosts = [int(word) for word in sys.argv[2:]] or [1, 2, 4, 8]
    print(
        "machine      size    nvls us  of bound  ranks alone us  of their bound  gain"
        "  busbw GB/s  less protocol"
    )
    for count in hosts:
        with_switches, alone = pod(f"{machine}+nvls:{count}"), pod(f"{machine}:{count}")
        for size in _SIZES:
            _row(with_switches, alone, size)


def _row(with_switches: Network, alone: Network, size: int) -> None:
    found = [_fastest(with_switches, (nvls.synthesize,), size), _fastest(alone, _ALONE, size)]
    times_s, reached = [], []
    for one in found:
        assert check(one) == []
        times_s.append(replay(one).time_s)
        shape = collective("all_reduce", one.network.ranks)
        reached.append(100 * bounds(one.network, shape, size, fluid=True)[0].time_s / times_s[-1])
    ranks = alone.ranks
    busbw = 2 * (ranks - 1) / ranks * size / times_s[0] / 1e9
    print(
        f"{alone.name:<11} {format_size(size):>5} {times_s[0] * 1e6:>10.2f} {reached[0]:>7.1f} % "
        f"{times_s[1] * 1e6:>15.2f} {reached[1]:>13.1f} %  {times_s[1] / times_s[0]:>4.2f} {busbw:>11.1f} "
        f"{busbw * _PROTOCOL:>14.1f}",
        flush=True,
    )


def _fastest(network: Network, methods: tuple[Callable[..., Schedule], ...], size: int) -> Schedule:
    found = []
    for laps in _LAPS:
        shape = collective("all_reduce", network.ranks, laps * network.ranks)
        chunk_bytes = -(-size // shape.chunks)
        if laps > 1 and (chunk_bytes < _LEAST_CHUNK_BYTES or shape.chunks * network.ranks > _MOST_SENDS):
            break
        for method in methods:
            with suppress(NotApplicableError):
                found.append(method(network, shape, chunk_bytes))
    return min(found, key=lambda one: replay(one).time_s)


if __name__ == "__main__":
    main()
