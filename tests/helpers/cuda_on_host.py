"""The CUDA kernels built for this machine's processor: all ranks in one process, blocks as threads."""

import ctypes
import functools
import hashlib
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exec.cuda.kernel.encode import RECORD, SPARE_SLOTS, encoded
from exec.cuda.kernel.fifo_memory import arenas
from exec.cuda.kernel.launch import own_tables, waiters
from exec.cuda.kernel.source import kernels
from exec.program import dtype_of, expected_output
from exec.program.layout import Layout
from synth.program import OUTPUT, SCRATCH

__all__ = ["COMPILER", "Outcome", "bits_of", "library", "run_on_host", "values_of", "wrong"]

COMPILER = shutil.which("g++")
# git ignores it, and `make clean` removes it.
_KEPT = Path(__file__).parents[2] / ".pytest_cache" / "cuda-on-host"
_LAUNCHER = """
extern "C" void run_interpreter(i64 count, int threads, const i64* blocks, const i64* steps, const i64* more,
                                const i64* buffers, const i64* links, u64* flags, i64* records, u64* stop,
                                i64 begin, i64 tile, i64 tiles, i64 slices, i64 limit_ns) {
    launch(count, threads, [=] {
        ccctl_interpret(blocks, steps, more, buffers, links, flags, records, stop, begin, tile, tiles, slices,
                        limit_ns);
    });
}
extern "C" void run_combine(i64 count, int threads, const ELEMENT* first, const ELEMENT* second,
                            ELEMENT* into, ELEMENT* also, i64 length) {
    launch(count, threads, [=] { ccctl_combine(first, second, into, also, length); });
}
extern "C" void run_divide(ELEMENT* values, i64 length, int by) {
    launch(1, 1, [=] { ccctl_divide(values, length, by); });
}
"""


@dataclass
class Outcome:
    """The buffers of each rank at the end, and the kernel's records."""

    outputs: list
    records: np.ndarray


@functools.cache
def library(dtype, redop, *flags, wire_protocol="Simple", multimem=False):
    """The kernels as a shared library, compiled once on this machine for all that it is made of."""
    redop = "sum" if redop == "avg" else redop
    header = Path(__file__).with_name("blocks_as_threads.h")
    text = f"{kernels(dtype, redop, wire_protocol, multimem=multimem)}\n{_LAUNCHER}"
    # Unoptimized code compiles in half the time. One type and operator has all the protocols, optimized.
    level = "-O1" if (dtype, redop) == ("float32", "sum") else "-O0"
    options = ["-std=c++17", level, "-pthread", "-shared", "-fPIC", "-Wall", "-Wno-unknown-pragmas", *flags]
    made_of = "\n".join([_compiler_version(), header.read_text(), text, *options])
    kept = _KEPT / f"{hashlib.sha256(made_of.encode()).hexdigest()}.so"
    if not kept.exists():
        _KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_KEPT) as folder:
            source, made = Path(folder, "kernels.cpp"), Path(folder, "kernels.so")
            source.write_text(text)
            command = [COMPILER, *options, f'-DCCCTL_HOST="{header}"', str(source), "-o", str(made)]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert "warning" not in done.stderr, done.stderr
            made.rename(kept)
    return ctypes.CDLL(str(kept))


@functools.cache
def _compiler_version():
    return subprocess.run([COMPILER, "-v"], capture_output=True, text=True, check=True).stderr


def run_on_host(
    encoded,
    inputs,
    dtype,
    redop,
    *,
    in_place=False,
    threads=1,
    launches=1,
    limit_s=60.0,
    flags=(),
    apart=False,
):
    """Run ``encoded`` on ``inputs``, arrays of storage type, ``launches`` times on the same FIFOs.

    ``apart``: each rank is a launch of its own, with its own tables only, as on several GPUs.
    """
    layout = encoded.layout
    group = layout.program.group
    multimem = {"multimem": True} if len(group) else {}
    kernel = library(dtype, redop, *flags, wire_protocol=encoded.wire_protocol, **multimem)
    every = range(len(inputs))
    places = arenas(encoded)
    memory = [_aligned(int(size)) for size in places.sizes]
    bases = [each.ctypes.data for each in memory]
    groups = [range(rank, rank + 1) for rank in every] if apart else [every]
    launched = [_Launch(kernel, encoded, places.links, bases, group) for group in groups]
    for number in range(launches):
        buffers = [_buffers(layout, rank, given, in_place) for rank, given in enumerate(inputs)]
        reached = _reached(kernel, buffers, group.tolist())
        with ThreadPoolExecutor(len(launched)) as pool:
            running = [pool.submit(each.run, buffers, reached, threads, number, limit_s) for each in launched]
        for each in running:
            each.result()
    outputs = [own[OUTPUT] for own in buffers]
    if redop == "avg":
        for rank, output in enumerate(outputs):
            for start, stop, by in layout.sums(rank):
                at = ctypes.c_void_p(output[start:].ctypes.data)
                kernel.run_divide(at, ctypes.c_int64(stop - start), by)
    return Outcome(outputs, np.concatenate([each.records for each in launched]))


