"""The ends of a program's connections: shared memory within a host, wires between hosts."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any

import numpy as np

from exec.mpi import interpreter
from exec.mpi.encode import MemoryAddresses, pieces_of, slot_bytes, tiling_of
from exec.mpi.shared_memory import Origin, fetched_word, mapped, origin_of, shared_array
from exec.mpi.traffic import Message, Traffic
from exec.program import Array, Layout, Move, Span, Wire, counters_at
from probes.base import Indices
from probes.live import host_key
from synth.prediction import FETCHED_BYTES, TILE_BYTES
from synth.program import FIFO_DEPTH, OUTPUT, SCRATCH
from synth.simulation import connections as numbered

__all__ = ["Connections", "window_bytes_at_most"]

# The size of a tile if some connection is a wire. It is larger than in memory, because each message over a
# wire has a fixed cost.
_WIRE_TILE_BYTES = 4 << 20
# A connection in memory has _DEPTH slots. Short messages get as many as fit into _SLOTS_BYTES, up to
# _MOST_DEPTH. With more slots the writer fetches the reader's counter less often, and a fetch costs as much
# as a short message.
_DEPTH, _MOST_DEPTH, _SLOTS_BYTES = 2 * FIFO_DEPTH, 16 * FIFO_DEPTH, 16 << 10
# On a wire short messages get as many slots as fit into _WIRE_SLOTS_BYTES, up to _WIRE_DEPTH. So the wire
# stays busy while its ranks do not run.
_WIRE_DEPTH, _WIRE_SLOTS_BYTES = 8 * FIFO_DEPTH, 2 << 20
# The writer's and the reader's counter, each alone in a block of 128 bytes (two cache lines of x86).
_COUNTERS_BYTES = 256
_LINE, _FLAG_BYTES = 128, 8
_BYTES = np.dtype(np.uint8)
# The key of the scratch buffer among connection numbers, which are not negative.
SCRATCH_PLACE = -1
# A window begins with _BASES_BYTES for three words: the addresses of the rank's input and output in its
# process, and _PROBE ("ccctl" in ASCII). By reading _PROBE, other ranks test whether they can read its
# memory.
_BASES_BYTES, _PROBE = _LINE, 0x636363746C


class Connections:
    """The connections of this rank; making them is collective.

    ``rows[connection]`` is the row in the table of links. Each rank keeps three things in one window of
    shared memory: the counters and slots of the connections on which it sends within its host, its own ends
    of wires, and its scratch. All ranks compute the same layout of every window.
    """

    def __init__(
        self,
        layout: Layout,
        comm: Any,
        moves: list[Move],
        send: Array,
        recv: Array,
        *,
        traced: bool = False,
        summed: bool = False,
    ) -> None:
        self.layout, self.comm, self.moves, self._traced = layout, comm, moves, traced
        # Checksums need each message in memory of this process.
        self._mapped_only = summed
        # For each traced wire, the time at which each message had passed.
        self.through_ns: dict[int, Indices] = {}
        self.rank, self.dtype = comm.Get_rank(), recv.dtype
        self.ends = _ends(layout)
        self._rates = _rates(layout)
        keys = comm.allgather(host_key())
        self.host = [keys.index(key) for key in keys]
        cores = comm.allgather(os.sched_getaffinity(0))
        here = [rank for rank, host in enumerate(self.host) if host == self.host[self.rank]]
        self.crowded = len(here) > len(set.union(*(cores[rank] for rank in here)))
        self.leads = self.host[self.rank] == self.rank
        far = any(self.wired(connection) for connection in self.ends)
        self.tiling = tiling_of(layout, self.dtype.itemsize, _WIRE_TILE_BYTES if far else TILE_BYTES)
        self._message_bytes = self._longest_messages()
        self.slot_bytes = {
            number: -(-(self._flag_at(number) + _FLAG_BYTES) // _LINE) * _LINE
            for number in self._message_bytes
        }
        numbers = [number for number, ends in self.ends.items() if self.rank in ends[:2]]
        self.rows = {number: row for row, number in enumerate(numbers)}
        self.places, size_bytes = self._window_layout(self.rank)
        self.window = shared_array(size_bytes, _BYTES)
        scratch = self.window[self.places[SCRATCH_PLACE] :]
        self._bytes = (send.view(_BYTES), recv.view(_BYTES), scratch)
        self.publish(send, recv)
        self._map_peers(send, recv)

    @property
    def lonely(self) -> bool:
        """Whether all connections of this rank are wires."""
        return all(self.wired(number) for number in self.rows)

    def wired(self, connection: int) -> bool:
        sender, receiver, _ = self.ends[connection]
        return bool(self.host[sender] != self.host[receiver])

    def readable(self, connection: int, span: Span) -> bool:
        """Return whether the receiver, or MPI in its place, can read the sender's buffer without a slot."""
        if self.wired(connection):
            count = int(self.layout.program.count.max(initial=1))
            return count == 1 or (self.tiling.tiles == 1 and self.layout.even)
        # LL and LL128 copy every message into a slot, so that no sender waits for its reader.
        if self.layout.program.protocol != "Simple":
            return False
        if span.buffer == SCRATCH or self.origins[self.ends[connection][0]][span.buffer] is not None:
            return True
        return self._fetches and not self._mapped_only and self._message_bytes[connection] >= FETCHED_BYTES

    def memory(self) -> MemoryAddresses:
        send, recv, scratch = (int(array.ctypes.data) for array in self._bytes)
        return MemoryAddresses((send, recv, scratch), self._address, self.dtype.itemsize)

    def linked(self, messages: Traffic) -> tuple[Indices, list[Wire]]:
        """Return the table of links, and the wires of the links that leave the host."""
        direct, by_connection = set(), defaultdict(list)
        for message in messages.outgoing.values():
            by_connection[message.connection].append(message)
            if not message.copied:
                direct.add(message.connection)
        table, wires = [], []
        for number in self.rows:
            sender, _, _ = self.ends[number]
            wired = self.wired(number)
            owner = self.rank if wired else sender
            base = self._window_of(owner)
            place = (
                base.ctypes.data + (self.places if owner == self.rank else self._far_places[owner])[number]
            )
            settle = sender == self.rank and (wired or number in direct)
            slots = place + _COUNTERS_BYTES
            size, per_tile = self.slot_bytes[number], messages.per_tile[number]
            flag = 0 if wired else self._flag_at(number)
            row = [place, place + _LINE, slots, size, self._depth(number), per_tile, int(settle), flag, 0]
            table.append(row)
            if wired:
                wires.append(self._wire(number, self.places[number], by_connection[number]))
        links = np.array(table, dtype=np.int64).reshape(-1, interpreter.LINK_WORDS)
        return links, wires

    def close(self) -> None:
        """Unmap the other ranks' memory once no rank runs any more; collective."""
        self.comm.Barrier()
        self._windows.clear()

    def abandon(self) -> None:
        """Unmap the other ranks' memory without waiting for them."""
        self._windows.clear()

    def _longest_messages(self) -> dict[int, int]:
        """Return the bytes of each connection's longest message in a tile."""
        sizes: defaultdict[int, int] = defaultdict(int)
        for move in self.moves:
            if move.to >= 0:
                taken = slot_bytes(self.layout, self.tiling, move, self.dtype.itemsize)
                sizes[move.to] = max(sizes[move.to], taken)
        return sizes

    def _flag_at(self, number: int) -> int:
        """Return the offset of the flag in a slot: behind the longest message, where no data is written."""
        return max(_FLAG_BYTES, -(-self._message_bytes[number] // _FLAG_BYTES) * _FLAG_BYTES)

    def _depth(self, number: int) -> int:
        """Return the number of slots of a connection."""
        if not self.wired(number):
            return max(_DEPTH, min(_MOST_DEPTH, _SLOTS_BYTES // self.slot_bytes[number]))
        return min(_WIRE_DEPTH, max(_DEPTH, _WIRE_SLOTS_BYTES // max(1, self.slot_bytes[number])))

    def _window_layout(self, rank: int) -> tuple[dict[int, int], int]:
        """Return the offsets of connections and scratch in the window of ``rank``, and the window's bytes."""
        places, at = {}, _BASES_BYTES
        for number, (sender, receiver, _) in self.ends.items():
            if rank == sender or (rank == receiver and self.wired(number)):
                places[number] = at
                at += _COUNTERS_BYTES + self._depth(number) * self.slot_bytes[number]
        at = -(-at // 4096) * 4096
        places[SCRATCH_PLACE] = at
        return places, at + self.layout.elements(rank, SCRATCH) * self.dtype.itemsize

    def _map_peers(self, send: Array, recv: Array) -> None:
        """Exchange the places of windows and buffers, and map those that this rank reads; collective."""
        where = tuple(origin_of(array) for array in (send, recv, self.window))
        # For each rank the origins of its input, its output and its window; None for private memory.
        self.origins: list[tuple[Origin | None, ...]] = self.comm.allgather(where)
        peers = {end for number in self.rows for end in self.ends[number][:2] if not self.wired(number)}
        peers.discard(self.rank)
        self.neighbours = {peer: self._window_origin(peer).pid for peer in sorted(peers)}
        self._windows: dict[tuple[int, int], Array] = {}
        self._far_places = {peer: self._window_layout(peer)[0] for peer in peers}
        for peer in peers:
            for origin in self.origins[peer]:
                if origin is not None and origin[:2] not in self._windows:
                    self._windows[origin[:2]] = mapped(*origin[:2])
        # All ranks must plan alike. The exchange also keeps each rank alive until the others have mapped it.
        self._fetches = all(self.comm.allgather(self._can_fetch()))

    def _window_of(self, rank: int) -> Array:
        if rank == self.rank:
            return self.window
        origin = self._window_origin(rank)
        window: Array = self._windows[origin[:2]][origin.offset :]
        return window

    def _window_origin(self, rank: int) -> Origin:
        origin = self.origins[rank][-1]
        assert origin is not None
        return origin

    def publish(self, send: Array, recv: Array) -> None:
        """Write the buffers' addresses where other ranks of this host read them; only between runs."""
        self.window[: 3 * 8].view(np.int64)[:] = (send.ctypes.data, recv.ctypes.data, _PROBE)

    def _can_fetch(self) -> bool:
        """Return whether the system lets this rank read the memory of its peers on this host; collective."""
        addresses = self.comm.allgather(int(self.window.ctypes.data))
        self._probes = {peer: (pid, addresses[peer] + 2 * 8) for peer, pid in self.neighbours.items()}
        return self.unreadable() is None

    def unreadable(self) -> int | None:
        """Return a peer on this host whose memory this rank cannot read; None if it can read all."""
        peers = (peer for peer, probe in self._probes.items() if fetched_word(*probe) != _PROBE)
        return next(peers, None)

    def _address(self, rank: int, buffer: int) -> tuple[int, int, int]:
        """Return the address of a buffer of any rank of this host, as in `MemoryAddresses.far`."""
        if rank == self.rank:
            return int(self._bytes[buffer].ctypes.data), 0, 0
        window_at = int(self._window_of(rank).ctypes.data)
        if buffer == SCRATCH:
            return window_at + self._far_places[rank][SCRATCH_PLACE], 0, 0
        origin = self.origins[rank][buffer]
        if origin is None:
            return 0, self._window_origin(rank).pid, window_at + 8 * (buffer == OUTPUT)
        return int(self._windows[origin[:2]].ctypes.data) + origin.offset, 0, 0

    def _wire(self, number: int, place: int, messages: list[Message]) -> Wire:
        """Return the wire of a connection, with its messages in order."""
        sender, receiver, channel = self.ends[number]
        outgoing = sender == self.rank
        views, early, depth = [], [], self._depth(number)
        for tile in range(self.tiling.tiles):
            for message in messages:
                at = (tile * len(messages) + message.number) % depth
                first = place + _COUNTERS_BYTES + at * self.slot_bytes[number]
                slot = self.window[first : first + self._size_bytes(message, tile)]
                early.append(message.landed)
                views.append((self._sent_memory if outgoing else self._received_memory)(message, tile, slot))
        through_ns = np.zeros(len(views) * self._traced, dtype=np.int64)
        if self._traced:
            self.through_ns[number] = through_ns
        return Wire(
            outgoing,
            receiver if outgoing else sender,
            channel,
            counters_at(self.window, place),
            views,
            depth,
            tuple(early),
            through_ns,
            self._rates.get(number, 0.0) if outgoing else 0.0,
        )

    def _sent_memory(self, message: Message, tile: int, slot: Array) -> Array:
        """Return the memory from which a message of one tile is sent."""
        return slot if message.copied else self._of_tile(message.spans[0] if message.spans else None, tile)

    def _received_memory(self, message: Message, tile: int, slot: Array) -> Array:
        """Return the memory into which a message of one tile is received."""
        if not message.landed:
            return slot
        parts = self.moves[message.received].parts
        return self._of_tile(parts[0].dst if parts else None, tile)

    def _size_bytes(self, message: Message, tile: int) -> int:
        """Return the bytes of a message of one tile; both ends compute the same."""
        item_bytes, ahead = self.dtype.itemsize, tile * self.tiling.tile
        if not message.copied:
            first, stop = self._elements(message.spans[0] if message.spans else None, tile)
            return int((stop - first) * item_bytes)
        pieces = pieces_of(self.layout, self.tiling, self.moves[message.sent], None, self.memory())
        ends = [
            piece[interpreter.AT] + min(self.tiling.tile, piece[interpreter.LENGTH] - ahead) * item_bytes
            for piece in pieces
            if piece[interpreter.LENGTH] > ahead
        ]
        return int(max(ends, default=0))

    def _elements(self, span: Span | None, tile: int) -> tuple[int, int]:
        """Return the first element and the end of the part of a span that one tile covers."""
        if span is None:
            return 0, 0
        first = span.start + tile * self.tiling.tile
        return first, max(first, min(span.stop, first + self.tiling.tile))

    def _of_tile(self, span: Span | None, tile: int) -> Array:
        if span is None:
            return self.window[:0]
        (first, stop), item_bytes = self._elements(span, tile), self.dtype.itemsize
        return self._bytes[span.buffer][first * item_bytes : stop * item_bytes]


def window_bytes_at_most(layout: Layout, rank: int, item_bytes: int, *, far: bool) -> int:
    """Return an upper bound on the window of ``rank``; ``far``: some ranks are on other hosts."""
    program = layout.program
    most = int(program.count.max(initial=1))
    of_rank = program.tb_rank == rank
    ends = int(np.count_nonzero(program.tb_send[of_rank] >= 0))
    ends += int(np.count_nonzero(program.tb_recv[of_rank] >= 0)) if far else 0
    tile_bytes = _WIRE_TILE_BYTES if far else TILE_BYTES
    message = min(tile_bytes, layout.largest * most * item_bytes) + 2 * _LINE * most
    slots = max(_DEPTH * message, _SLOTS_BYTES)
    if far:
        slots = max(slots, _WIRE_SLOTS_BYTES + _WIRE_DEPTH * _LINE * most)
    scratch = layout.elements(rank, SCRATCH) * item_bytes
    return _BASES_BYTES + ends * (_COUNTERS_BYTES + slots) + scratch


def _rates(layout: Layout) -> dict[int, float]:
    """Return the sending rate of each connection, if the program sets rates."""
    program = layout.program
    if not len(program.tb_bytes_per_s):
        return {}
    send, _ = numbered(program)
    paces = zip(send, program.tb_bytes_per_s.tolist(), strict=True)
    return {number: bytes_per_s for number, bytes_per_s in paces if number >= 0}


def _ends(layout: Layout) -> dict[int, tuple[int, int, int]]:
    """Return (sender, receiver, channel) of each connection."""
    program = layout.program
    send, _ = numbered(program)
    columns = (program.tb_rank.tolist(), program.tb_send.tolist(), program.tb_channel.tolist())
    return {
        number: ends for number, ends in zip(send, zip(*columns, strict=True), strict=True) if number >= 0
    }
