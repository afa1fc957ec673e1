"""What a command line of ``bench`` asks that cannot be: refused before a rank is started."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.errors import UsageError
from probes.wording import some

if TYPE_CHECKING:
    from exec.benchmark.report import Report
    from synth.collective import Kind

__all__ = [
    "note_iterations",
    "refuse_crowd_here",
    "refuse_incomparable",
    "refuse_operator_as_file",
    "refuse_placement",
    "refuse_root",
]

_ROOTED = ("broadcast", "reduce", "scatter", "gather")
_MOST_NAMED = 3
_APART = ("all_to_all", "all_to_next")


def refuse_operator_as_file(output: str | None) -> None:
    """Raise UsageError where -o was meant as nccl-tests means it: the operator."""
    from exec.program.dtypes import REDOPS

    word = (output or "").lower()
    if word in (*REDOPS, "all", "mulsum"):
        known = word if word != "mulsum" else "prod"
        raise UsageError(
            f"-o {output}: -o names the file of the report",
            hint=f"Write --op {known}; -o ./{output} writes a file of that name.",
        )


def note_iterations(ranks: int | None, *, nccl_tests: bool) -> None:
    """Say that -n are ranks where they outnumber cores, and other options are as for ``nccl_tests``."""
    cores = len(os.sched_getaffinity(0))
    if ranks is not None and ranks > cores and nccl_tests:
        console.note(
            f"-n {ranks} starts {ranks} ranks on {cores} cores; what nccl-tests calls -n is --iters {ranks}"
        )


def refuse_root(kind: Kind, root: int | None) -> None:
    """Raise UsageError where a collective that has none was given a root."""
    if root is not None and kind not in _ROOTED:
        raise UsageError(f"-r {root}: {kind} has no root")


def refuse_placement(kind: Kind, placements: Sequence[bool]) -> None:
    """Raise UsageError where a collective that keeps its buffers apart is to run in place alone."""
    if kind in _APART and False not in placements:
        raise UsageError(f"--placement in: {kind} cannot run in place")


def refuse_crowd_here(
    kind: Kind,
    ranks: int,
    size_bytes: int,
    dtypes: Sequence[str],
    placements: Sequence[bool],
    *,
    peers: bool,
) -> None:
    """Raise UnavailableError where this host lacks the memory for its ranks' buffers."""
    from exec.memory_demand import least_bench_need
    from exec.program.dtypes import dtype_of
    from probes.live.memory import refuse_crowding, rooms

    # A byte for each element is compared, too: the largest elements take least.
    item_bytes = max(dtype_of(dtype).itemsize for dtype in dtypes)
    need = least_bench_need(kind, ranks, size_bytes, item_bytes, placements, peers=peers)
    refuse_crowding([(socket.gethostname(), rooms(), need)], f"{kind} of {size_bytes} bytes")


def refuse_incomparable(
    before: Report, source: str, kind: str, dtypes: Sequence[str], ops: Sequence[str], *, reduces: bool
) -> None:
    """Raise UsageError where no row of a baseline is of what is asked for, whatever its size."""
    for row in before.rows:
        if row.collective == kind and row.dtype in dtypes and (not reduces or row.redop in ops):
            return
    rows = dict.fromkeys(f"{row.collective} of {row.dtype} ({row.redop})" for row in before.rows)
    raise UsageError(
        f"--baseline {source}: it has no row of {kind}, {' or '.join(dtypes)}"
        f"{', ' + ' or '.join(ops) if reduces else ''}",
        hint=f"It has {some(list(rows), _MOST_NAMED)}.",
    )
