"""Rendezvous of ranks started by mpirun or srun: `init_method="ccctl://"`.

PyTorch's own `env://` reads the variables of torchrun. mpirun and srun give a process its rank in other
variables, and no address of rank 0's store. Rank 0 serves the store at a port that the system chooses, and
announces the port at a place that all ranks can compute. On one host that place is a socket in a private
folder of the user. Between hosts it is one of several ports, at which both ends first prove that they know
the secret of the job.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

from exec.launcher import parse
from exec.sockets import Channel, Greeter, first_to_answer
from probes.base import UnavailableError
from probes.files import opened

__all__ = ["SCHEME", "Rendezvous", "ask_rank_0", "launched", "meet", "tell_others"]

SCHEME = "ccctl"
SECRET = "CCCTL_SECRET"

# Variables with (rank, number of ranks, ranks on this host) of Open MPI, of MPICH and Intel MPI, and of
# Slurm.
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ""),
)
_LOOPBACK = "127.0.0.1"
# Derived ports are among the _PORTS ports from _FIRST_PORT on, below the range of ephemeral ports.
_FIRST_PORT, _PORTS = 20_000, 12_000
# The number of ports derived from a job's name and secret. Rank 0 listens at the first free port; the other
# ranks try all ports.
_CHOICES = 4
_BACKLOG = 4096
# Interval between tries to reach rank 0, and the default timeout of TCPStore, for calls without one.
_AGAIN_S, _LIMIT_S = 0.1, 300.0


@dataclass(frozen=True)
class Rendezvous:
    """This process's ``rank`` among ``size`` in a named job, and the host of rank 0.

    ``port`` and ``secret`` are the user's, if given.
    """

    rank: int
    size: int
    host: str
    job: str
    port: int | None = None
    secret: bytes = field(default=b"", repr=False)

    @property
    def url(self) -> str:
        """The URL for PyTorch's rendezvous by TCP at the given port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"

    @property
    def here(self) -> bool:
        """Whether all ranks are on this host."""
        return self.host in (_LOOPBACK, "localhost", "::1")

    @property
    def key(self) -> bytes:
        """The key that proves membership of this job."""
        return self._derived("key")

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports of rank 0 for other hosts: the given one, or some derived from job and secret."""
        if self.port is not None:
            return (self.port,)
        drawn = (self._derived(f"port {number}") for number in range(_CHOICES))
        return tuple(_FIRST_PORT + int.from_bytes(piece, "big") % _PORTS for piece in drawn)

    def _derived(self, use: str) -> bytes:
        secret = blake2b(self.secret, digest_size=64).digest()
        return blake2b(f"{use} of {self.job}".encode(), key=secret, digest_size=32).digest()


def launched(variables: Mapping[str, str]) -> Rendezvous | None:
    """Return the rendezvous from a rank's environment; None if torchrun's variables are set.

    MASTER_ADDR and MASTER_PORT have precedence. Without them, rank 0 is on this host if all ranks are here,
    and otherwise on the first host of Slurm's step. Raises UnavailableError if no launcher has started this
    process, or if rank 0's host is unknown. Without MASTER_PORT also raises it if the job has no name, or if
    ranks on several hosts have no secret to authenticate each other.
    """
    if "RANK" in variables and "WORLD_SIZE" in variables:
        return None
    for rank_name, size_name, local_name in _LAUNCHERS:
        if rank_name in variables and size_name in variables:
            rank, size = int(variables[rank_name]), int(variables[size_name])
            host = variables.get("MASTER_ADDR") or _host(variables, rank, size, local_name)
            port = int(variables["MASTER_PORT"]) if variables.get("MASTER_PORT") else None
            secret = variables.get(SECRET, "").encode()
            found = Rendezvous(rank, size, host, _job(variables, rank, size), port, secret)
            if port is None:
                _refuse_unnamed(found)
            return found
    raise UnavailableError(
        f"{SCHEME}://: no launcher has given this process a rank",
        hint="Start it by torchrun, mpirun or srun, or give init_process_group a rank and a world_size.",
    )


def meet(url: str, timeout: timedelta | None = None, **_options: Any) -> Iterator[tuple[Any, int, int]]:
    """Handle `ccctl://` for PyTorch: yield the store, the rank and the number of ranks."""
    from torch.distributed.rendezvous import rendezvous

    found = launched(os.environ)
    options = {} if timeout is None else {"timeout": timeout}
    if found is None:
        yield from rendezvous("env://", **options)
    elif found.port is not None and not found.secret:
        yield from rendezvous(found.url, found.rank, found.size, **options)
    else:
        limit_s = _LIMIT_S if timeout is None else timeout.total_seconds()
        yield _store(found, limit_s, options), found.rank, found.size
        raise RuntimeError(f"{SCHEME}:// supports one rendezvous of the ranks, not a second")


def _store(found: Rendezvous, limit_s: float, options: Mapping[str, Any]) -> Any:
    """Return the store of all ranks, served by rank 0; collective."""
    from torch.distributed import TCPStore

    if found.rank == 0:
        store = TCPStore(found.host, 0, found.size, is_master=True, wait_for_workers=False, **options)
        tell_others(found, store.port, limit_s)
        return store
    port = ask_rank_0(found, limit_s)
    return TCPStore(found.host, port, found.size, is_master=False, wait_for_workers=False, **options)


def tell_others(found: Rendezvous, port: int, limit_s: float) -> None:
    """On rank 0, send ``port`` to every other rank, once it has proved to be of this job.

    Raises UnavailableError if there is no place to meet, or if some rank has not come after ``limit_s``
    seconds.
    """
    arrived: queue.SimpleQueue[int] = queue.SimpleQueue()

    def tell(rank: Any, channel: Channel) -> None:
        with contextlib.closing(channel):
            if type(rank) is int and 0 < rank < found.size:
                channel.send(port)
                arrived.put(rank)

    missing, until_s = set(range(1, found.size)), time.monotonic() + limit_s
    with _listener(found) as listener:
        greeter = Greeter([listener], found.key, found.size, tell)
        try:
            while missing:
                missing.discard(arrived.get(timeout=max(0.0, until_s - time.monotonic())))
        except queue.Empty:
            raise UnavailableError(
                f"{SCHEME}://: ranks {sorted(missing)} of {found.size} have not come within {limit_s:g} s"
            ) from None
        finally:
            greeter.close()


def ask_rank_0(found: Rendezvous, limit_s: float) -> int:
    """Return the port of rank 0's store to another rank; ignore servers that do not know the key.

    Raises UnavailableError after ``limit_s`` seconds.
    """
    until_s = time.monotonic() + limit_s
    while True:
        with _addresses(found) as addresses:
            channel = first_to_answer(addresses, found.key)
        # Rank 0 may have left between the greeting and the question.
        with contextlib.suppress(EOFError, OSError):
            if channel is not None:
                with contextlib.closing(channel):
                    channel.send(found.rank)
                    return int(channel.receive())
        if time.monotonic() > until_s:
            raise UnavailableError(
                f"{SCHEME}://: no rank 0 of this job has answered on {found.host} within {limit_s:g} s",
                hint="" if found.here else f"{_places(found)} Does rank 0 have the same {SECRET}?",
            )
        time.sleep(_AGAIN_S)


@contextlib.contextmanager
def _listener(found: Rendezvous) -> Iterator[socket.socket]:
    """Open rank 0's listener, within the block."""
    if found.here and found.port is None:
        with _own_place(found) as place:
            # A killed job of the same name may have left its socket there.
            place.unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(place))
                listener.listen(_BACKLOG)
                yield listener
            place.unlink(missing_ok=True)
        return
    for port in found.ports:
        try:
            listener = _server(port)
            break
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise UnavailableError(f"{SCHEME}://: port {port}: {error.strerror}") from error
    else:
        raise UnavailableError(
            f"{SCHEME}://: others listen at every port at which this job can meet. {_places(found)}",
            hint="Name a free port of rank 0's host: MASTER_PORT=29500.",
        )
    with listener:
        yield listener


