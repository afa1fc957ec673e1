"""The memory demand of a run: an upper bound for each rank, computed before the run starts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from exec.mpi import window_bytes_at_most
from exec.program import Layout
from probes.live import Need
from synth.collective import Kind
from synth.program import INPUT, OUTPUT

__all__ = ["bench_need", "least_bench_need", "run_need", "start_needs"]

# Memory of a rank besides its buffers: compiled loops, tables of the plan, libraries to compare with.
_BESIDE_BYTES = 64 << 20
# MPI's share of /dev/shm for each rank.
_MPI_SHARED_BYTES = 1 << 20
# Collectives whose expected output is concatenated from the data of several ranks.
_JOINED = ("all_gather", "all_to_all")


def bench_need(
    layouts: Iterable[Layout],
    rank: int,
    item_bytes: int,
    placements: Iterable[bool],
    *,
    peers: bool,
    far: bool,
) -> Need:
    """Return the memory that ``rank`` needs for a benchmark of ``layouts``, which share its buffers.

    The demand is the sum of the buffers, each program's scratch and slots, and the largest temporary array: a
    copy of the input, the expected output (twice if it is concatenated), or with ``peers`` the copies that
    another library makes. Comparing with the expected output takes one more byte for each element. With
    ``far`` some ranks are on other hosts, so MPI's persistent requests are added.
    """
    every = list(layouts)
    given, got = (every[0].elements(rank, buffer) for buffer in (INPUT, OUTPUT))
    collective = every[0].program.collective
    joined = not collective.whole or collective.kind in _JOINED
    buffers = _buffers_bytes(given, got, item_bytes, placements, joined=joined, peers=peers)
    windows = sum(window_bytes_at_most(layout, rank, item_bytes, far=far) for layout in every)
    windows += _requests_bytes(every, rank, item_bytes) if far else 0
    return Need(buffers + windows + _BESIDE_BYTES, _MPI_SHARED_BYTES)


def least_bench_need(
    kind: Kind, ranks: int, size_bytes: int, item_bytes: int, placements: Iterable[bool], *, peers: bool
) -> Need:
    """Return a lower bound on the memory of each rank for a benchmark of a collective by any program.

    The bound is `bench_need` without the program's scratch and slots.
    """
    whole, part = size_bytes // item_bytes, size_bytes // item_bytes // ranks
    given, got = {
        "all_reduce": (whole, whole),
        "all_to_all": (whole, whole),
        "all_gather": (part, whole),
        "reduce_scatter": (whole, part),
        # The buffers of ranks other than the root.
        "broadcast": (0, whole),
        "reduce": (whole, 0),
        "scatter": (0, part),
        "gather": (part, 0),
    }.get(kind, (0, 0))
    buffers = _buffers_bytes(given, got, item_bytes, placements, joined=kind in _JOINED, peers=peers)
    return Need(buffers + _BESIDE_BYTES, _MPI_SHARED_BYTES, ranks)


def run_need(layout: Layout, rank: int, item_bytes: int, *, far: bool) -> Need:
    """Return the memory that ``rank`` needs to run a program once, besides the input that it has received.

    On rank 0 the need includes all outputs, which rank 0 gathers and sends on as one message.
    """
    given, got = (layout.elements(rank, buffer) for buffer in (INPUT, OUTPUT))
    size = (given + 2 * got) * item_bytes + (3 * _outputs_bytes(layout, item_bytes) if rank == 0 else 0)
    windows = window_bytes_at_most(layout, rank, item_bytes, far=far)
    windows += _requests_bytes([layout], rank, item_bytes) if far else 0
    return Need(size + windows + _BESIDE_BYTES, _MPI_SHARED_BYTES)


def start_needs(layout: Layout, item_bytes: int, *, here: bool) -> list[Need]:
    """Return the memory needs on the command's host for a run on data that the command has read.

    The command holds the inputs as messages, and at the end all outputs and the file that holds them. With
    ``here`` the ranks run on the same host; then the list also has each rank's need, with its received input.
    """
    ranks = range(layout.program.ranks)
    inputs = [layout.elements(rank, INPUT) * item_bytes for rank in ranks]
    command = Need(sum(inputs) + 4 * _outputs_bytes(layout, item_bytes))
    if not here:
        return [command]
    found = [run_need(layout, rank, item_bytes, far=False) for rank in ranks]
    both = zip(found, inputs, strict=True)
    return [command, *(replace(need, memory_bytes=need.memory_bytes + size) for need, size in both)]


def _buffers_bytes(
    given: int, got: int, item_bytes: int, placements: Iterable[bool], *, joined: bool, peers: bool
) -> int:
    """Return the bytes of a rank's buffers and temporary array, for ``given`` input and ``got`` output."""
    elements = max(max(given, got) if in_place else given + got for in_place in placements)
    passing = max(given, (2 if joined else 1) * got) * item_bytes + max(given, got)
    peer_bytes = 2 * max(given, got) * item_bytes if peers else 0
    return elements * item_bytes + max(passing, peer_bytes)


def _outputs_bytes(layout: Layout, item_bytes: int) -> int:
    return sum(layout.elements(rank, OUTPUT) for rank in range(layout.program.ranks)) * item_bytes


def _requests_bytes(layouts: Iterable[Layout], rank: int, item_bytes: int) -> int:
    """Return the bytes of persistent requests: about 1 KiB for each 60 KiB sent or received.

    A step may do both, so 1/32 of the bytes of each step is counted.
    """
    found = 0
    for layout in layouts:
        program = layout.program
        first = program.tb_start[:-1][program.tb_rank == rank]
        last = program.tb_start[1:][program.tb_rank == rank]
        chunks = sum(int(program.count[start:end].sum()) for start, end in zip(first, last, strict=True))
        found += chunks * layout.largest * item_bytes // 32
    return found
