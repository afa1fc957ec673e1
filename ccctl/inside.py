"""The command itself is one of the ranks: it was started by mpirun or srun."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from ccctl import console
from ccctl.control import Status
from ccctl.errors import INTERNAL, TimeoutExpired, exit_status
from probes.errors import CcctlError, UnavailableError, UsageError

__all__ = ["run_inside"]

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


class _State:
    """What this rank does, for the message at a timeout."""

    def __init__(self, keep: Callable[[Any], None]) -> None:
        self.status = Status()
        self._keep = keep

    def update(self, done: float, total: float, text: str = "") -> None:
        self.status = Status(done, total, text)

    def waiting(self, peer: int, what: str) -> None:
        self.status = Status(doing=self.status.doing, peer=peer, step=what)

    def partial(self, value: object) -> None:
        self._keep(value)

    def __str__(self) -> str:
        status = self.status
        if status.peer is None:
            return f"was at: {status.doing or 'the start'}"
        return f"waited for {f'rank {status.peer}' if status.peer >= 0 else 'all ranks'}: {status.step}"


def run_inside(
    task: str,
    arguments: object,
    asked: int | None,
    timeout_s: float | None,
    keep: Callable[[Any], None] = lambda value: None,
) -> Any:
    """Call the task on this rank; returns on rank 0, ends the process with status 0 on every other.

    ``keep`` is called with what rank 0 hands to ``progress.partial``, at once. A rank's exception ends the
    whole job, with a message that names the rank.
    """
    from ccctl.worker import expected, function_of, import_mpi

    mpi = import_mpi()
    comm = mpi.COMM_WORLD
    _check_size(mpi, asked)
    state = _State(keep if comm.Get_rank() == 0 else lambda value: None)
    over = threading.Event()
    if timeout_s is not None:
        watch = threading.Thread(target=_watch, args=(comm, state, over, timeout_s), daemon=True)
        watch.start()
    try:
        value = function_of(task)(comm, arguments, state)
    except Exception as error:
        _abort(comm, expected(error, comm.Get_rank()))
    finally:
        over.set()
    if comm.Get_rank() != 0:
        raise SystemExit(0)
    return value


def _check_size(mpi: Any, asked: int | None) -> None:
    size, rank = mpi.COMM_WORLD.Get_size(), mpi.COMM_WORLD.Get_rank()
    told = next((int(os.environ[name]) for name in _SIZES if name in os.environ), size)
    if size != told:
        raise UnavailableError(
            f"started as one of {told} ranks, but the MPI library of mpi4py sees a world of {size}",
            hint="Start it with the mpirun of the MPI library that mpi4py loads; with srun, Open MPI wants "
            "--mpi=pmix, MPICH --mpi=pmi2.",
        )
    if asked is not None and asked != size:
        # Every rank comes here: leaving MPI together lets it clear its shared memory away.
        mpi.Finalize()
        if rank != 0:
            raise SystemExit(2)
        raise UsageError(
            f"-n asks for {asked} ranks, but this runs inside a world of {size}", hint="Leave -n out."
        )


def _watch(comm: Any, state: _State, over: threading.Event, timeout_s: float) -> None:
    if over.wait(timeout_s):
        return
    rank = comm.Get_rank()
    console.error(f"rank {rank} (host {socket.gethostname()}, pid {os.getpid()}) {state}")
    # Every rank says where it is before the first one ends them all.
    time.sleep(0.5 if rank == 0 else 5)
    if rank == 0:
        console.error(f"not done within {timeout_s:g} s")
    comm.Abort(exit_status(TimeoutExpired("")))


def _abort(comm: Any, error: BaseException) -> NoReturn:
    where = f"rank {comm.Get_rank()} (host {socket.gethostname()}, pid {os.getpid()})"
    if isinstance(error, CcctlError):
        console.error(f"{where}: {error.message}", error.hint)
        status = exit_status(error)
    else:
        traceback.print_exc()
        console.error(f"{where}: this is a bug in ccctl", "please report it with the lines above")
        status = INTERNAL
    sys.stderr.flush()
    comm.Abort(status)
    raise SystemExit(status)
