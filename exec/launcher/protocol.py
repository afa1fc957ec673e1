"""What a rank and the command that started it say to each other over their own connection.

The connection is apart from MPI, so that a rank which died inside MPI can still be missed. Both
ends are processes of one user that share a secret key, and `channel` lets nobody else be heard.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from exec.records import UnsendableError, decode, encode, share_functions_of
from exec.sockets import Channel, Meeting, Whereabouts, first_to_answer, key_of_wires
from probes.base import CcctlError, UnavailableError, UsageError

__all__ = [
    "AGENT",
    "BEAT_S",
    "RANK",
    "RANK_VARIABLES",
    "SCRATCH",
    "SCRATCH_PREFIX",
    "SESSION_PREFIX",
    "START",
    "Admitted",
    "Exchanged",
    "Failure",
    "Fence",
    "Finished",
    "GatherContribution",
    "Heartbeat",
    "Hello",
    "JobForRanks",
    "Lost",
    "Partial",
    "RankJob",
    "RankTask",
    "Release",
    "Returned",
    "Started",
    "Wires",
    "connect",
    "environment",
    "function_of",
    "is_local",
    "rebuilt",
    "remove",
    "run_directories",
    "scratch_directory",
    "segments",
    "taken_apart",
    "wires_key",
]

Wires = Literal["mpi", "sockets"]

BEAT_S = 0.25
_ADDRESSES, _KEY = "CCCTL_CONTROL", "CCCTL_CONTROL_KEY"
# Unique to a run, so it also marks the run's processes.
SCRATCH = "CCCTL_SCRATCH"
SESSION_PREFIX, SCRATCH_PREFIX = "ccctl-session-", "ccctl-ranks-"
# Where the agent of a host tells a rank its number, and the number of its own process.
RANK, AGENT = "CCCTL_RANK", "CCCTL_AGENT"
# The task and the folders of its modules, which only whoever starts a rank can tell it.
_TASK = "CCCTL_TASK"
# How often a rank was started before, where it was.
START = "CCCTL_START"
# Where the launchers tell a process its rank.
RANK_VARIABLES = (RANK, "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PMI_ID")
# How long it is tried to remove what a run leaves.
_REMOVAL_S = 2.0


@dataclass(frozen=True)
class Hello:
    """A rank has started, and has not touched MPI yet; ``start`` times it was started before."""

    rank: int
    host: str
    pid: int
    start: int = 0


@dataclass(frozen=True)
class RankTask:
    """What every rank of a run calls: ``function(comm, arguments, progress)`` of "package.module:function".

    A rank is told it by its environment and by no message, so whoever holds the key of the run cannot choose
    what runs. ``path`` are folders of its modules.
    """

    name: str
    path: tuple[str, ...] = ()

    def variables(self) -> dict[str, str]:
        """What a rank is started with."""
        return {_TASK: json.dumps([self.name, self.path])}

    @classmethod
    def of_this_rank(cls) -> RankTask:
        """What this process was started for; another run that it starts has a task of its own."""
        name, path = json.loads(os.environ.pop(_TASK))
        return cls(name, tuple(path))

    def function(self) -> Callable[..., Any]:
        """The function, found on ``path`` after what this process finds by itself."""
        sys.path += [folder for folder in self.path if folder not in sys.path]
        found = function_of(self.name)
        share_functions_of(self.name.partition(":")[0])
        return found


@dataclass(frozen=True)
class RankJob:
    """What a rank is given to begin its task with.

    ``arguments`` are a message of `exec.records`, which a rank reads once it has the modules of its task.
    ``meeting`` is for a rank that is started while the others are at work. ``spares``, the last of the
    ``ranks``, are those that are not there at the start.
    """

    arguments: bytes
    ranks: int
    wires: Wires = "mpi"
    meeting: Meeting | None = None
    spares: tuple[Whereabouts, ...] = ()


class JobForRanks:
    """A job as the command has it: each rank gets what it needs of the arguments.

    Arguments with a method ``of_rank(rank)`` are cut by it; others go to every rank whole. With ``survive``
    the death of a rank does not end it, and a lost rank is started again up to ``rejoin`` times. ``spares``,
    the last of ``ranks``, are started once the others are at work. Raises UsageError where the arguments
    are no records.
    """

    def __init__(
        self,
        task: str,
        arguments: object,
        ranks: int,
        path: tuple[str, ...] = (),
        wires: Wires = "mpi",
        *,
        survive: bool = False,
        rejoin: int = 0,
        spares: tuple[Whereabouts, ...] = (),
    ) -> None:
        self.task = RankTask(task, path)
        self.ranks, self.wires, self.survive, self.rejoin = ranks, wires, survive, rejoin
        self.spares, self.at_start = spares, ranks - len(spares)
        self._part = getattr(arguments, "of_rank", None)
        content = b"" if self._part else _encoded(arguments)
        self._whole = RankJob(content, ranks, wires, spares=spares)

    def of_rank(self, rank: int, meeting: Meeting | None = None) -> RankJob:
        """What goes to one rank; ``meeting`` where it is started again."""
        job = replace(self._whole, meeting=meeting)
        return job if self._part is None else replace(job, arguments=_encoded(self._part(rank)))


def _encoded(arguments: object) -> bytes:
    try:
        return encode(arguments)
    except UnsendableError as error:
        raise UsageError(
            f"arguments: they cannot be sent to the ranks: {error}",
            hint="Ranks get numbers, texts, bytes, lists, dictionaries, arrays of NumPy, and dataclasses.",
        ) from error


def function_of(task: str) -> Callable[..., Any]:
    """The function that "package.module:function" names."""
    module, _, name = task.partition(":")
    found: Callable[..., Any] = attrgetter(name)(importlib.import_module(module))
    return found


@dataclass(frozen=True)
class Started:
    """The wires are up; ``segments`` are the files of shared memory that nobody clears away after a kill.

    ``where`` is how others reach the rank, where its wires are sockets.
    """

    segments: tuple[str, ...]
    where: Whereabouts | None = None


@dataclass(frozen=True)
class Admitted:
    """The others have let in this rank, which was started again."""


@dataclass(frozen=True)
class Heartbeat:
    """A heartbeat, with what the rank does now; ``peer`` None: it waits for nobody, -1: for all."""

    done: float = 0.0
    total: float = 0.0
    doing: str = ""
    peer: int | None = None
    step: str = ""


@dataclass(frozen=True)
class Partial:
    """Pieces of the result since the last heartbeat, kept in case the run does not come to its end."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Finished:
    """The function returned; ``value`` is set by one rank alone: rank 0 of MPI, else that which was asked."""

    value: Any = None