def _server(port: int) -> socket.socket:
    """Return a listener at all addresses of this host."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)


@contextlib.contextmanager
def _addresses(found: Rendezvous) -> Iterator[list[str]]:
    """Yield the addresses at which rank 0 may listen."""
    if found.here and found.port is None:
        with _own_place(found) as place:
            yield [str(place)]
    else:
        yield [f"{found.host}:{port}" for port in found.ports]


@contextlib.contextmanager
def _own_place(found: Rendezvous) -> Iterator[Path]:
    """Yield the path of a socket for this job, in a folder that no other user can enter.

    Raises UnavailableError if another user has made or could change that folder.
    """
    folder = Path(tempfile.gettempdir()).resolve() / f"ccctl-rendezvous-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    with opened(folder) as descriptor:
        os.fchmod(descriptor, 0o700)
        # This path has a fixed length. A socket's path has at most 107 bytes, and the folder's may be longer.
        yield Path(f"/proc/self/fd/{descriptor}/{found.key.hex()[:32]}")


def _places(found: Rendezvous) -> str:
    return f"Ports of {found.host}: {', '.join(map(str, found.ports))}."


def _refuse_unnamed(found: Rendezvous) -> None:
    """Raise UnavailableError if the ranks of a job have no private place to meet."""
    if not found.job:
        raise UnavailableError(
            f"{SCHEME}://: nothing distinguishes the ranks of this job from those of another",
            hint="Name a free port of rank 0's host: with MPICH mpirun -genv MASTER_PORT 29500.",
        )
    if not found.here and not found.secret:
        raise UnavailableError(
            f"{SCHEME}://: the ranks meet on {found.host}, where nothing distinguishes them from strangers",
            hint=f"export {SECRET}=$(openssl rand -hex 32) before srun; with Open MPI mpirun -x {SECRET}. "
            "Or give MASTER_PORT, where no stranger can listen on rank 0's host.",
        )


def _host(variables: Mapping[str, str], rank: int, size: int, local_name: str) -> str:
    """Return the host of rank 0."""
    if size == 1 or variables.get(local_name) == str(size):
        return _LOOPBACK
    if _by_slurm(variables, rank, size):
        if variables.get("SLURM_STEP_NUM_NODES") == "1":
            return _LOOPBACK
        if hosts := variables.get("SLURM_STEP_NODELIST"):
            return parse(hosts)[0].host
    raise UnavailableError(
        f"{SCHEME}://: the ranks are on several hosts, and nothing says on which rank 0 is",
        hint="Name it: mpirun -x MASTER_ADDR=node1, with MPICH mpirun -genv MASTER_ADDR node1.",
    )


def _job(variables: Mapping[str, str], rank: int, size: int) -> str:
    """Return the name of the job; "" if it has none."""
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID") if _by_slurm(variables, rank, size) else ("PMIX_NAMESPACE",)
    return "/".join(variables.get(name, "") for name in names).strip("/")


def _by_slurm(variables: Mapping[str, str], rank: int, size: int) -> bool:
    """Return whether Slurm's variables describe this rank, not an mpirun that runs in the step."""
    return variables.get("SLURM_PROCID") == str(rank) and variables.get("SLURM_STEP_NUM_TASKS") == str(size)
