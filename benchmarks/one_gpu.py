"""Eight ranks on one GPU, in one cooperative kernel, against what the bytes moved need at copy bandwidth.

Prints, for each size, the median time, the bytes that all steps read and write, the time they need at
the bandwidth of plain copies measured in the same run, and the ratio: 1 would be a perfect kernel.

Without --instances the ring has as many as the GPU holds at once, a power of two of them.

    python -P benchmarks/one_gpu.py [--ranks 8] [--instances N] [--size 256M] [--iters 20]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ccctl.errors import CcctlError
from exec.cuda.kernel.device import Device, Kernels
from exec.program import expected_output
from exec.program.layout import Layout
from probes.base import parse_size
from synth.lang.algorithm_file import compiled_algorithm

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
sys.path.append(str(ROOT / "tests" / "helpers"))
from one_device import OneDevice  # noqa: E402 - the machine of the tests


def timed_s(device: Device, work: Any, iterations: int) -> float:
    """Return the median time of ``work`` on the device's stream, after three untimed."""
    times = []
    for number in range(-3, iterations):
        first, last = (device.cupy.cuda.Event() for _ in range(2))
        first.record(device.stream)
        work()
        last.record(device.stream)
        last.synchronize()
        if number >= 0:
            times.append(device.cupy.cuda.get_elapsed_time(first, last) / 1000)
    return float(np.median(times))


def copy_bytes_per_s(device: Device, iterations: int) -> float:
    """Return bytes read and written a second by copies of 1 GiB within the GPU."""
    size = 1 << 30
    source, target = device.memory(size), device.memory(size)
    copy = device.cupy.cuda.runtime.memcpyAsync
    seconds = timed_s(device, lambda: copy(target.ptr, source.ptr, size, 3, device.stream.ptr), iterations)
    return 2 * size / seconds


def main() -> int:
    """Print one line, and how many elements were wrong; 69 where there is no GPU."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--ranks", type=int, default=8)
    options.add_argument("--instances", type=int)
    options.add_argument("--size", default="256M")
    options.add_argument("--iters", type=int, default=20)
    asked = options.parse_args()
    try:
        return measure(asked)
    except CcctlError as error:
        print(f"one_gpu: {error.message}\n{error.hint}", file=sys.stderr)
        return 69


def measure(asked: argparse.Namespace) -> int:
    """Run and print; 1 where an element is wrong."""
    device = Device()
    ring = str(EXAMPLES / "ring_allreduce.py")
    room = Kernels(device, "float32", "sum").resident * device.multiprocessors
    instances = asked.instances or 1 << ((room // asked.ranks).bit_length() - 1)
    program, _ = compiled_algorithm(ring, {"ranks": asked.ranks}, instances=instances)
    layout = Layout(program, parse_size(asked.size, "--size") // 4)
    given = [expected_output.given(layout, rank, np.dtype("float32"), "sum") for rank in range(asked.ranks)]
    buffers = [device.cupy.asarray(each) for each in given]
    machine = OneDevice(device, layout, buffers, buffers, "float32")
    machine.run()
    wrong = sum(
        int(np.count_nonzero(device.cupy.asnumpy(buffer) != expected(layout, rank)))
        for rank, buffer in enumerate(buffers)
    )
    seconds = timed_s(device, machine.start, asked.iters)
    machine.finish()
    rate = copy_bytes_per_s(device, asked.iters)
    moved = machine.encoded.moved_bytes
    print(f"{device.name}: copies move {rate / 1e9:.0f} GB/s (bytes read and written)")
    print(
        f"{asked.ranks} ranks, {program.threadblocks} threadblocks, all_reduce of {asked.size}: "
        f"{seconds * 1e3:.3f} ms; {moved / 1e9:.2f} GB moved need {moved / rate * 1e3:.3f} ms: "
        f"{moved / rate / seconds:.2f} of copy bandwidth, {wrong} wrong"
    )
    return int(wrong > 0)


def expected(layout: Layout, rank: int) -> Any:
    """Return what ``rank`` must end with."""
    return expected_output.expected(layout, rank, np.dtype("float32"), "sum")


if __name__ == "__main__":
    sys.exit(main())