@dataclass(frozen=True)
class Returned:
    """The function returned, of a rank without MPI: it keeps the value until ``Release``."""

    has_value: bool


@dataclass(frozen=True)
class Release:
    """To a rank that has returned: finish, and hand over the value or not."""

    hand_over: bool


@dataclass(frozen=True)
class GatherContribution:
    """What a rank gives to an all-gather over the command."""

    content: bytes


@dataclass(frozen=True)
class Exchanged:
    """To all ranks: what each has given to one all-gather, in rank order."""

    contents: tuple[bytes, ...]


@dataclass(frozen=True)
class Lost:
    """To the survivors: a start of a rank is gone for good; ``how`` is for a reader."""

    rank: int
    how: str
    start: int = 0

    def __str__(self) -> str:
        return f"rank {self.rank} {self.how}"


@dataclass(frozen=True)
class Fence:
    """From a rank: let ``rank`` be killed and counted as lost, whatever it does."""

    rank: int


@dataclass(frozen=True)
class Failure:
    """The function raised; ``error`` is an expected one, None where it is a bug of ours."""

    text: str
    error: tuple[type[CcctlError], str, dict[str, Any]] | None = None
    state: Heartbeat = field(default_factory=Heartbeat)

    @property
    def summary(self) -> str:
        """What was raised, in one line."""
        said = self.error[1] if self.error is not None else self.text.strip().rpartition("\n")[2]
        return said.partition("\n")[0]


def taken_apart(error: BaseException) -> tuple[type[CcctlError], str, dict[str, Any]] | None:
    """An expected error as its class, message and attributes: subclasses differ in their constructors.

    Attributes that cannot be sent stay behind; None also where the class cannot.
    """
    if not isinstance(error, CcctlError) or not _can_be_sent(type(error)):
        return None
    attributes = {name: value for name, value in error.__dict__.items() if _can_be_sent(value)}
    return (type(error), error.message, attributes)


def _can_be_sent(value: object) -> bool:
    try:
        decode(encode(value))
    except (UnsendableError, ValueError):
        return False
    return True


def rebuilt(parts: tuple[type[CcctlError], str, dict[str, Any]]) -> CcctlError:
    """The error that was taken apart on a rank."""
    cls, message, attributes = parts
    error = cls.__new__(cls, message)
    error.__dict__.update(attributes)
    return error


def environment(addresses: list[str], key: bytes, scratch: str) -> dict[str, str]:
    """How a rank finds the command that started it, and the folder for what MPI maps into memory.

    An address is the path of a socket, or host:port.
    """
    return {_ADDRESSES: " ".join(addresses), _KEY: key.hex(), SCRATCH: scratch}


def scratch_directory() -> str:
    """The folder for shared memory that is removed with the run."""
    return os.environ[SCRATCH]


def run_directories() -> list[str]:
    """Every folder of this host that goes with the run; ours alone if the command was killed outright."""
    session = os.environ.get("TMPDIR", "")
    return [scratch_directory(), *([session] if Path(session).name.startswith(SESSION_PREFIX) else [])]


def remove(folders: Sequence[str]) -> None:
    """Remove folders; other processes remove them, too, and one that is gone in part is waited for."""
    for folder in folders:
        deadline_s = time.monotonic() + _REMOVAL_S
        while Path(folder).exists() and time.monotonic() < deadline_s:
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(0.01)


def segments() -> tuple[str, ...]:
    """The shared memory of MPICH that this process maps: MPICH names it itself, and leaves it when killed."""
    with contextlib.suppress(OSError):
        words = Path("/proc/self/maps").read_text().split()
        return tuple({word for word in words if word.startswith("/dev/shm/mpich_shm_")})
    return ()


def wires_key() -> bytes:
    """The secret of the connections between ranks; ``connect`` takes away what it is made of."""
    return key_of_wires(bytes.fromhex(os.environ[_KEY]))


def connect() -> Channel:
    """Reach the command by the first of its addresses where it answers; raises UnavailableError."""
    key = bytes.fromhex(os.environ.pop(_KEY))
    given = os.environ[_ADDRESSES]
    addresses = [given] if given.startswith("/") else given.split()
    channel = first_to_answer(addresses, key)
    if channel is None:
        raise UnavailableError(
            f"{socket.gethostname()}: cannot reach the command that started this rank at "
            f"{', '.join(addresses)}",
            hint="A firewall between the hosts? The ranks connect back to a port of their choice.",
        )
    return channel


def is_local() -> bool:
    """Whether the command listens for this host alone, in a folder or by the loopback: all ranks are here."""
    return os.environ[_ADDRESSES].startswith(("/", "127."))
