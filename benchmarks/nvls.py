"""All_reduces with NVLink SHARP beside those of ranks alone, by the model of links.

    python -P benchmarks/nvls.py [MACHINE] [HOSTS…]

For each size: the time of the faster of the method nvls and a few methods of ranks alone, and of the fastest
of the latter, both with their bounds; and bus bandwidths, at line rate and less what NVLink's protocol takes
(rings reach 370 of 450 GB/s on DGX H100). Published for 8 H100 at large sizes: 480 GB/s with NVLink SHARP,
370 without (nccl-tests). Schedules and their programs are proven, and the programs run on data in the
reference interpreter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np

from exec.program import expected_output
from exec.program.interpreter import interpret
from exec.program.layout import Layout
from probes.base import format_size
from synth.bounds import bounds
from synth.check import check
from synth.check.program import examine
from synth.collective import collective
from synth.compiler import lower
from synth.errors import NotApplicableError
from synth.methods import direct, doubling, hierarchical, nvls, ring
from synth.network import Network
from synth.networks.dgx import pod
from synth.program import Program
from synth.schedules import Schedule
from synth.scheduling import block_exchange
from synth.simulation import replay

_SIZES = [1 << power for power in range(10, 31, 4)]
_LAPS = (1, 4, 16, 32, 64)
_Method = Callable[..., Schedule]
_ALONE = (
    direct.synthesize,
    direct.all_pairs,
    ring.synthesize,
    hierarchical.synthesize,
    doubling.halving_doubling,
    block_exchange.synthesize,
)
_PROTOCOL = 370 / 450
_MOST_SENDS = 140_000
_LEAST_CHUNK_BYTES = 4096
_MOST_EXCHANGED_BYTES = 1 << 18
# The most elements of each rank that the interpreter runs a program on.
_MOST_ELEMENTS = 1 << 16


def main() -> None:
    """Print the table."""
    machine = sys.argv[1] if len(sys.argv) > 1 else "dgx-h100"
    hosts = [int(word) for word in sys.argv[2:]] or [1, 2, 4, 8]
    print(
        "machine      size          method         us  of bound  ranks alone us  of their bound  gain"
        "  busbw GB/s  less protocol  wrong"
    )
    for count in hosts:
        with_switches, alone = pod(f"{machine}+nvls:{count}"), pod(f"{machine}:{count}")
        for size in _SIZES:
            _row(with_switches, alone, size)


def _row(with_switches: Network, alone: Network, size: int) -> None:
    # Without sums by switches both networks are the same.
    by_ranks = _fastest(alone, _ALONE, size)
    ours = min((by_ranks, _fastest(with_switches, (nvls.synthesize,), size)), key=_time_s)
    times_s, reached = [_time_s(one) for one in (ours, by_ranks)], []
    for one, network, time_s in zip((ours, by_ranks), (with_switches, alone), times_s, strict=True):
        assert check(one) == []
        shape = collective("all_reduce", network.ranks)
        reached.append(100 * bounds(network, shape, size, fluid=True)[0].time_s / time_s)
    ranks, wrong = alone.ranks, _wrong(lower(ours), size)
    busbw = 2 * (ranks - 1) / ranks * size / times_s[0] / 1e9
    print(
        f"{alone.name:<11} {format_size(size):>5} {ours.method:>15} {times_s[0] * 1e6:>10.2f} "
        f"{reached[0]:>7.1f} % {times_s[1] * 1e6:>15.2f} {reached[1]:>13.1f} %  "
        f"{times_s[1] / times_s[0]:>4.2f} {busbw:>11.1f} {busbw * _PROTOCOL:>14.1f} {wrong:>6}",
        flush=True,
    )


def _time_s(schedule: Schedule) -> float:
    return replay(schedule).time_s


def _wrong(program: Program, size: int) -> int:
    """Return the number of wrong elements, over all ranks; the program must be proven."""
    assert examine(program).findings == ()
    layout, kind = Layout(program, min(_MOST_ELEMENTS, size // 4)), np.dtype("float32")
    inputs = [expected_output.given(layout, rank, kind, "sum") for rank in range(program.ranks)]
    outputs = interpret(program, inputs)
    right = (expected_output.expected(layout, rank, kind, "sum") for rank in range(program.ranks))
    return sum(int(np.count_nonzero(one != other)) for one, other in zip(outputs, right, strict=True))


def _fastest(network: Network, methods: tuple[_Method, ...], size: int) -> Schedule:
    return min((one for method in methods for one in _schedules(network, method, size)), key=_time_s)


def _schedules(network: Network, method: _Method, size: int) -> Iterator[Schedule]:
    counts = [laps * network.ranks for laps in _LAPS]
    if method is block_exchange.synthesize:
        counts = [*block_exchange.chunk_counts(network)] if size <= _MOST_EXCHANGED_BYTES else []
    for chunks in counts:
        chunk_bytes = -(-size // chunks)
        if chunks > counts[0] and (chunk_bytes < _LEAST_CHUNK_BYTES or chunks * network.ranks > _MOST_SENDS):
            return
        with suppress(NotApplicableError):
            yield method(network, collective("all_reduce", network.ranks, chunks), chunk_bytes)


if __name__ == "__main__":
    main()
