"""The ends of a rank's connections, made once: memory, IPC handles and events (AdapCC Sec. V-A)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from exec.cuda import Wire
from exec.cuda.kernel import Arenas, Device, Encoded
from exec.cuda.streams import nccl
from exec.cuda.streams.contexts import Incoming, Outgoing
from exec.cuda.streams.streams import CudaStreams, Opened
from exec.cuda.streams.transports import MessageIn, MessageOut, MpiNotices, PeerIn, PeerOut

__all__ = ["Endpoints", "arena_bases"]


def arena_bases(
    comm: Any, device: Device, places: Arenas, arena: Any, host_of: Sequence[int] = ()
) -> tuple[list[int], list[Opened]]:
    """Return (address of each rank's arena in this process, 0 if not a peer; those opened by IPC).

    Collective over ``comm``; ``arena`` is this rank's own memory. With ``host_of``, the host of each rank,
    arenas on other hosts are not opened.
    """
    rank, runtime = comm.Get_rank(), device.cupy.cuda.runtime
    with device.translating_errors():
        handles = comm.allgather(runtime.ipcGetMemHandle(arena.ptr))
    bases = [0] * comm.Get_size()
    bases[rank] = arena.ptr
    ends = zip(places.sender.tolist(), places.receiver.tolist(), strict=True)
    peers = {peer for pair in ends if rank in pair for peer in pair} - {rank}
    peers = {peer for peer in peers if not len(host_of) or host_of[peer] == host_of[rank]}
    opened = [Opened.memory(device, handles[peer]) for peer in sorted(peers)]
    for peer, memory in zip(sorted(peers), opened, strict=True):
        bases[peer] = memory.ptr
    comm.Barrier()
    return bases, opened


class Endpoints:
    """The ends of this rank's connections, by FIFO; making and closing them is collective."""

    def __init__(
        self,
        comm: Any,
        device: Device,
        streams: CudaStreams,
        encoded: Encoded,
        places: Arenas,
        wires: Mapping[tuple[int, int], Wire],
    ) -> None:
        self._comm, self._device, self._streams, self._encoded = comm, device, streams, encoded
        self.outgoing: dict[int, Outgoing] = {}
        self.incoming: dict[int, Incoming] = {}
        self._kept: list[Any] = []
        self._opened: list[Opened] = []
        self._notices, self._messages = comm.Dup(), comm.Dup()
        ends = list(zip(places.sender.tolist(), places.receiver.tolist(), strict=True))
        by_peer = [fifo for fifo, pair in enumerate(ends) if wires[pair] == "peer"]
        if by_peer:
            self._by_peer(places, ends, by_peer)
        # All ranks make ends in the order of FIFO numbers, because an NCCL communicator waits for the peer.
        for fifo, (sender, receiver) in enumerate(ends):
            wire = wires[sender, receiver]
            if wire != "peer" and comm.Get_rank() in (sender, receiver):
                self._make(fifo, sender, receiver, wire)

    def close(self) -> None:
        """Free everything; collective."""
        for wire in self.incoming.values():
            if isinstance(wire, MessageIn):
                wire.close()
        self._comm.Barrier()
        for opened in self._opened:
            opened.close()
        self._notices.Free()
        self._messages.Free()

    def _by_peer(self, places: Arenas, ends: Sequence[tuple[int, int]], fifos: Sequence[int]) -> None:
        """Make the ends in peer memory: each rank exports its events and opens those of its peers."""
        rank, room = self._comm.Get_rank(), self._encoded.room
        own_events = {
            fifo: [self._streams.shared_event() for _ in range(int(room[fifo]))]
            for fifo in fifos
            for end in ends[fifo]
            if end == rank
        }
        runtime = self._device.cupy.cuda.runtime
        with self._device.translating_errors():
            exported = {
                fifo: [runtime.ipcGetEventHandle(event.ptr) for event in events]
                for fifo, events in own_events.items()
            }
        every = self._comm.allgather(exported)
        arena = self._device.memory(int(places.sizes[rank]))
        bases, self._opened = arena_bases(self._comm, self._device, places, arena)
        self._kept += [arena, own_events]
        for fifo, own in own_events.items():
            sender, receiver = ends[fifo]
            peer = receiver if rank == sender else sender
            peer_events = [Opened.event(self._device, handle) for handle in every[peer][fifo]]
            self._opened += peer_events
            base = bases[receiver] + int(places.slots[fifo])
            at = [base + number * self._encoded.place_bytes for number in range(int(room[fifo]))]
            tags = (2 * fifo, 2 * fifo + 1)
            if rank == sender:
                notices = MpiNotices(self._notices, peer, *tags)
                self.outgoing[fifo] = PeerOut(self._streams, at, own, peer_events, notices)
            else:
                notices = MpiNotices(self._notices, peer, *reversed(tags))
                self.incoming[fifo] = PeerIn(self._streams, at, peer_events, own, notices)

    def _make(self, fifo: int, sender: int, receiver: int, wire: Wire) -> None:
        """Make one end over NCCL or MPI, with slots of its own."""
        sends = self._comm.Get_rank() == sender
        peer = receiver if sends else sender
        room, size_bytes = int(self._encoded.room[fifo]), self._encoded.place_bytes
        if wire == "staged":
            pinned = self._device.pinned((room, size_bytes), "uint8")
            self._kept.append(pinned)
            base = pinned.ctypes.data
        else:
            self._kept.append(self._device.memory(room * size_bytes))
            base = self._kept[-1].ptr
        at = [base + number * size_bytes for number in range(room)]
        streams, done = self._streams, self._streams.done
        if wire == "nccl":
            pair = nccl.connected(self._messages, peer, fifo, base, self._device.stream, sends=sends)
            if sends:
                self.outgoing[fifo] = nccl.NcclOut(streams, at, pair)
            else:
                self.incoming[fifo] = nccl.NcclIn(streams, at, pair)
        elif sends:
            self.outgoing[fifo] = MessageOut(streams, at, self._messages, peer, fifo, _window, done)
        else:
            self.incoming[fifo] = MessageIn(
                streams, at, size_bytes, self._messages, peer, fifo, _window, done
            )


def _window(address: int, size_bytes: int) -> Any:
    """Return a buffer argument for MPI; GPU memory needs an MPI library that can read it."""
    from mpi4py import MPI

    return [MPI.memory.fromaddress(address, size_bytes), MPI.BYTE]
