"""The interpreter on one GPU: it uploads its ranks' tables once and launches its kernel often.

If a kernel gives up, `waiters` describes which threadblock waited for which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from exec.cuda.kernel.device import Arguments, Device, Kernels, refuse_too_many
from exec.cuda.kernel.encode import BLOCK, PACK_BYTES, RECORD, Encoded
from exec.cuda.kernel.fifo_memory import Arenas
from exec.cuda.kernel.proxies import RemoteFifos
from exec.cuda.kernel.rows import STEP
from exec.cuda.kernel.source import SHORT_THREADS, THREADS
from probes.base import Indices, LostRankError

__all__ = ["Addresses", "Interpreter", "divide_sums", "own_tables", "waiters"]

# Threadblocks spin while they wait; without a limit, a lost peer would occupy the GPU for ever.
LIMIT_S = 30.0
# Numbers that a threadblock records when it gives up, the same as in interpreter.cu. _RAN_OUT is the state of
# a threadblock whose own time ran out. _MESSAGE, _ROOM and _STEP are reasons: it waited for a message, for
# room in a FIFO, or for a step of another threadblock.
_RAN_OUT = 1
_MESSAGE, _ROOM, _STEP = 1, 2, 3
# Index of the launch's number among the arguments of the kernel.
_LAUNCH = 8
Addresses = Sequence[tuple[int, int, int]]
"""The addresses of input, output and scratch, for each rank that runs on this GPU."""


class Interpreter:
    """The threadblocks of consecutive ``ranks`` in one cooperative kernel.

    ``bases`` are the addresses of each rank's arena in this process; ``remote`` are the FIFOs between hosts.
    Raises UnavailableError if the GPU cannot run all the threadblocks at once.
    """

    def __init__(
        self,
        device: Device,
        kernels: Kernels,
        encoded: Encoded,
        places: Arenas,
        bases: Sequence[int],
        ranks: range,
        *,
        limit_s: float = LIMIT_S,
        remote: RemoteFifos | None = None,
    ) -> None:
        self._device, self._kernels, self._encoded = device, kernels, encoded
        rows = range(encoded.blocks_of(ranks[0]).start, encoded.blocks_of(ranks[-1]).stop)
        refuse_too_many(len(rows), kernels.resident, device.multiprocessors)
        blocks, steps = own_tables(encoded, ranks)
        links = places.links(encoded, bases, rows)
        if remote is not None:
            remote.point(links, rows)
        tables = (blocks, steps, encoded.more, links)
        self._blocks = len(rows)
        tile_bytes = encoded.tile * encoded.itemsize
        self._threads = SHORT_THREADS if tile_bytes <= SHORT_THREADS * PACK_BYTES else THREADS
        self._tables = [device.uploaded(table) for table in tables]
        self._flags = device.memory(8 * len(rows))
        self._buffers = device.memory(8 * 3 * len(ranks))
        self._addresses: Addresses = ()
        self._records = device.pinned((len(rows), len(RECORD)), "int64")
        self._stop = device.pinned((1,), "uint64")
        pointers = [*(table.ptr for table in self._tables[:3]), self._buffers.ptr, self._tables[3].ptr]
        pointers += [self._flags.ptr, self._records.ctypes.data, self._stop.ctypes.data]
        numbers = (0, encoded.tile, encoded.tiles, encoded.slices, int(limit_s * 1e9))
        self._arguments = Arguments((*pointers, *numbers))
        self._launches = 0

    def launch(self, addresses: Addresses) -> None:
        """Queue the kernel on the device's stream; ``finish`` waits for it."""
        stream = self._device.stream
        if self._addresses != addresses:
            with self._device.translating_errors():
                stream.synchronize()
            self._device.upload(self._buffers, np.array(addresses, dtype=np.int64))
            self._addresses = addresses
        self._arguments.values[_LAUNCH] = self._launches
        with self._device.translating_errors():
            self._kernels.start(self._blocks, self._threads, self._arguments, stream)
        self._launches += 1

    def finish(self) -> None:
        """Wait until the kernel has ended.

        Raises LostRankError, naming what each threadblock waited for, if the kernel gave up. FIFOs then still
        hold messages, so a new interpreter must be made.
        """
        with self._device.translating_errors():
            self._device.stream.synchronize()
        if self._stop[0]:
            raise LostRankError(waiters(self._encoded, self._records))

    def stop(self) -> None:
        """Make a waiting kernel give up and record what it waits for."""
        self._stop[0] = 1


def divide_sums(
    device: Device, kernels: Kernels, sums: Iterable[tuple[int, int, int]], output: int, itemsize: int
) -> None:
    """Queue the division of an average's ``sums`` (`Layout.sums`) in the output at address ``output``."""
    with device.translating_errors():
        for first, stop, summands in sums:
            grid = (min(-(-(stop - first) // THREADS), 2 * device.multiprocessors),)
            arguments = (np.int64(output + first * itemsize), np.int64(stop - first), np.int32(summands))
            kernels.divide(grid, (THREADS,), arguments, stream=device.stream)


def own_tables(encoded: Encoded, ranks: range) -> tuple[Indices, Indices]:
    """Return (blocks, steps) of these ranks only, with indices that start at the first of them."""
    rows = range(encoded.blocks_of(ranks[0]).start, encoded.blocks_of(ranks[-1]).stop)
    blocks = encoded.blocks[rows.start : rows.stop].copy()
    first, count, buffers = (BLOCK.index(name) for name in ("first", "steps", "buffers"))
    begin = int(blocks[0, first]) if len(blocks) else 0
    steps = encoded.steps[begin : begin + int(blocks[:, count].sum())].copy()
    wait = STEP.index("wait_block")
    steps[:, wait] -= np.where(steps[:, wait] >= 0, rows.start, 0)
    blocks[:, first] -= begin
    blocks[:, buffers] -= ranks[0]
    return blocks, steps


def waiters(encoded: Encoded, records: Indices) -> list[str]:
    """Return a line for each threadblock that waited, first those whose own time ran out.

    ``records`` has a row of RECORD for each threadblock that was launched.
    """
    rows = [dict(zip(RECORD, row, strict=True)) for row in records.tolist() if row[RECORD.index("state")]]
    rows.sort(key=lambda row: (row["state"] != _RAN_OUT, row["rank"], row["number"]))
    return list(_lines(encoded, rows))


def _lines(encoded: Encoded, rows: Iterable[dict[str, int]]) -> Iterable[str]:
    program = encoded.layout.program
    for row in rows:
        tb = encoded.blocks_of(row["rank"])[row["number"]]
        step = int(program.tb_start[tb]) + row["origin"]
        part = f"tile {row['tile']}, slice {row['slice']}"
        found = f"found {row['seen']}, needs {row['wanted']}"
        yield f"{program.place(step)} waits for {_whom(row)} ({part}; {found})"


def _whom(row: dict[str, int]) -> str:
    match row["reason"]:
        case reason if reason == _MESSAGE:
            return f"a message from rank {row['peer']} on channel {row['channel']}"
        case reason if reason == _ROOM:
            return f"rank {row['peer']} to receive on channel {row['channel']}"
        case reason if reason == _STEP:
            return f"threadblock {row['peer']} of its rank"
    raise AssertionError(f"reason {row['reason']}")
