"""The command itself is one of the ranks: it was started by mpirun or srun."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from ccctl import console
from ccctl.errors import INTERNAL, TimeoutExpired, exit_status
from ccctl.launcher.protocol import Partial, Status
from ccctl.launcher.rescue import reason_of, rescue_now
from probes.errors import CcctlError, UnavailableError, UsageError

__all__ = ["run_inside"]

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_TOLD_TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _State:
    """What this rank does, for the message at a timeout; on rank 0 also what all ranks give away.

    Pieces travel on a communicator of their own, and rank 0 takes what has come whenever it gets on.
    """

    def __init__(self, comm: Any, keep: Callable[[Any], None]) -> None:
        self.status = Status()
        self._comm, self._keep = comm.Dup(), keep
        self._sent: list[Any] = []
        self._whole = 0

    def update(self, done: float, total: float, text: str = "") -> None:
        self.status = Status(done, total, text)
        if self._comm.Get_rank() == 0:
            while self._comm.iprobe():
                self._take()

    def waiting(self, peer: int, what: str) -> None:
        self.status = Status(doing=self.status.doing, peer=peer, step=what)

    def partial(self, value: object) -> None:
        if self._comm.Get_rank() == 0:
            self._keep(value)
        else:
            self._sent.append(self._comm.isend(Partial((value,)), 0))

    def close(self) -> None:
        """Every rank has finished its task: let nothing that was sent stay on its way."""
        if self._comm.Get_rank() == 0:
            while self._whole < self._comm.Get_size() - 1:
                self._take()
        else:
            self._sent.append(self._comm.isend(Partial(()), 0))
            for request in self._sent:
                request.wait()
        self._comm.Free()

    def _take(self) -> None:
        values = self._comm.recv().values
        self._whole += not values
        for value in values:
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

    ``keep`` is called with what the ranks hand to ``progress.partial``: that of rank 0 at once, that of
    others whenever rank 0 gets on. A rank's exception ends the whole job, with a message that names the
    rank; before rank 0 ends it, or is ended by a signal, what there is is rescued. After SIGTERM
    mpirun kills the ranks within a second, and a profile of many ranks takes longer to assemble.
    """
    from ccctl.launcher.worker import expected, function_of, import_mpi

    mpi = import_mpi()
    comm = mpi.COMM_WORLD
    _check_size(mpi, asked)
    state = _State(comm, keep)
    with _watched(comm, state, timeout_s):
        try:
            value = function_of(task)(comm, arguments, state)
            state.close()
        except Exception as error:
            _abort(comm, expected(error, comm.Get_rank()))
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


@contextlib.contextmanager
def _watched(comm: Any, state: _State, timeout_s: float | None) -> Iterator[None]:
    """While the block runs, a thread ends the job at the time limit, and on rank 0 when a signal says so.

    The thread that runs the task may be inside MPI for ever: no exception reaches it there.
    """
    ours, theirs = socket.socketpair()
    watch = threading.Thread(target=_watch, args=(comm, state, ours, timeout_s), daemon=True)
    watch.start()
    heard = _hear(theirs) if comm.Get_rank() == 0 else {}
    try:
        yield
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)
        if heard:
            signal.set_wakeup_fd(-1)
        theirs.close()
        watch.join()
        ours.close()


def _hear(end: socket.socket) -> dict[int, Any]:
    """Have signals that tell this process to end written to ``end``; returns the handlers before."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    end.setblocking(False)
    signal.set_wakeup_fd(end.fileno(), warn_on_full_buffer=False)
    return {number: signal.signal(number, lambda *_: None) for number in _TOLD_TO_END}


def _watch(comm: Any, state: _State, end: socket.socket, timeout_s: float | None) -> None:
    end.settimeout(timeout_s)
    try:
        told = end.recv(1)
    except TimeoutError:
        _out_of_time(comm, state, timeout_s or 0.0)
    else:
        if told:
            number = told[0]
            why = signal.Signals(number).name
            console.error(f"ended by {why}", rescue_now(why))
            comm.Abort(128 + number)


def _out_of_time(comm: Any, state: _State, timeout_s: float) -> None:
    rank = comm.Get_rank()
    console.error(f"rank {rank} (host {socket.gethostname()}, pid {os.getpid()}) {state}")
    # Every rank says where it is before the first one ends them all.
    time.sleep(0.5 if rank == 0 else 5)
    if rank == 0:
        why = f"not done within {timeout_s:g} s"
        console.error(why, rescue_now(why))
    comm.Abort(exit_status(TimeoutExpired("")))


def _abort(comm: Any, error: BaseException) -> NoReturn:
    where = f"rank {comm.Get_rank()} (host {socket.gethostname()}, pid {os.getpid()})"
    kept = rescue_now(reason_of(error))
    if isinstance(error, CcctlError):
        console.error(f"{where}: {error.message}", kept or error.hint)
        status = exit_status(error)
    else:
        traceback.print_exc()
        console.error(f"{where}: this is a bug in ccctl", "please report it with the lines above")
        status = INTERNAL
    sys.stderr.flush()
    comm.Abort(status)
    raise SystemExit(status)
