"""A group of ranks over TCP: the part of an MPI communicator that plans, profiles and sessions use.

Collective calls pair up by their order, as in MPI. When a member dies, calls that wait in the group raise
LostRankError; the survivors go on in a new group (``among``), which is made without communication.
"""

from __future__ import annotations

import itertools
import math
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from exec.program import Wire
from exec.sockets.mesh import Exchange, Meeting, Mesh, Whereabouts
from exec.sockets.stalls import Stalls
from probes.base import LostRankError

if TYPE_CHECKING:
    from exec.sockets.wires import FlowWires

__all__ = ["Group", "join", "rejoin"]

# After this long without data, check whether a rank was lost.
_POLL_MS = 50
# asm-generic/socket.h; Python has no name for it.
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")
_TOLD_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
# The tag of ``line_up``; those of callers are not negative.
_LINE_UP = -1


def join(rank: int, size: int, exchange: Exchange, key: bytes, spares: Sequence[Whereabouts] = ()) -> Group:
    """Return the group of all ranks that are present at a run's start; collective.

    ``exchange`` is an all-gather of a few bytes over an existing medium (the launcher, MPI, a store); ``key``
    is 32 secret bytes known to all ranks. ``spares``, the last of the ``size`` ranks, are absent at first:
    they may join a session. Raises UnavailableError if a rank cannot be reached.
    """
    return Group(Mesh(rank, size, exchange, key, spares), range(size - len(spares)), "0")


def rejoin(rank: int, size: int, meeting: Meeting, key: bytes) -> Group:
    """Return the group of all ranks for a rank that is started later than the others.

    The group only serves to make a session, through which the others admit this rank. Any other call in the
    group raises LostRankError. Raises UnavailableError if this rank is on another host than before.
    """
    group = Group(Mesh(rank, size, meeting, key), range(size), "0")
    group.revoke("this rank was started later, and reaches the others only through a session")
    return group


