"""Runs in which the caller itself is one of the ranks, started by mpirun or srun.

An exception on one rank reaches no other, so it ends the whole job by MPI_Abort.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from exec.launcher.ending import Ending
from exec.launcher.protocol import Heartbeat, Partial, function_of, rank_of_launcher
from exec.launcher.signals import handlers_of
from probes.base import UnavailableError, UsageError

__all__ = ["own_rank", "run_inside"]

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_TOLD_TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _State:
    """The status of this rank for the message at a timeout; also hands partial results to rank 0.

    Partial results have a communicator of their own. Rank 0 receives them at each progress update.
    """

    def __init__(self, keep: Callable[[Any], None]) -> None:
        self.status = Heartbeat(doing="starting MPI")
        # None until MPI is up.
        self.world: Any = None
        self._keep = keep
        self._sent: list[Any] = []
        self._finished = 0

    def join(self, world: Any) -> None:
        """Take MPI's world once MPI is up; collective."""
        self.world = world
        self._comm = world.Dup()
        self.status = Heartbeat()

    def update(self, done: float, total: float, text: str = "") -> None:
        self.status = Heartbeat(done, total, text)
        if self._comm.Get_rank() == 0:
            while self._comm.iprobe():
                self._take()

    def waiting(self, peer: int, what: str) -> None:
        self.status = Heartbeat(doing=self.status.doing, peer=peer, step=what)

    def partial(self, value: object) -> None:
        if self._comm.Get_rank() == 0:
            self._keep(value)
        else:
            self._sent.append(self._comm.isend(Partial((value,)), 0))

    def close(self) -> None:
        """Complete all sends after every rank has finished its task; collective."""
        if self._comm.Get_rank() == 0:
            while self._finished < self._comm.Get_size() - 1:
                self._take()
        else:
            self._sent.append(self._comm.isend(Partial(()), 0))
            for request in self._sent:
                request.wait()
        self._comm.Free()

    def _take(self) -> None:
        values = self._comm.recv().values
        self._finished += not values
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
    keep: Callable[[Any], None],
    ending: Ending,
) -> Any:
    """Call the task on this rank; return its value on rank 0, None on every other rank.

    Rank 0 calls ``keep`` with the partial results that ranks hand to ``progress.partial``: with its own at
    once, with other ranks' at its next update or at the end. A rank's exception, the time limit and, on rank
    0, a signal end the whole job, after a call of ``ending``. After SIGTERM mpirun kills the ranks within a
    second.
    """
    from exec.launcher.worker import expected, import_mpi

    state = _State(keep)
    with _watched(state, timeout_s, ending):
        comm = import_mpi().COMM_WORLD
        _check_size(comm.Get_size(), asked)
        state.join(comm)
        try:
            value = function_of(task)(comm, arguments, state)
            state.close()
        except Exception as error:
            comm.Abort(ending.failed(_this_rank(comm.Get_rank()), expected(error, comm.Get_rank())))
            raise
    return value if comm.Get_rank() == 0 else None


def own_rank() -> int:
    """Return the rank of this process in the world of its mpirun."""
    from exec.launcher.worker import import_mpi

    number: int = import_mpi().COMM_WORLD.Get_rank()
    return number


def _check_size(size: int, asked: int | None) -> None:
    expected = next((int(os.environ[name]) for name in _SIZES if name in os.environ), size)
    if size != expected:
        raise UnavailableError(
            f"started as one of {expected} ranks, but the MPI library of mpi4py sees a world of {size}",
            hint="Start it with the mpirun of the MPI library that mpi4py loads; with srun, Open MPI wants "
            "--mpi=pmix, MPICH --mpi=pmi2.",
        )
    if asked is not None and asked != size:
        raise UsageError(
            f"{asked} ranks are asked for (ranks={asked}), but this runs inside a world of {size}",
            hint=f"Start {asked} with mpirun, or leave ranks={asked} out.",
        )


@contextlib.contextmanager
def _watched(state: _State, timeout_s: float | None, ending: Ending) -> Iterator[None]:
    """Within the block, let a thread end the job at the time limit or, on rank 0, at a signal.

    The thread of the task may be stuck inside MPI, where no exception reaches it.
    """
    rank = rank_of_launcher()
    ours, theirs = socket.socketpair()
    watch = threading.Thread(target=_watch, args=(rank, state, ours, timeout_s, ending), daemon=True)
    watch.start()
    try:
        with _signals_to(theirs if rank == 0 else None):
            yield
    finally:
        theirs.close()
        watch.join()
        ours.close()


@contextlib.contextmanager
def _signals_to(end: socket.socket | None) -> Iterator[None]:
    """Within the block, write signals that would end the process to ``end``; without ``end`` ignore them.

    mpirun signals every rank, and kills rank 0 as soon as another rank dies of the signal, before rank 0 can
    save anything. So the other ranks ignore the signal, and rank 0 ends them all.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if end is not None:
        end.setblocking(False)
        descriptor = signal.set_wakeup_fd(end.fileno(), warn_on_full_buffer=False)
    handlers = handlers_of(_TOLD_TO_END)
    for number in handlers:
        signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if end is not None:
            signal.set_wakeup_fd(descriptor)


def _watch(rank: int, state: _State, end: socket.socket, timeout_s: float | None, ending: Ending) -> None:
    deadline_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while (left_s := deadline_s - time.monotonic()) > 0:
        end.settimeout(None if left_s == math.inf else left_s)
        with contextlib.suppress(TimeoutError):
            byte = end.recv(1)
            if not byte:
                return
            # Python writes the number of every handled signal to the socket.
            if byte[0] in _TOLD_TO_END:
                _abort(state, ending.signalled(signal.Signals(byte[0])))
    ending.waiting(_this_rank(rank), str(state))
    # Every rank reports its state before rank 0 ends them all.
    time.sleep(0.5 if rank == 0 else 5)
    if rank == 0:
        ending.out_of_time(timeout_s or 0.0)
    _abort(state, ending.out_of_time_status)


def _abort(state: _State, status: int) -> None:
    """End the job; before MPI is up, kill this process, so that mpirun or srun ends the job."""
    if state.world is None:
        os.kill(os.getpid(), signal.SIGKILL)
    state.world.Abort(status)


def _this_rank(number: int) -> str:
    return f"rank {number} (host {socket.gethostname()}, pid {os.getpid()})"
