"""Ranks of this host that run a script of a test, joined by MPI or by sockets."""

from __future__ import annotations

import subprocess
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from limits import HANG_S
from warm_commands import warm_commands

from exec.launcher.starters import mpirun
from exec.sockets import library

__all__ = ["needs_ucx", "over_all_wires", "run_joined", "run_over_mpi"]

needs_ucx = pytest.mark.skipif(library() is None, reason="no UCX library loads on this machine")
# Shared memory of one host, and UCX between ranks that count as hosts.
over_all_wires = pytest.mark.parametrize("wires", ["", pytest.param("ucx", marks=needs_ucx)])

_PREAMBLE = """
import sys
from file_exchange import KEY, exchange_through
from exec.sockets.group import join
rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if sys.argv[4]:
    import apart
    apart.over(sys.argv[4], rank)
del sys.argv[4]
%s
comm = join(rank, size, exchange_through(folder, rank, size), KEY)
"""

# MPI is ended here because a forked process skips C's own exit; after an error the other ranks are ended too.
_OVER_MPI = """
import atexit, sys
from mpi4py import MPI
def abort(*raised):
    sys.__excepthook__(*raised)
    sys.stderr.flush()
    MPI.COMM_WORLD.Abort(1)
sys.excepthook = abort
atexit.register(MPI.Finalize)
comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
sys.stdout = open(f"{sys.argv[3]}/said by {rank}", "w")
"""


def run_over_mpi(folder: Path, size: int, script: str, *arguments: str) -> list[str]:
    """Return the output of each of ``size`` ranks of ``script`` over MPI; otherwise as `run_joined`."""
    text = _OVER_MPI + textwrap.dedent(script)
    words = warm_commands().program("-c", text, "", "", str(folder), *arguments)
    done = subprocess.run(
        mpirun.command(mpirun.find(), size, (), words),
        env=mpirun.variables(size, str(folder), str(folder)) | warm_commands().helpers(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [(folder / f"said by {rank}").read_text() for rank in range(size)]


def run_joined(
    folder: Path,
    size: int,
    script: str,
    *arguments: str,
    before: str = "",
    wires: str = "",
    timeout_s: float = 400,
) -> list[str]:
    """Return the output of each of ``size`` ranks of ``script``, which finds ``comm``, ``rank`` and ``size``.

    ``before`` runs before the ranks join. ``arguments`` are ``sys.argv[4:]``. With ``wires`` every rank
    counts as a host (`apart.over`). Raises AssertionError with what a rank said where one fails.
    """
    text = _PREAMBLE % textwrap.dedent(before) + textwrap.dedent(script)

    def run(rank: int) -> subprocess.CompletedProcess[str]:
        words = [str(rank), str(size), str(folder), wires, *arguments]
        return warm_commands().run(words, "", folder, timeout_s, text)

    with ThreadPoolExecutor(size) as pool:
        found = list(pool.map(run, range(size)))
    said = "\n".join(
        f"rank {number}: {one.returncode}\n{one.stdout}{one.stderr}" for number, one in enumerate(found)
    )
    # Scripts kill some of their ranks, never all.
    assert {one.returncode for one in found} in ({0}, {0, -9}), said
    return [one.stdout for one in found]