def _storage(dtype):
    """The type whose values the exact results are computed in."""
    return np.dtype("float32" if dtype == "bfloat16" else dtype)


def wrong(
    program, count, dtype="float32", redop="sum", *, tile_bytes=1024, slice_bytes=256, by="Simple", **how
):
    """Elements that are not what they must be, over all ranks."""
    layout = Layout(program, count)
    cut = {"tile_bytes": tile_bytes, "slice_bytes": slice_bytes, "wire_protocol": by}
    cut["spare_slots"] = SPARE_SLOTS
    table = encoded(layout, dtype_of(dtype).itemsize, **cut)
    of = "sum" if redop == "avg" else redop
    inputs = [
        bits_of(expected_output.given(layout, rank, _storage(dtype), of), dtype)
        for rank in range(program.ranks)
    ]
    found = run_on_host(table, inputs, dtype, redop, **how)
    assert waiters(table, found.records) == []
    bad = 0
    for rank, output in enumerate(found.outputs):
        right = expected_output.expected(layout, rank, _storage(dtype), of)
        if redop == "avg" and program.collective.reduces:
            right = np.trunc(right / program.ranks) if right.dtype.kind in "iu" else right / program.ranks
        bad += int(np.count_nonzero(output != bits_of(right, dtype)))
    return bad


class _Launch:
    """The threadblocks of some ranks, with their tables, and what the kernel keeps between launches."""

    def __init__(self, kernel, encoded, links, bases, ranks):
        self.kernel, self.encoded, self.ranks = kernel, encoded, ranks
        self.blocks, self.steps = own_tables(encoded, ranks)
        first = encoded.blocks_of(ranks[0]).start
        self.links = links(encoded, bases, range(first, first + len(self.blocks)))
        self.flags = np.zeros(len(self.blocks), dtype=np.uint64)
        self.records = np.zeros((len(self.blocks), len(RECORD)), dtype=np.int64)
        self.stop = np.zeros(1, dtype=np.uint64)

    def run(self, buffers, reached, threads, number, limit_s):
        encoded = self.encoded
        addresses = np.array(
            [[*(each.ctypes.data for each in buffers[rank]), *reached[rank]] for rank in self.ranks], np.int64
        )
        tables = (self.blocks, self.steps, encoded.more, addresses, self.links, self.flags, self.records)
        numbers = (number, encoded.tile, encoded.tiles, encoded.slices, int(limit_s * 1e9))
        self.kernel.run_interpreter(
            ctypes.c_int64(len(self.blocks)),
            threads,
            *(ctypes.c_void_p(table.ctypes.data) for table in (*tables, self.stop)),
            *map(ctypes.c_int64, numbers),
        )


def _reached(kernel, buffers, group):
    """Let a switch reach the ranks of each group; return its addresses of every rank's buffers."""
    if not group:
        return [()] * len(buffers)
    regions, reached = [], [[] for _ in buffers]
    for number in sorted(set(group)):
        members = [rank for rank, each in enumerate(group) if each == number]
        for at in range(3):
            first = len(regions) + 1 << 44
            memory = [buffers[rank][at].ctypes.data for rank in members]
            regions.append([first, buffers[members[0]][at].nbytes, len(members), *memory])
            for rank in members:
                reached[rank].append(first)
    table = np.array([[*region, *[0] * (67 - len(region))] for region in regions], np.uint64)
    kernel.reach(ctypes.c_int64(len(table)), ctypes.c_void_p(table.ctypes.data))
    return reached


def bits_of(values, dtype):
    """Values in the storage type of the kernels: bfloat16 as the upper half of float32."""
    if dtype == "bfloat16":
        return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return np.asarray(values).astype(dtype)


def values_of(bits, dtype):
    """The values that bits of the storage type stand for."""
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits


def _buffers(layout, rank, given, in_place):
    scratch = _aligned(layout.elements(rank, SCRATCH) * given.itemsize).view(given.dtype)
    if not in_place:
        output = _aligned(layout.elements(rank, OUTPUT) * given.itemsize).view(given.dtype)
        return given.copy(), output, scratch
    total, where_in, where_out = layout.in_place(rank)
    whole = _aligned(total * given.itemsize).view(given.dtype)
    whole[where_in] = given
    return whole[where_in], whole[where_out], scratch


def _aligned(size_bytes):
    """Zeros at an address that a device's allocator would give."""
    raw = np.zeros(size_bytes + 256, dtype=np.uint8)
    skip = -raw.ctypes.data % 256
    return raw[skip : skip + size_bytes]
