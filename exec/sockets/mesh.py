"""The mesh of all ranks of one run: messages by topic, and connections for data.

One thread reads and sorts the messages of the others; all waiting calls share one condition. A rank whose
connection ends is lost: calls that wait for it raise, and the others go on. If a connection carries nothing
though both ends live, messages take a detour over a third rank. A lost rank may be started again; it then
connects to all live ranks, and messages of its earlier start are dropped.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import logging
import math
import os
import queue
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from exec.records import decode, encode
from exec.sockets.channel import Channel
from exec.sockets.descriptors import close_flow
from exec.sockets.detours import OrderedMessages, Passed, Sent
from exec.sockets.greeter import Greeter
from exec.sockets.listeners import listen_towards, published
from exec.sockets.reach import UNHEARD_S, first_to_answer
from exec.sockets.ucx import Tagged, Worker, carries_data
from probes.base import LostRankError, UnavailableError
from probes.live import host_key

__all__ = ["Exchange", "Meeting", "Mesh", "Whereabouts"]

Exchange = Callable[[bytes], list[bytes]]
"""Returns what every rank passed, in the order of the ranks; collective."""

_log = logging.getLogger(__name__)

# Longest time for the other ranks to connect, and for a flow to open.
_MEETING_S = 120.0
# Interval at which waiting calls check for losses.
_LOOK_S = 0.05
# Interval of the check of all connections, and of probes to an awaited one.
_TICK_S, _TRY_EVERY_S = 0.1, 0.2
# Interval at which data over UCX is moved that a run has left under way.
_TEND_MS = 5
_TRY, _MET = "mesh/try", "mesh/met"
_OUTLASTED_S = 86400.0


@dataclass(frozen=True)
class _NoWay:
    """Reply of a relay that it cannot reach ``dest`` either."""

    dest: int


@dataclass(frozen=True)
class Whereabouts:
    """The location of a rank: its host (``host`` is the lowest rank there), process and addresses.

    ``start`` counts the rank's earlier starts. For a spare that has not joined, ``host`` and ``name`` are the
    expected ones and ``key`` is empty.
    """

    rank: int
    start: int
    host: int
    name: str
    key: str
    pid: int
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Meeting:
    """The data with which a restarted rank joins the others.

    ``start`` counts its earlier starts, ``known`` is where each rank is or was, and ``living`` are the ranks
    to connect to.
    """

    start: int
    known: tuple[Whereabouts, ...]
    living: frozenset[int]


@dataclass(frozen=True)
class _Introduction:
    """The first message on a connection: the caller and the flow; "" is the flow of messages.

    ``where`` is the location of a rank that was started again. ``ucx`` is the address of the caller's worker
    if the flow may go over UCX.
    """

    rank: int
    flow: str = ""
    where: Whereabouts | None = None
    ucx: bytes = b""


@dataclass(frozen=True)
class _Welcome:
    """The reply to a new flow: the address of a worker of UCX and the flow's tag there.

    Without an address the flow goes over TCP. Otherwise the caller sends a trial message over UCX, and a
    second reply, which is a bool, tells whether it has arrived; if not, the flow goes over TCP too.
    """

    ucx: bytes
    tag: int


class _Connection:
    """The connection for messages to one rank, and what is under way on it."""

    def __init__(self, channel: Channel) -> None:
        self.channel, self.sent = channel, Sent(channel.goes_nowhere)
        self.sending = threading.Lock()
        self.probed_s = 0.0
        # Ranks that cannot relay messages to this peer, and ranks whose messages this rank relays to the
        # peer.
        self.unfit, self.passing_for = set[int](), set[int]()


class Mesh:
    """The connections of ``rank`` to the other ranks of a run of ``size``; making it is collective.

    A rank that was started again passes a ``Meeting`` instead of an exchange, and makes its mesh alone. Ranks
    of ``living`` that do not answer then count as lost.

    ``spares``, the last of the ``size`` ranks, are absent at the start and take no part in the exchange: they
    join like ranks that are started again.

    Raises UnavailableError if a rank cannot be reached, or if this rank is on the wrong host.

    ``known[r]`` is where rank r is, or was when it was lost. Users may set two callbacks: ``stalled(peer)``
    is called when data to or from a peer do not move although this rank waits for them, and ``admitted()``
    when the others have admitted this rank.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        how: Exchange | Meeting,
        key: bytes,
        spares: Sequence[Whereabouts] = (),
    ) -> None:
        self.rank, self.size, self._key = rank, size, key
        self.spares = tuple(spare.rank for spare in spares)
        self._changed = threading.Condition()
        self._connections: dict[int, _Connection] = {}
        self._opening = threading.Lock()
        self._arrivals = [OrderedMessages() for _ in range(size)]
        self.stalled: Callable[[int], None] = lambda peer: None
        self.admitted: Callable[[], None] = lambda: None
        self._boxes: dict[tuple[str, int], collections.deque[Any]] = {}
        self._subscribers: dict[str, Callable[[int, Any], None]] = {}
        self._flows: dict[tuple[int, str, bool], socket.socket] = {}
        self._over_ucx = carries_data()
        self._workers: dict[str, Worker] = {}
        self._tagged = WeakKeyDictionary[socket.socket, Tagged]()
        self._tags = itertools.count()
        # Ranks that UCX is known to reach with long messages, and ranks that it does not reach.
        self._proven, self._distrusted = set[int](), set[int]()
        self._revoked: dict[str, str] = {}
        self.lost: dict[int, str] = {}
        self._on_lost: list[Callable[[int, str, int], None]] = []
        self._met: dict[int, int] = {}
        self._closed = False
        self._fresh: queue.SimpleQueue[int | tuple[Whereabouts, Channel]] = queue.SimpleQueue()
        self._selector = selectors.DefaultSelector()
        self._waker, self._awoken = socket.socketpair()
        self._selector.register(self._awoken, selectors.EVENT_READ)
        self.known: list[Whereabouts] = []
        self._listeners = (
            self._introduce_anew(how) if isinstance(how, Meeting) else self._introduce(how, spares)
        )
        # The greeter and the reader handle ranks that arrive from here on.
        self._greeter = Greeter(self._listeners, key, size * size, self._arrived)
        self._reader = threading.Thread(target=self._read, name="mesh", daemon=True)
        self._reader.start()
        if isinstance(how, Meeting):
            self._meet_again(self.known[peer] for peer in sorted(how.living - {rank}))
        else:
            self._meet()

    def close(self) -> None:
        self._closed = True
        self._greeter.close()
        for listener in self._listeners:
            listener.close()
        with contextlib.suppress(OSError):
            self._waker.send(b"x")
        self._reader.join(2)
        for connection in self._connections.values():
            connection.channel.close()
        for flow in self._flows.values():
            close_flow(flow)
        for worker in self._workers.values():
            worker.close_after_sending()
        self._waker.close()
        self._awoken.close()

    def send(self, peer: int, topic: str, payload: object) -> None:
        """Send a message to ``peer``, which may be this rank; do nothing if ``peer`` is lost."""
        if peer == self.rank:
            self._deliver(peer, topic, payload)
            return
        if peer in self._connections and peer not in self.lost:
            self._send(peer, encode((topic, payload)))

    def probe(self, peer: int) -> None:
        """Send ``peer`` a message if none is under way, so that its host must acknowledge something."""
        connection, now_s = self._connections.get(peer), time.monotonic()
        if connection is not None and now_s - connection.probed_s > _TRY_EVERY_S:
            connection.probed_s = now_s
            if not connection.sent.waiting:
                self.send(peer, _TRY, None)

    def is_mute(self, peer: int) -> bool:
        """Return whether the connection to ``peer`` carries nothing, so that messages take a detour."""
        return peer in self._connections and self._connections[peer].sent.mute

    def outlast(self, peer: int, *, outage: bool) -> None:
        """Keep a silent connection to ``peer`` for a day if ``outage``, otherwise for seconds.

        This is for a peer known to be alive and reached over other ranks.
        """
        if peer in self._connections:
            self._connections[peer].channel.outlast(_OUTLASTED_S if outage else UNHEARD_S)

    @property
    def host(self) -> list[int]:
        """The lowest rank on the host of each rank."""
        return [where.host for where in self.known]

    @property
    def start(self) -> int:
        """The number of earlier starts of this rank."""
        return self.known[self.rank].start

    @property
    def met(self) -> dict[int, int]:
        """The ranks that a restarted rank is connected to, and their starts."""
        with self._changed:
            return {peer: start for peer, start in self._met.items() if peer not in self.lost}

    def meet(self, others: Iterable[Whereabouts]) -> None:
        """Connect to ranks that were started again after this rank had met the others."""
        self._meet_again(where for where in others if self._met.get(where.rank, -1) < where.start)

    def reaches(self, peer: int) -> bool:
        """Return whether a new connection to ``peer`` succeeds."""
        channel = first_to_answer(self.known[peer].addresses, self._key)
        if channel is not None:
            channel.close()
        return channel is not None

    def receive(self, peer: int, topic: str, start: int | None = None) -> Any:
        """Wait for the next message of ``peer`` on ``topic`` and return it.

        Raises LostRankError if the rank, or only this ``start`` of it, is lost, or if the topic is revoked.
        """
        with self._changed:
            while True:
                box = self._boxes.get((topic, peer))
                if box:
                    return box.popleft()
                self.check(topic)
                if peer in self.lost or start not in (None, self.known[peer].start):
                    raise LostRankError(f"rank {peer} {self.lost.get(peer, 'was started again')}")
                self._changed.wait(_LOOK_S)

    def subscribe(self, topic: str, hear: Callable[[int, Any], None]) -> None:
        """Register ``hear(peer, message)`` for messages on ``topic``; it is called on the reading thread."""
        with self._changed:
            self._subscribers[topic] = hear
            early = [(key, box) for key, box in self._boxes.items() if key[0] == topic]
            for (_, peer), box in early:
                while box:
                    hear(peer, box.popleft())

    def on_lost(self, hear: Callable[[int, str, int], None]) -> None:
        """Register ``hear(rank, how, start)``, called once for each rank that is lost from now on."""
        with self._changed:
            self._on_lost.append(hear)

    def lose(self, peer: int, how: str, start: int | None = None) -> None:
        """Count ``peer`` as lost, after its connection ended or by decision.

        With ``start`` only that start of the rank is lost: a later start stays.
        """
        with self._changed:
            began = self.known[peer].start
            if peer in self.lost or self._closed or start not in (None, began):
                return
            self.lost[peer] = how
            connection = self._connections.get(peer)
            hearers = tuple(self._on_lost)
            self._changed.notify_all()
        if connection is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(connection.channel)
            connection.channel.close()
        for hear in hearers:
            hear(peer, how, began)

    def _broke(self, peer: int, connection: _Connection, how: str) -> None:
        """Count ``peer`` as lost, unless it was started again and has another connection by now."""
        with self._changed:
            if self._connections.get(peer) is not connection:
                return
        self.lose(peer, how, self.known[peer].start)

    def revoke(self, prefix: str, why: str) -> None:
        """Make all waits on topics that begin with ``prefix``, now or later, raise LostRankError."""
        with self._changed:
            self._revoked[prefix] = why
            self._changed.notify_all()

    def check(self, topic: str) -> None:
        """Raise LostRankError if ``topic`` is revoked."""
        for prefix, why in self._revoked.items():
            if topic.startswith(prefix):
                raise LostRankError(why)

    def forget(self, topic: str) -> None:
        """Drop all messages received on ``topic``."""
        with self._changed:
            for key in [key for key in self._boxes if key[0] == topic]:
                del self._boxes[key]

    def flow(
        self, peer: int, flow: str, deadline_s: float = math.inf, *, outgoing: bool, tagged: bool = False
    ) -> socket.socket:
        """Return the connection for data to or from ``peer``, which its sender opens at first use.

        With ``tagged`` at the sender the data may go over UCX; ``tagged`` (the method) returns how. Raises
        TimeoutError if it is not open at ``deadline_s`` of the monotonic clock.
        """
        found = self._flows.get((peer, flow, outgoing))
        if found is not None:
            return found
        if outgoing:
            with self._opening:
                if (peer, flow, True) not in self._flows:
                    end = self._opened(peer, flow, deadline_s, tagged=tagged)
                    with self._changed:
                        self._flows[(peer, flow, True)] = end
                return self._flows[(peer, flow, True)]
        started_s = time.monotonic()
        with self._changed:
            while (peer, flow, False) not in self._flows:
                self.check(flow)
                now_s = time.monotonic()
                if peer in self.lost or now_s - started_s > _MEETING_S:
                    raise LostRankError(f"rank {peer} {self.lost.get(peer, 'opened no connection for data')}")
                if now_s > deadline_s:
                    raise TimeoutError(f"rank {peer} opened no connection for data")
                self._changed.wait(_LOOK_S)
            return self._flows[(peer, flow, False)]

    def drop_flow(self, peer: int, flow: str, *, outgoing: bool) -> None:
        """Close one connection for data; the next use opens a new one."""
        with self._changed:
            end = self._flows.pop((peer, flow, outgoing), None)
        if end is not None:
            close_flow(end)

    def close_flows(self, prefix: str) -> None:
        """Close the connections for data whose names begin with ``prefix``, an epoch and a slash."""
        with self._changed:
            gone = [key for key in self._flows if key[1].startswith(prefix)]
            ends = [self._flows.pop(key) for key in gone]
            worker = self._workers.pop(prefix, None)
        for end in ends:
            close_flow(end)
        if worker is not None:
            worker.close_after_sending()

    def tagged(self, end: socket.socket) -> Tagged | None:
        """Return the messages over UCX that ``end`` opened; None if the data goes over ``end`` itself."""
        return self._tagged.get(end)

    def distrust(self, peer: int) -> None:
        """Send data to and from ``peer`` over TCP from the next connection on."""
        if peer not in self._distrusted:
            self._distrusted.add(peer)
            _log.warning(f"UCX carries no data to or from rank {peer}, so it goes over TCP from now on")

    def _worker_for(self, peer: int, flow: str) -> Worker | None:
        """Return the worker of the flow's epoch; None if the flow goes over TCP."""
        if not self._over_ucx or peer in self._distrusted or self.host[peer] == self.host[self.rank]:
            return None
        epoch = flow[: flow.index("/") + 1]
        with self._changed:
            if epoch not in self._workers:
                try:
                    self._workers[epoch] = Worker()
                except UnavailableError as error:
                    self._over_ucx = False
                    _log.warning(f"data goes over TCP: {error.message}")
                    return None
            return self._workers[epoch]

    def _opened(self, peer: int, flow: str, limit_s: float, *, tagged: bool) -> socket.socket:
        """Open a connection for data to ``peer`` and announce its flow."""
        channel = first_to_answer(self.known[peer].addresses, self._key)
        if channel is None:
            if limit_s < math.inf:
                raise TimeoutError(f"rank {peer} does not answer")
            self.stalled(peer)
            raise LostRankError(f"rank {peer} does not answer")
        worker = self._worker_for(peer, flow) if tagged else None
        try:
            channel.send(_Introduction(self.rank, flow, ucx=worker.address if worker else b""))
            welcome = channel.receive()
            over = None
            if worker is not None and isinstance(welcome, _Welcome) and welcome.ucx:
                over = self._tried(peer, worker, welcome, channel)
        except (EOFError, OSError) as error:
            channel.close()
            raise LostRankError(f"rank {peer}: {error}") from error
        end = _prepared(channel.detach())
        if over is not None:
            self._tagged[end] = over
        return end

    def _tried(self, peer: int, worker: Worker, welcome: _Welcome, channel: Channel) -> Tagged | None:
        """Send a trial message, and return the flow's messages over UCX; None if it does not arrive.

        Raises EOFError or OSError if the other end closes its connection or its worker.
        """
        endpoint = request = 0
        with contextlib.suppress(UnavailableError):
            endpoint = worker.connect(welcome.ucx)
            request = worker.send_trial(endpoint, welcome.tag, long=peer not in self._proven)
        while not (replies := channel.arrived()):
            worker.move_or_pause()
        if replies[0] and worker.is_done_in_time(request):
            self._proven.add(peer)
            return Tagged(worker, endpoint, welcome.tag)
        self.distrust(peer)
        return None

    def _introduce(self, exchange: Exchange, spares: Sequence[Whereabouts]) -> list[socket.socket]:
        """Exchange the addresses at which ranks listen; return this rank's listeners."""
        identity = json.dumps([socket.gethostname(), repr(host_key()), os.getpid()]).encode()
        hosts = [json.loads(text) for text in exchange(identity)]
        keys = [key for _, key, _ in hosts]
        homes = [keys.index(keys[place.host]) if place.host < len(keys) else place.host for place in spares]
        absent = [replace(spare, host=home) for spare, home in zip(spares, homes, strict=True)]
        others = {name for name, key, _ in hosts if key != keys[self.rank]}
        others |= {spare.name for spare in absent if spare.host != keys.index(keys[self.rank])}
        listeners = listen_towards(others)
        addresses = [json.loads(text) for text in exchange(json.dumps(published(listeners)).encode())]
        for rank, (name, key, pid) in enumerate(hosts):
            self.known.append(Whereabouts(rank, 0, keys.index(key), name, key, pid, tuple(addresses[rank])))
        self.known += absent
        self.lost |= dict.fromkeys(self.spares, "has not joined yet")
        return listeners

    def _introduce_anew(self, meeting: Meeting) -> list[socket.socket]:
        """Open listeners on a restarted rank, and count all other ranks as lost until they are met."""
        key, name, known = repr(host_key()), socket.gethostname(), meeting.known
        before, others = known[self.rank], meeting.living - {self.rank}
        host = before.host
        if not before.key:
            # A spare is new; its host may be known by another name.
            host = min((known[rank].host for rank in others if known[rank].key == key), default=host)
        for rank in others:
            if (known[rank].host == host) != (known[rank].key == key):
                raise UnavailableError(
                    f"rank {self.rank} was started on {name}, but belongs on {before.name}; "
                    f"rank {rank} is on {known[rank].name}"
                )
        listeners = listen_towards({where.name for where in known if where.host != host})
        addresses = tuple(published(listeners))
        own_place = Whereabouts(self.rank, meeting.start, host, name, key, os.getpid(), addresses)
        self.known += [own_place if where.rank == self.rank else where for where in known]
        self.lost |= {
            where.rank: "was not met by this rank, which was started later"
            for where in known
            if where.rank != self.rank
        }
        return listeners

    def _meet_again(self, others: Iterable[Whereabouts]) -> None:
        """Connect to ``others``; those that do not answer stay lost."""
        for where in others:
            channel = first_to_answer(where.addresses, self._key)
            if channel is None:
                _log.warning(f"rank {self.rank} cannot reach rank {where.rank} on {where.name}")
                continue
            channel.send(_Introduction(self.rank, where=self.known[self.rank]))
            self._fresh.put((where, channel))
            self._wake()

    def _renew(self, where: Whereabouts, channel: Channel) -> bool:
        """Connect a restarted rank by ``channel``; close it and return False if ``where`` is outdated.

        This runs on the reading thread, so that no message of the earlier start is read afterwards.
        """
        peer = where.rank
        if where.start < self.known[peer].start or (
            where.start == self.known[peer].start and peer not in self.lost
        ):
            channel.close()
            return False
        self.lose(peer, "was started again")
        with self._changed:
            self.known[peer] = where
            self._arrivals[peer] = OrderedMessages()
            for key in [key for key in self._boxes if key[1] == peer]:
                del self._boxes[key]
            for flow in [key for key in self._flows if key[0] == peer]:
                close_flow(self._flows.pop(flow))
            self._connections[peer] = _Connection(channel)
            self.lost.pop(peer, None)
            self._changed.notify_all()
        self._selector.register(channel, selectors.EVENT_READ, peer)
        self.send(peer, _MET, self.start)
        return True

    def _meet(self) -> None:
        """Connect to the lower ranks, and wait for the higher ones."""
        for peer in range(self.rank):
            channel = first_to_answer(self.known[peer].addresses, self._key)
            if channel is None:
                raise UnavailableError(
                    f"rank {self.rank} ({socket.gethostname()}) cannot reach rank {peer} at "
                    f"{', '.join(self.known[peer].addresses)}",
                    hint="A firewall between the hosts? The ranks connect to ports of their choice.",
                )
            channel.send(_Introduction(self.rank))
            self._register(peer, channel)
        deadline_s = time.monotonic() + _MEETING_S
        with self._changed:
            while len(self._connections) + len(self.lost) < self.size - 1:
                if time.monotonic() > deadline_s:
                    missing = set(range(self.size)) - set(self._connections) - {self.rank}
                    raise UnavailableError(
                        f"rank {self.rank} ({socket.gethostname()}): rank {min(missing)} did not connect "
                        f"within {_MEETING_S:g} s",
                        hint="A firewall between the hosts? The ranks connect to ports of their choice.",
                    )
                self._changed.wait(_LOOK_S)

    def _arrived(self, message: Any, channel: Channel) -> None:
        if not isinstance(message, _Introduction):
            raise EOFError
        if message.where is not None:
            self._fresh.put((message.where, channel))
            self._wake()
            return
        if not message.flow:
            self._register(message.rank, channel)
            return
        tagged = self._accepted(message, channel)
        end = _prepared(channel.detach())
        with self._changed:
            if tagged is not None:
                self._tagged[end] = tagged
            self._flows[(message.rank, message.flow, False)] = end
            self._changed.notify_all()

    def _accepted(self, flow: _Introduction, channel: Channel) -> Tagged | None:
        """Reply to a new flow, and return its messages over UCX; None if it goes over TCP."""
        worker = self._worker_for(flow.rank, flow.flow) if flow.ucx else None
        tagged = None
        if worker is not None:
            # Two hosts on different fabrics are left to TCP.
            with contextlib.suppress(UnavailableError):
                tagged = Tagged(worker, worker.connect(flow.ucx), next(self._tags))
        channel.send(_Welcome(tagged.worker.address, tagged.tag) if tagged else _Welcome(b"", 0))
        if tagged is None:
            return None
        arrived = tagged.worker.receives_trial(tagged.tag)
        if not arrived:
            # A caller that is gone is no fault of UCX, and raises here.
            channel.arrived()
            self.distrust(flow.rank)
        channel.send(arrived)
        return tagged if arrived else None

    def _register(self, peer: int, channel: Channel) -> None:
        with self._changed:
            self._connections[peer] = _Connection(channel)
            self._changed.notify_all()
        self._selector.register(channel, selectors.EVENT_READ, peer)
        # Messages may have arrived with the introduction.
        self._fresh.put(peer)
        self._wake()

    def _wake(self) -> None:
        """Wake the reading thread to handle new connections."""
        with contextlib.suppress(OSError):
            self._waker.send(b"x")

    def _send(self, peer: int, content: bytes) -> None:
        """Send one message, and wait until it has left if the connection carries anything."""
        with self._changed:
            connection = self._connections[peer]
        channel, sent = connection.channel, connection.sent
        try:
            with connection.sending:
                number = sent.next_number()
                channel.post((number, content))
                sent.note(number, channel.framed_bytes, content)
            while self._waits(peer, connection):
                channel.wait_for_room(_LOOK_S)
                with connection.sending:
                    channel.flush()
        except (OSError, ValueError) as error:
            # ValueError: another thread has closed the connection.
            self._broke(peer, connection, f"broke its connection ({error})")
            return
        if sent.mute:
            self._go_round(peer)

    def _waits(self, peer: int, connection: _Connection) -> bool:
        """Return whether a sender must wait; the reading thread never waits, or nobody would read."""
        if not connection.channel.backlog or connection.sent.mute or peer in self.lost:
            return False
        return self._connections[peer] is connection and threading.current_thread() is not self._reader

    def _post(self, peer: int, frame: object) -> None:
        """Send an unnumbered frame without waiting."""
        connection = self._connections[peer]
        try:
            with connection.sending:
                connection.channel.post(frame)
        except OSError as error:
            self._broke(peer, connection, f"broke its connection ({error})")

    def _go_round(self, peer: int) -> None:
        """Send the messages that ``peer`` has not acknowledged by way of a third rank."""
        ends = (self.host[self.rank], self.host[peer])
        connection = self._connections[peer]
        unfit, lost = connection.unfit, self.lost
        fit = (
            rank
            for rank, other in sorted(self._connections.items())
            if self.host[rank] not in ends and not (rank in unfit or rank in lost or other.sent.mute)
        )
        relay = next(fit, None)
        if relay is None or peer in self.lost:
            return
        with connection.sending:
            found = connection.sent.to_pass(relay)
        starts = (self.start, self.known[peer].start)
        for number, content in found:
            self._post(relay, Passed(self.rank, peer, number, content, starts))

    def _pass_on(self, passed: Passed) -> None:
        """Take or forward a message on a detour; runs on the reading thread."""
        if passed.dest == self.rank:
            if passed.starts == (self.known[passed.origin].start, self.start):
                self._take(passed.origin, passed.number, passed.content)
        elif passed.dest in self._connections and passed.dest not in self.lost:
            self._connections[passed.dest].passing_for.add(passed.origin)
            if self.is_mute(passed.dest):
                self._post(passed.origin, _NoWay(passed.dest))
                return
            self._post(passed.dest, passed)
            self.probe(passed.dest)

    def _look(self) -> None:
        """Check acknowledgements, and send messages on a detour if none arrive."""
        now_s = time.monotonic()
        for peer, connection in tuple(self._connections.items()):
            channel, sent = connection.channel, connection.sent
            if peer in self.lost or not (sent.waiting or channel.backlog):
                continue
            was_mute = sent.mute
            try:
                with connection.sending:
                    channel.flush()
                    sent.look(channel.acknowledged_bytes, now_s)
            except (OSError, ValueError) as error:
                self._broke(peer, connection, f"broke its connection ({error})")
                continue
            if not sent.mute:
                connection.unfit.clear()
                continue
            if not was_mute:
                while connection.passing_for:
                    self._post(connection.passing_for.pop(), _NoWay(peer))
            self._go_round(peer)

    def _read(self) -> None:
        looked_s = 0.0
        with contextlib.closing(self._selector):
            while not self._closed:
                self._tend()
                for event, _ in self._selector.select(0 if self._workers else _TICK_S):
                    if event.data is None:
                        self._awoken.recv(64)
                        while not self._fresh.empty():
                            self._hear_fresh(self._fresh.get())
                    else:
                        self._hear(event.data)
                if time.monotonic() - looked_s > _TICK_S:
                    looked_s = time.monotonic()
                    self._look()

    def _tend(self) -> None:
        """Wait a moment for messages, and move data over UCX, which moves in calls only, also in no run."""
        workers = tuple(self._workers.values())
        if not workers:
            return
        moves = [worker.tend() for worker in workers]
        poll = select.poll()
        poll.register(self._selector.fileno(), select.POLLIN)
        for worker in workers:
            if worker.is_free:
                poll.register(worker, select.POLLIN)
        poll.poll(0 if any(moves) else _TEND_MS)

    def _hear_fresh(self, fresh: int | tuple[Whereabouts, Channel]) -> None:
        """Handle a new connection, made by either end."""
        if isinstance(fresh, int):
            self._hear(fresh)
        elif self._renew(*fresh):
            # Messages may have arrived with the introduction.
            self._hear(fresh[0].rank)

    def _hear(self, peer: int) -> None:
        connection = self._connections[peer]
        try:
            frames = connection.channel.arrived()
        except (EOFError, OSError) as error:
            how = "is gone" if isinstance(error, EOFError) else f"is gone ({error})"
            self._broke(peer, connection, how)
            return
        for frame in frames:
            try:
                self._hear_frame(peer, frame)
            except (ValueError, TypeError, AttributeError, LookupError) as error:
                # Only a process with the key could have sent it; the rank goes on without that peer.
                self._broke(peer, connection, f"sent what is no message ({error})")
                return

    def _hear_frame(self, peer: int, frame: Any) -> None:
        if isinstance(frame, Passed):
            self._pass_on(frame)
        elif isinstance(frame, _NoWay):
            self._connections[frame.dest].unfit.add(peer)
            self._go_round(frame.dest)
        else:
            self._take(peer, *frame)

    def _take(self, peer: int, number: int, content: bytes) -> None:
        for message in self._arrivals[peer].take(number, content):
            topic, payload = decode(message)
            if topic == _MET:
                with self._changed:
                    self._met[peer] = payload
            elif topic != _TRY:
                self._deliver(peer, topic, payload)

    def _deliver(self, peer: int, topic: str, payload: object) -> None:
        with self._changed:
            hear = self._subscribers.get(topic)
            if hear is None:
                self._boxes.setdefault((topic, peer), collections.deque()).append(payload)
                self._changed.notify_all()
                return
        try:
            hear(peer, payload)
        except Exception:
            _log.exception(f"rank {self.rank}: a message of rank {peer} on {topic} was not understood")


def _prepared(end: socket.socket) -> socket.socket:
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setblocking(False)
    return end
