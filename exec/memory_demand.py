"""The memory demand of a run: an upper bound for each rank, known before it starts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from exec.mpi import window_bytes_at_most
from exec.program import Layout
from probes.live import Need
from synth.collective import Kind
from synth.program import INPUT, OUTPUT

__all__ = ["bench_need", "least_bench_need", "run_need", "start_needs"]

# Memory of a rank beside its buffers: compiled loops, tables of the plan, the peers' libraries.
_BESIDE_BYTES = 64 << 20
# MPI's share of /dev/shm for each rank.
_MPI_SHARED_BYTES = 1 << 20
# Their outputs are put together from those of several ranks.
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
    """Return what ``rank`` needs while all of ``layouts``, and perhaps peers, take turns on the same buffers.

    ``far``: some ranks are on other hosts, and MPI keeps requests for the wires.

    Beside the buffers and each program's scratch and slots that is, at one time, the input as it is made
    (once more), or the expected output (twice where it is put together of parts) and a byte for each element
    that is compared, or what a peer's library keeps of its own.
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
    """Return what each of ``ranks`` needs for a collective of one size at least, whatever program runs it.

    That is what `bench_need` says without the program's own scratch and slots.
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
    """Return what ``rank`` needs to run a program once on data that it was given, beside that data.

    Rank 0 gathers all outputs, and hands them on as one message.
    """
    given, got = (layout.elements(rank, buffer) for buffer in (INPUT, OUTPUT))
    size = (given + 2 * got) * item_bytes + (3 * _outputs_bytes(layout, item_bytes) if rank == 0 else 0)
    windows = window_bytes_at_most(layout, rank, item_bytes, far=far)
    windows += _requests_bytes([layout], rank, item_bytes) if far else 0
    return Need(size + windows + _BESIDE_BYTES, _MPI_SHARED_BYTES)


def start_needs(layout: Layout, item_bytes: int, *, here: bool) -> list[Need]:
    """Return what it takes on the host of the command to run a program on data that it has read.

    The command holds the inputs as messages, in the end all outputs, and the file of them; with
    ``here`` the ranks are on the same host, and get their data as messages.
    """
    ranks = range(layout.program.ranks)
    inputs = [layout.elements(rank, INPUT) * item_bytes for rank in ranks]
    own = Need(sum(inputs) + 4 * _outputs_bytes(layout, item_bytes))
    if not here:
        return [own]
    found = [run_need(layout, rank, item_bytes, far=False) for rank in ranks]
    both = zip(found, inputs, strict=True)
    return [own, *(replace(need, memory_bytes=need.memory_bytes + size) for need, size in both)]


def _buffers_bytes(
    given: int, got: int, item_bytes: int, placements: Iterable[bool], *, joined: bool, peers: bool
) -> int:
    """Return what a rank with so many elements in and out takes beside what its programs and wires do."""
    held = max(max(given, got) if in_place else given + got for in_place in placements)
    passing = max(given, (2 if joined else 1) * got) * item_bytes + max(given, got)
    theirs = 2 * max(given, got) * item_bytes if peers else 0
    return held * item_bytes + max(passing, theirs)


def _outputs_bytes(layout: Layout, item_bytes: int) -> int:
    return sum(layout.elements(rank, OUTPUT) for rank in range(layout.program.ranks)) * item_bytes


def _requests_bytes(layouts: Iterable[Layout], rank: int, item_bytes: int) -> int:
    """Return what the persistent requests take: one for each 60 KiB that a rank sends or gets, of
    about 1 KiB.
    """
    found = 0
    for layout in layouts:
        program = layout.program
        first = program.tb_start[:-1][program.tb_rank == rank]
        last = program.tb_start[1:][program.tb_rank == rank]
        chunks = sum(int(program.count[start:end].sum()) for start, end in zip(first, last, strict=True))
        found += chunks * layout.largest * item_bytes // 32
    return found