class Group:
    """Some ranks of a mesh, renumbered from 0: ``members[i]`` is rank i's number in the mesh.

    ``epoch`` names the connections for data. Duplicates of a group share these connections, because their
    runs follow each other.
    """

    def __init__(self, mesh: Mesh, members: Sequence[int], epoch: str, name: str = "") -> None:
        self.mesh, self.members, self.epoch = mesh, tuple(members), epoch
        self._rank = self.members.index(mesh.rank)
        self._name = name or f"{epoch}/"
        self._duplicates = itertools.count()
        self._tables: Any = None

    def Get_rank(self) -> int:  # noqa: N802 - MPI's names
        return self._rank

    def Get_size(self) -> int:  # noqa: N802
        return len(self.members)

    def Dup(self) -> Group:  # noqa: N802
        """Return a group of the same ranks with separate messages; members must call it in one order."""
        return Group(self.mesh, self.members, self.epoch, f"{self._name}{next(self._duplicates)}/")

    def Free(self) -> None:  # noqa: N802
        self.mesh.forget(self._name)

    def named(self, name: str) -> Group:
        """Return a group of the same ranks with separate messages, for use on another thread."""
        return Group(self.mesh, self.members, self.epoch, f"{self.epoch}/{name}/")

    def among(self, members: Sequence[int], epoch: str) -> Group:
        """Return the group of ``members`` (mesh numbers) in a new ``epoch``, equal on all of them."""
        return Group(self.mesh, sorted(members), epoch)

    def revoke(self, why: str) -> None:
        """Make every call in this epoch, and every run on its wires, raise LostRankError."""
        self.mesh.revoke(f"{self.epoch}/", why)

    def check(self) -> None:
        """Raise LostRankError if a member is lost or the group is revoked."""
        self.mesh.check(self._name)
        for rank, how in tuple(self.mesh.lost.items()):
            if rank in self.members:
                raise LostRankError(f"rank {self.members.index(rank)} {how}")

    def close(self) -> None:
        """Close the connections for data of this epoch."""
        self.mesh.close_flows(f"{self.epoch}/")

    def allgather(self, value: Any) -> list[Any]:
        for member in self.members:
            self.mesh.send(member, self._name, value)
        return [self._next(rank) for rank in range(len(self.members))]

    def Barrier(self) -> None:  # noqa: N802
        self.allgather(None)

    def line_up(self) -> None:
        """Return at nearly the same time on all ranks: a dissemination barrier (Hensgen et al. 1988).

        Its messages are single bytes on connections for data, which arrive sooner than those of ``Barrier``.
        """
        ranks, distance, byte = len(self.members), 1, bytearray(1)
        while distance < ranks:
            self.Send(byte, (self._rank + distance) % ranks, _LINE_UP)
            self.Recv(byte, (self._rank - distance) % ranks, _LINE_UP)
            distance *= 2

    def bcast(self, value: Any, root: int = 0) -> Any:
        if self._rank == root:
            for member in self.members:
                self.mesh.send(member, self._name, value)
        return self._next(root)

    def gather(self, value: Any, root: int = 0) -> list[Any] | None:
        self.mesh.send(self.members[root], self._name, value)
        return [self._next(rank) for rank in range(len(self.members))] if self._rank == root else None

    def send(self, value: Any, dest: int, tag: int = 0) -> None:
        self.mesh.send(self.members[dest], f"{self._name}#{tag}", value)

    def recv(self, source: int, tag: int = 0) -> Any:
        return self.mesh.receive(self.members[source], f"{self._name}#{tag}")

    def Send(  # noqa: N802
        self, data: Any, dest: int, tag: int = 0, deadline_s: float = math.inf
    ) -> None:
        """Send bytes, or a contiguous array, over the connection for data; return once they are sent.

        Raises TimeoutError at ``deadline_s`` of the monotonic clock; the connection is then unusable
        (``drop_flow``).
        """
        end = self.mesh.flow(self.members[dest], self._flow(tag), deadline_s, outgoing=True)
        view, sent = _bytes_of(data), 0
        while sent < len(view):
            try:
                sent += end.send(view[sent:])
            except BlockingIOError:
                self._poll(end, select.POLLOUT, deadline_s)
            except OSError as error:
                self._lost(dest, error)

    def Recv(  # noqa: N802
        self, data: Any, source: int, tag: int = 0, deadline_s: float = math.inf
    ) -> None:
        """Fill a contiguous array with the next data of ``source`` on the connection for data.

        Raises TimeoutError as ``Send``.
        """
        end = self.mesh.flow(self.members[source], self._flow(tag), deadline_s, outgoing=False)
        self._fill(end, _bytes_of(data), source, deadline_s)

    def arrivals(self, source: int, tag: int, count: int, piece_bytes: int, deadline_s: float) -> list[float]:
        """Return the arrival times at this host of ``count`` pieces from ``source``, in seconds.

        The kernel takes the times, so they are right even if this process waits for a core. Raises as
        ``Recv``.
        """
        end = self.mesh.flow(self.members[source], self._flow(tag), deadline_s, outgoing=False)
        end.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        piece, found = bytearray(piece_bytes), list[float]()
        for _ in range(count):
            ancillary = self._fill(end, memoryview(piece), source, deadline_s)
            found.append(_arrived_s(ancillary))
        return found

    def drop_flow(self, peer: int, tags: Sequence[int], *, outgoing: bool) -> None:
        """Close connections for data to or from one member; the next call opens new ones."""
        for tag in tags:
            self.mesh.drop_flow(self.members[peer], self._flow(tag), outgoing=outgoing)

    def wires(self, specifications: Sequence[Wire]) -> FlowWires:
        """Return the connections of a plan to ranks of other hosts."""
        # Imported here because only plans need compiled loops.
        from exec.sockets.wires import FlowWires

        wires = sorted(specifications, key=lambda wire: not wire.outgoing)
        ends = []
        for wire in wires:
            peer, name = self.members[wire.peer], f"{self.epoch}/{wire.channel}"
            ends.append((peer, self.mesh.flow(peer, name, outgoing=wire.outgoing, tagged=True)))
        tagged = [self.mesh.tagged(end) for _, end in ends]
        return FlowWires(wires, ends, self.check, Stalls(self.mesh), tagged)

    def _fill(self, end: socket.socket, view: memoryview, source: int, deadline_s: float) -> list[Any]:
        """Fill ``view`` with the next data of ``source``; return the last read's ancillary data."""
        got, ancillary = 0, list[Any]()
        while got < len(view):
            try:
                count, ancillary, *_ = end.recvmsg_into([view[got:]], _TOLD_BYTES)
            except BlockingIOError:
                self._poll(end, select.POLLIN, deadline_s)
                continue
            except OSError as error:
                self._lost(source, error)
            if not count:
                self._lost(source, EOFError("closed its connection"))
            got += count
        return ancillary

    def _flow(self, tag: int) -> str:
        return f"{self.epoch}/message {tag}"

    def _next(self, rank: int) -> Any:
        return self.mesh.receive(self.members[rank], self._name)

    def _poll(self, end: Any, event: int, deadline_s: float) -> None:
        poll = select.poll()
        poll.register(end, event)
        if not poll.poll(_POLL_MS):
            self.check()
            if time.monotonic() > deadline_s:
                raise TimeoutError("nothing passes")

    def _lost(self, rank: int, error: Exception) -> NoReturn:
        self.check()
        raise LostRankError(f"rank {rank}: {error}") from error


def _arrived_s(ancillary: Sequence[tuple[int, int, bytes]]) -> float:
    """Return the arrival time from a read's ancillary data; the current time if it has none."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return float(seconds + 1e-9 * nanoseconds)
    return time.time()


def _bytes_of(data: Any) -> memoryview:
    return memoryview(data.reshape(-1).view(np.uint8).data if isinstance(data, np.ndarray) else data).cast(
        "B"
    )
