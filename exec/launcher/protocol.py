"""Messages between a rank and the command that started it, over their own connection.

The connection is separate from MPI, so that the loss of a rank inside MPI is still noticed. Both ends are
processes of one user with a shared secret key, and `channel` refuses all others.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal

from exec.launcher.run_folders import RANK, SCRATCH
from exec.records import UnsendableError, decode, encode, share_functions_of
from exec.sockets import Channel, Meeting, Whereabouts, first_to_answer, key_of_wires
from probes.base import CcctlError, UnavailableError, UsageError

__all__ = [
    "BEAT_S",
    "RANK_VARIABLES",
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
    "rank_of_launcher",
    "sendable",
    "wires_key",
]

Wires = Literal["mpi", "sockets"]

# The watchdog allows a silence of twenty heartbeats (SILENCE_S), so a heartbeat may be late.
BEAT_S = 0.25
_ADDRESSES, _KEY = "CCCTL_CONTROL", "CCCTL_CONTROL_KEY"
# The variable with the task and the folders of its modules; only the starter of a rank sets it.
_TASK = "CCCTL_TASK"
# The variable with the number of earlier starts of a rank, if there were any.
START = "CCCTL_START"
# Variables in which launchers give a process its rank.
RANK_VARIABLES = (RANK, "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PMI_ID")


@dataclass(frozen=True)
class Hello:
    """First message of a rank, before it touches MPI; ``start`` counts its earlier starts."""

    rank: int
    host: str
    pid: int
    start: int = 0


@dataclass(frozen=True)
class RankTask:
    """The function that every rank of a run calls: ``function(comm, arguments, progress)``, by its name.

    A rank reads the name "package.module:function" from its environment, never from a message. So nobody with
    the run's key can choose what runs. ``path`` are folders of the function's modules.
    """

    name: str
    path: tuple[str, ...] = ()

    def variables(self) -> dict[str, str]:
        """Return the environment variables for a rank."""
        return {_TASK: json.dumps([self.name, self.path])}

    @classmethod
    def of_this_rank(cls) -> RankTask:
        """Return this process's task and remove it from the environment: a nested run sets its own."""
        name, path = json.loads(os.environ.pop(_TASK))
        return cls(name, tuple(path))

    def function(self) -> Callable[..., Any]:
        """Return the function; ``path`` is searched after this process's own module path."""
        sys.path += [folder for folder in self.path if folder not in sys.path]
        found = function_of(self.name)
        share_functions_of(self.name.partition(":")[0])
        return found


@dataclass(frozen=True)
class RankJob:
    """The data with which a rank begins its task.

    ``arguments`` are a message of `exec.records`, which a rank decodes once it has the modules of its task.
    ``meeting`` is for a rank that is started while the others are at work. ``spares``, the last of the
    ``ranks``, are absent at the start.
    """

    arguments: bytes
    ranks: int
    wires: Wires = "mpi"
    meeting: Meeting | None = None
    spares: tuple[Whereabouts, ...] = ()


class JobForRanks:
    """A job on the side of the command, which gives each rank its part of the arguments.

    Arguments with a method ``of_rank(rank)`` are split by this method; others are sent whole to every rank.
    With ``survive`` the death of a rank does not end the job, and a lost rank is started again up to
    ``rejoin`` times. ``spares``, the last of ``ranks``, are started once the others are at work. Raises
    UsageError if the arguments are no records.
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
        """Return the job of one rank; with ``meeting`` for a rank that is started again."""
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
    """Return the function named "package.module:function"."""
    module, _, name = task.partition(":")
    found: Callable[..., Any] = attrgetter(name)(importlib.import_module(module))
    return found


@dataclass(frozen=True)
class Started:
    """Report that the wires are up; ``segments`` are shared-memory files that a killed rank leaves behind.

    ``where`` is the rank's location if its wires are sockets.
    """

    segments: tuple[str, ...]
    where: Whereabouts | None = None


@dataclass(frozen=True)
class Admitted:
    """Report that the other ranks have admitted this rank, which was started again."""


@dataclass(frozen=True)
class Heartbeat:
    """A heartbeat with the rank's current work; ``peer`` is the awaited rank, None for none, -1 for all."""

    done: float = 0.0
    total: float = 0.0
    doing: str = ""
    peer: int | None = None
    step: str = ""


@dataclass(frozen=True)
class Partial:
    """Pieces of the result since the last heartbeat, kept even if the run fails."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Finished:
    """Report that the function returned.

    Over MPI only rank 0 sets ``value``; without MPI only the rank that is told to hand it over.
    """

    value: Any = None


@dataclass(frozen=True)
class Returned:
    """Report that the function returned on a rank without MPI, which keeps the value until ``Release``."""

    has_value: bool


@dataclass(frozen=True)
class Release:
    """Order to a rank whose function has returned: finish, and send the value if ``hand_over``."""

    hand_over: bool


@dataclass(frozen=True)
class GatherContribution:
    """A rank's contribution to an all-gather over the command."""

    content: bytes


@dataclass(frozen=True)
class Exchanged:
    """All contributions to one all-gather, in rank order, for all ranks."""

    contents: tuple[bytes, ...]


@dataclass(frozen=True)
class Lost:
    """Report to the survivors that a process of a rank is gone for good.

    ``start`` is the number of that process among the rank's starts, from 0; ``how`` tells a person what
    happened.
    """

    rank: int
    how: str
    start: int = 0

    def __str__(self) -> str:
        return f"rank {self.rank} {self.how}"


@dataclass(frozen=True)
class Fence:
    """Request of a rank to kill ``rank`` and count it as lost, whatever its state."""

    rank: int


@dataclass(frozen=True)
class Failure:
    """Report that the function raised; ``error`` is an expected error, None for a bug."""

    text: str
    error: CcctlError | None = None
    state: Heartbeat = field(default_factory=Heartbeat)

    @property
    def summary(self) -> str:
        """The error in one line."""
        message = self.error.message if self.error is not None else self.text.strip().rpartition("\n")[2]
        return message.partition("\n")[0]


def sendable(error: BaseException) -> CcctlError | None:
    """Return a copy of an expected error without attributes that cannot be sent.

    Return None for other errors and for classes that cannot be sent.
    """
    if not isinstance(error, CcctlError) or not _can_be_sent(type(error)):
        return None
    # The constructors of subclasses differ, so the copy is made without them.
    copied = type(error).__new__(type(error), error.message)
    copied.__dict__.update({name: value for name, value in error.__dict__.items() if _can_be_sent(value)})
    return copied


def _can_be_sent(value: object) -> bool:
    try:
        decode(encode(value))
    except (UnsendableError, ValueError):
        return False
    return True


def environment(addresses: list[str], key: bytes, scratch: str) -> dict[str, str]:
    """Return the variables by which a rank finds its command and the folder for MPI's mapped memory.

    An address is the path of a socket, or host:port.
    """
    return {_ADDRESSES: " ".join(addresses), _KEY: key.hex(), SCRATCH: scratch}


def rank_of_launcher() -> int:
    """Return the rank that a launcher has given to this process; 0 without one."""
    return next((int(os.environ[name]) for name in RANK_VARIABLES if name in os.environ), 0)


def wires_key() -> bytes:
    """Derive the secret of the connections between ranks; must run before ``connect`` removes the key."""
    return key_of_wires(bytes.fromhex(os.environ[_KEY]))


def connect() -> Channel:
    """Connect to the command at the first of its addresses that answers; raises UnavailableError."""
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
    """Return whether the command listens for this host alone, so that all ranks are here."""
    return os.environ[_ADDRESSES].startswith(("/", "127."))
