"""Time an all_reduce of eight ranks on one GPU, in one cooperative kernel, beside plain copies.

Prints a row for each size and protocol: the time of one of many runs in a row, and the time in which plain
copies move as many bytes as all steps read and write, at the bandwidth measured in the same run. A ratio of 1
would be a perfect kernel. Without --instances the ring has the fastest number of instances among the powers
of two that fit.

    python -P benchmarks/one_gpu.py [--ranks 8] [--instances N] [--sizes 1K,1M] [--iters 20]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ccctl.errors import CcctlError
from exec.cuda.kernel.device import Device, Kernels
from exec.cuda.kernel.encode import WireProtocol
from exec.program import Array, expected_output
from exec.program.layout import Layout
from probes.base import parse_size
from synth.lang.algorithm_file import compiled_algorithm
from synth.program import Program

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
PROTOCOLS: tuple[WireProtocol, ...] = ("Simple", "LL128", "LL")
sys.path.append(str(ROOT / "tests" / "helpers"))
from one_device import OneDevice  # noqa: E402 - the machine of the tests


def timed_s(device: Device, work: Any, iterations: int) -> float:
    """Return the time of one of many runs in a row, as in nccl-tests: the median of five tries."""
    times = []
    for _ in range(6):
        first, last = (device.cupy.cuda.Event() for _ in range(2))
        first.record(device.stream)
        for _ in range(iterations):
            work()
        last.record(device.stream)
        last.synchronize()
        times.append(device.cupy.cuda.get_elapsed_time(first, last) / 1000 / iterations)
    return float(np.median(times[1:]))


def copy_bytes_per_s(device: Device, iterations: int) -> float:
    """Return the bytes per second that copies of 1 GiB within the GPU read and write."""
    size = 1 << 30
    source, target = device.memory(size), device.memory(size)
    copy = device.cupy.cuda.runtime.memcpyAsync
    seconds = timed_s(device, lambda: copy(target.ptr, source.ptr, size, 3, device.stream.ptr), iterations)
    return 2 * size / seconds


@dataclass(frozen=True)
class Timed:
    """The time of one size by one protocol; ``copies_s`` is that of copying the same bytes."""

    size_bytes: int
    protocol: str
    instances: int
    seconds: float
    copies_s: float
    wrong: int


def main() -> int:
    """Print the table; 1 if an element is wrong, 69 if there is no GPU."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--ranks", type=int, default=8)
    options.add_argument("--instances", type=int)
    options.add_argument("--sizes", default="1K,16K,256K,4M,64M,256M")
    options.add_argument("--iters", type=int, default=20)
    options.add_argument("--json", metavar="FILE")
    asked = options.parse_args()
    try:
        found = measure(asked)
    except CcctlError as error:
        print(f"one_gpu: {error.message}\n{error.hint}", file=sys.stderr)
        return 69
    if asked.json:
        Path(asked.json).write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n")
    return int(any(row.wrong for row in found))


def measure(asked: argparse.Namespace) -> list[Timed]:
    """Run and print each row."""
    device = Device()
    rate = copy_bytes_per_s(device, asked.iters)
    print(f"{device.name}: copies read and write {rate / 1e9:.0f} GB/s")
    print(f"all_reduce on {asked.ranks} ranks, one kernel")
    print(
        f"{'size':>6} {'protocol':8} {'instances':>9} {'us':>10} {'copies us':>10} {'ratio':>6} {'wrong':>5}"
    )
    found = []
    for size in asked.sizes.split(","):
        size_bytes = parse_size(size, "--sizes")
        plain = Layout(ring(asked.ranks, 1), size_bytes // 4)
        numbers = np.dtype("float32")
        held = [expected_output.given(plain, rank, numbers, "sum") for rank in range(asked.ranks)]
        right = device.cupy.asarray(expected_output.expected(plain, 0, numbers, "sum"))
        for protocol in PROTOCOLS:
            of_size = []
            for instances in instances_that_fit(device, asked, protocol):
                layout = Layout(replace(ring(asked.ranks, instances), protocol=protocol), size_bytes // 4)
                of_size.append(timed(device, layout, held, right, asked.iters, rate, instances))
            best = min(of_size, key=lambda row: row.seconds)
            found += of_size
            print(
                f"{size:>6} {protocol:8} {best.instances:9} {best.seconds * 1e6:10.1f} "
                f"{best.copies_s * 1e6:10.1f} {best.copies_s / best.seconds:6.2f} "
                f"{sum(row.wrong for row in of_size):5}",
                flush=True,
            )
    return found


def ring(ranks: int, instances: int) -> Program:
    """Return the ring of the examples."""
    program, _ = compiled_algorithm(
        str(EXAMPLES / "ring_allreduce.py"), {"ranks": ranks}, instances=instances
    )
    return program


def instances_that_fit(device: Device, asked: argparse.Namespace, protocol: WireProtocol) -> list[int]:
    """Return the numbers of instances to try: the requested one, or all powers of two that fit."""
    if asked.instances:
        return [asked.instances]
    room = Kernels(device, "float32", "sum", protocol).resident * device.multiprocessors // asked.ranks
    return [1 << power for power in range(room.bit_length())]


def timed(
    device: Device,
    layout: Layout,
    held: Sequence[Array],
    right: Any,
    iterations: int,
    rate: float,
    instances: int,
) -> Timed:
    """Return the time of a program, after a first run whose result is compared with ``right``."""
    buffers = [device.cupy.asarray(each) for each in held]
    machine = OneDevice(device, layout, buffers, buffers, "float32")
    machine.run()
    wrong = sum(int(device.cupy.count_nonzero(buffer != right)) for buffer in buffers)
    seconds = timed_s(device, machine.start, iterations)
    machine.finish()
    needed_s = machine.encoded.moved_bytes / rate
    return Timed(buffers[0].nbytes, layout.program.protocol, instances, seconds, needed_s, wrong)


if __name__ == "__main__":
    sys.exit(main())
