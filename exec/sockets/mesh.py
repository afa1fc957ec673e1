"""All ranks of one run, each connected to each: messages by topic, and connections for data.

One thread reads what the others say and sorts it; whoever waits for something waits on one condition. A
connection that ends is a rank that is lost: everybody who waits for it is told so, and the others go on.
A connection that carries nothing though both ends live is done without: messages go round over a third rank.
"""

from __future__ import annotations

import collections
import contextlib
import json
import logging
import math
import os
import pickle
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from exec.sockets.channel import Channel
from exec.sockets.detours import Arrivals, Passed, Sent
from exec.sockets.greeter import Greeter
from exec.sockets.listeners import own_addresses_towards
from exec.sockets.reach import UNHEARD_S, first_to_answer
from probes.errors import LostRankError, UnavailableError
from probes.live.host_key import host_key

__all__ = ["Exchange", "Mesh"]

Exchange = Callable[[bytes], list[bytes]]
"""Gives what every rank gave, in the order of the ranks; collective."""

_log = logging.getLogger(__name__)

# How long the other ranks may take to connect, and a flow to come about.
_MEETING_S = 120.0
# How often who waits looks whether what it waits for can still come.
_LOOK_S = 0.05
# How often the connections are looked at, and one that somebody waits for is tried.
_TICK_S, _TRY_EVERY_S = 0.1, 0.2
_TRY = "mesh/try"
_OUTLASTED_S = 86400.0


@dataclass(frozen=True)
class _NoWay:
    """A relay says that it does not reach ``dest`` either."""

    dest: int


@dataclass(frozen=True)
class _Introduction:
    """The first message on a connection: who calls, and for which flow; "" is for messages."""

    rank: int
    flow: str = ""


class Mesh:
    """The connections of ``rank`` to the other ranks of a run of ``size``; collective to make.

    Raises UnavailableError where a rank cannot be reached. ``host[r]`` is the lowest rank on the
    host of r, ``names[r]`` what that host calls itself, ``pids[r]`` its process.
    """

    def __init__(self, rank: int, size: int, exchange: Exchange, key: bytes) -> None:
        self.rank, self.size, self._key = rank, size, key
        self._changed = threading.Condition()
        self._channels: dict[int, Channel] = {}
        self._opening = threading.Lock()
        self._sending = [threading.Lock() for _ in range(size)]
        self._sent: dict[int, Sent] = {}
        self._arrivals = [Arrivals() for _ in range(size)]
        self._unfit: dict[int, set[int]] = {}
        self._passing_for: dict[int, set[int]] = {}
        self._tried_s: dict[int, float] = {}
        self._on_stalled: list[Callable[[int], None]] = []
        self._boxes: dict[tuple[str, int], collections.deque[Any]] = {}
        self._subscribers: dict[str, Callable[[int, Any], None]] = {}
        self._flows: dict[tuple[int, str, bool], socket.socket] = {}
        self._revoked: dict[str, str] = {}
        self.lost: dict[int, str] = {}
        self._on_lost: list[Callable[[int, str], None]] = []
        self._closed = False
        self._fresh: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._selector = selectors.DefaultSelector()
        self._waker, self._awoken = socket.socketpair()
        self._selector.register(self._awoken, selectors.EVENT_READ)
        self._listeners = self._introduce(exchange)
        # From here on ranks may arrive.
        self._greeter = Greeter(self._listeners, key, size * size, self._arrived)
        self._reader = threading.Thread(target=self._read, name="mesh", daemon=True)
        self._reader.start()
        self._meet()

    def close(self) -> None:
        """Hang up on everybody."""
        self._closed = True
        self._greeter.close()
        for listener in self._listeners:
            listener.close()
        with contextlib.suppress(OSError):
            self._waker.send(b"x")
        self._reader.join(2)
        for channel in self._channels.values():
            channel.close()
        for flow in self._flows.values():
            flow.close()
        self._waker.close()
        self._awoken.close()

    def send(self, peer: int, topic: str, payload: object) -> None:
        """Send a message to ``peer``, which may be this rank; to one that is lost nothing is sent."""
        if peer == self.rank:
            self._deliver(peer, topic, payload)
            return
        if peer in self._sent and peer not in self.lost:
            self._send(peer, pickle.dumps((topic, payload), pickle.HIGHEST_PROTOCOL))

    def probe(self, peer: int) -> None:
        """Have something under way to ``peer``, so that its host must answer if the connection carries."""
        now_s = time.monotonic()
        if peer != self.rank and now_s - self._tried_s.get(peer, 0.0) > _TRY_EVERY_S:
            self._tried_s[peer] = now_s
            if not self._sent[peer].waiting:
                self.send(peer, _TRY, None)

    def is_mute(self, peer: int) -> bool:
        """Whether the connection to ``peer`` carries nothing, so that messages go round."""
        return peer in self._sent and self._sent[peer].mute

    def on_stalled(self, hear: Callable[[int], None]) -> None:
        """Let ``hear(peer)`` be called when data from or to ``peer`` is waited for, and nothing passes."""
        self._on_stalled.append(hear)

    def stalled(self, peer: int) -> None:
        """Say that nothing passes between this rank and ``peer``."""
        for hear in self._on_stalled:
            hear(peer)

    def outlast(self, peer: int, *, outage: bool) -> None:
        """Keep the connection to ``peer`` for a day where it carries nothing, or for some seconds again.

        For a peer that is known to live, and is reached over others.
        """
        if peer in self._channels:
            self._channels[peer].outlast(_OUTLASTED_S if outage else UNHEARD_S)

    def reaches(self, peer: int) -> bool:
        """Whether a new connection to ``peer`` comes about."""
        channel = first_to_answer(self._addresses[peer], self._key)
        if channel is not None:
            channel.close()
        return channel is not None

    def receive(self, peer: int, topic: str) -> Any:
        """The next message of ``peer`` on ``topic``, waited for.

        Raises LostRankError where the rank is lost or the topic is revoked.
        """
        with self._changed:
            while True:
                box = self._boxes.get((topic, peer))
                if box:
                    return box.popleft()
                self.check(topic)
                if peer in self.lost:
                    raise LostRankError(f"rank {peer} {self.lost[peer]}")
                self._changed.wait(_LOOK_S)

    def subscribe(self, topic: str, hear: Callable[[int, Any], None]) -> None:
        """Let ``hear(peer, message)`` be called, on the reading thread, with what comes on ``topic``."""
        with self._changed:
            self._subscribers[topic] = hear
            early = [(key, box) for key, box in self._boxes.items() if key[0] == topic]
            for (_, peer), box in early:
                while box:
                    hear(peer, box.popleft())

    def on_lost(self, hear: Callable[[int, str], None]) -> None:
        """Let ``hear(rank, how)`` be called once for each rank that is lost from now on."""
        with self._changed:
            self._on_lost.append(hear)

    def lose(self, peer: int, how: str) -> None:
        """Count ``peer`` as lost: its connection has ended, or it was decided so."""
        with self._changed:
            if peer in self.lost or self._closed:
                return
            self.lost[peer] = how
            channel = self._channels.get(peer)
            hearers = tuple(self._on_lost)
            self._changed.notify_all()
        if channel is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(channel)
            channel.close()
        for hear in hearers:
            hear(peer, how)

    def revoke(self, prefix: str, why: str) -> None:
        """Let whoever waits on a topic that begins with ``prefix``, now or later, raise LostRankError."""
        with self._changed:
            self._revoked[prefix] = why
            self._changed.notify_all()

    def check(self, topic: str) -> None:
        """Raise LostRankError where ``topic`` is revoked."""
        for prefix, why in self._revoked.items():
            if topic.startswith(prefix):
                raise LostRankError(why)

    def forget(self, topic: str) -> None:
        """Drop what has come on ``topic``."""
        with self._changed:
            for key in [key for key in self._boxes if key[0] == topic]:
                del self._boxes[key]

    def outgoing(self, peer: int, flow: str, deadline_s: float = math.inf) -> socket.socket:
        """The connection on which this rank sends data to ``peer``; made at first use, then kept.

        Raises TimeoutError where it has not come about at ``deadline_s`` of the monotonic clock.
        """
        return self._flow(peer, flow, deadline_s, outgoing=True)

    def incoming(self, peer: int, flow: str, deadline_s: float = math.inf) -> socket.socket:
        """The connection on which ``peer`` sends data to this rank; ``peer`` makes it. As ``outgoing``."""
        return self._flow(peer, flow, deadline_s, outgoing=False)

    def drop_flow(self, peer: int, flow: str, *, outgoing: bool) -> None:
        """Close one connection for data; the next use makes another."""
        with self._changed:
            end = self._flows.pop((peer, flow, outgoing), None)
        if end is not None:
            end.close()

    def close_flows(self, prefix: str) -> None:
        """Close the connections for data whose names begin with ``prefix``."""
        with self._changed:
            gone = [key for key in self._flows if key[1].startswith(prefix)]
            ends = [self._flows.pop(key) for key in gone]
        for end in ends:
            end.close()

    def _flow(self, peer: int, flow: str, limit_s: float, *, outgoing: bool) -> socket.socket:
        found = self._flows.get((peer, flow, outgoing))
        if found is not None:
            return found
        if outgoing:
            with self._opening:
                if (peer, flow, True) not in self._flows:
                    end = self._opened(peer, flow, limit_s)
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
                if now_s > limit_s:
                    raise TimeoutError(f"rank {peer} opened no connection for data")
                self._changed.wait(_LOOK_S)
            return self._flows[(peer, flow, False)]

    def _opened(self, peer: int, flow: str, limit_s: float) -> socket.socket:
        """A connection for data to ``peer``, which is told which flow it is for."""
        channel = first_to_answer(self._addresses[peer], self._key)
        if channel is None:
            if limit_s < math.inf:
                raise TimeoutError(f"rank {peer} does not answer")
            self.stalled(peer)
            raise LostRankError(f"rank {peer} does not answer")
        channel.send(_Introduction(self.rank, flow))
        channel.receive()
        return _prepared(channel.detach())

    def _introduce(self, exchange: Exchange) -> list[socket.socket]:
        """Tell the others where this rank listens, and hear where they do."""
        said = json.dumps([socket.gethostname(), repr(host_key()), os.getpid()]).encode()
        hosts = [json.loads(text) for text in exchange(said)]
        keys = [key for _, key, _ in hosts]
        self.host = [keys.index(key) for key in keys]
        self.pids = [pid for _, _, pid in hosts]
        self.names = [name for name, _, _ in hosts]
        others = sorted({name for name, key, _ in hosts if key != keys[self.rank]})
        addresses = own_addresses_towards(others) if others else ["127.0.0.1"]
        listeners = [_server(address) for address in addresses] or [_server("0.0.0.0")]
        mine = [f"{address}:{port}" for one in listeners for address, port in _published(one)]
        self._addresses = [json.loads(text) for text in exchange(json.dumps(mine).encode())]
        return listeners

    def _meet(self) -> None:
        """Connect to the lower ranks, and wait for the higher ones."""
        for peer in range(self.rank):
            channel = first_to_answer(self._addresses[peer], self._key)
            if channel is None:
                raise UnavailableError(
                    f"rank {self.rank} ({socket.gethostname()}) cannot reach rank {peer} at "
                    f"{', '.join(self._addresses[peer])}",
                    hint="A firewall between the hosts? The ranks connect to ports of their choice.",
                )
            channel.send(_Introduction(self.rank))
            self._register(peer, channel)
        deadline_s = time.monotonic() + _MEETING_S
        with self._changed:
            while len(self._channels) + len(self.lost) < self.size - 1:
                if time.monotonic() > deadline_s:
                    missing = set(range(self.size)) - set(self._channels) - {self.rank}
                    raise UnavailableError(
                        f"rank {self.rank} ({socket.gethostname()}): rank {min(missing)} did not connect "
                        f"within {_MEETING_S:g} s",
                        hint="A firewall between the hosts? The ranks connect to ports of their choice.",
                    )
                self._changed.wait(_LOOK_S)

    def _arrived(self, message: Any, channel: Channel) -> None:
        if not isinstance(message, _Introduction):
            raise EOFError
        if not message.flow:
            self._register(message.rank, channel)
            return
        channel.send("welcome")
        end = _prepared(channel.detach())
        with self._changed:
            self._flows[(message.rank, message.flow, False)] = end
            self._changed.notify_all()

    def _register(self, peer: int, channel: Channel) -> None:
        with self._changed:
            self._channels[peer] = channel
            self._sent[peer] = Sent(channel.goes_nowhere)
            self._changed.notify_all()
        self._selector.register(channel, selectors.EVENT_READ, peer)
        # Messages may have come with the introduction.
        self._fresh.put(peer)
        with contextlib.suppress(OSError):
            self._waker.send(b"x")

    def _send(self, peer: int, content: bytes) -> None:
        """Send one message, and wait until it has gone where the connection carries anything."""
        channel, sent = self._channels[peer], self._sent[peer]
        try:
            with self._sending[peer]:
                number = sent.next_number()
                channel.post((number, content))
                sent.note(number, channel.framed_bytes, content)
            while self._waits(peer):
                channel.wait_for_room(_LOOK_S)
                with self._sending[peer]:
                    channel.flush()
        except (OSError, ValueError) as error:
            # A connection that another thread has closed is no file any more.
            self.lose(peer, f"broke its connection ({error})")
            return
        if sent.mute:
            self._go_round(peer)

    def _waits(self, peer: int) -> bool:
        """Whether a sender waits: the thread that reads never does, or nobody would read."""
        backlog = self._channels[peer].backlog and not self._sent[peer].mute
        return backlog and peer not in self.lost and threading.current_thread() is not self._reader

    def _post(self, peer: int, frame: object) -> None:
        """Send what bears no number, without waiting."""
        try:
            with self._sending[peer]:
                self._channels[peer].post(frame)
        except OSError as error:
            self.lose(peer, f"broke its connection ({error})")

    def _go_round(self, peer: int) -> None:
        """Give a third rank what ``peer`` has not acknowledged."""
        ends = (self.host[self.rank], self.host[peer])
        unfit = self._unfit.setdefault(peer, set())
        fit = (
            rank
            for rank, sent in sorted(self._sent.items())
            if self.host[rank] not in ends and rank not in unfit and rank not in self.lost and not sent.mute
        )
        relay = next(fit, None)
        if relay is None or peer in self.lost:
            return
        with self._sending[peer]:
            found = self._sent[peer].to_pass(relay)
        for number, content in found:
            self._post(relay, Passed(self.rank, peer, number, content))

    def _pass_on(self, passed: Passed) -> None:
        """As a relay: on the thread that reads."""
        if passed.dest == self.rank:
            self._take(passed.origin, passed.number, passed.content)
        elif passed.dest in self._sent and passed.dest not in self.lost:
            self._passing_for.setdefault(passed.dest, set()).add(passed.origin)
            if self.is_mute(passed.dest):
                self._post(passed.origin, _NoWay(passed.dest))
                return
            self._post(passed.dest, passed)
            self.probe(passed.dest)

    def _look(self) -> None:
        """See what has been acknowledged, and let messages go round where nothing is."""
        now_s = time.monotonic()
        for peer, sent in tuple(self._sent.items()):
            channel = self._channels[peer]
            if peer in self.lost or not (sent.waiting or channel.backlog):
                continue
            was_mute = sent.mute
            try:
                with self._sending[peer]:
                    channel.flush()
                    sent.look(channel.acknowledged_bytes, now_s)
            except (OSError, ValueError) as error:
                self.lose(peer, f"broke its connection ({error})")
                continue
            if not sent.mute:
                self._unfit.pop(peer, None)
                continue
            if not was_mute:
                for origin in self._passing_for.pop(peer, ()):
                    self._post(origin, _NoWay(peer))
            self._go_round(peer)

    def _read(self) -> None:
        looked_s = 0.0
        while not self._closed:
            for event, _ in self._selector.select(_TICK_S):
                if event.data is None:
                    self._awoken.recv(64)
                    while not self._fresh.empty():
                        self._hear(self._fresh.get())
                else:
                    self._hear(event.data)
            if time.monotonic() - looked_s > _TICK_S:
                looked_s = time.monotonic()
                self._look()

    def _hear(self, peer: int) -> None:
        try:
            frames = self._channels[peer].arrived()
        except (EOFError, OSError) as error:
            self.lose(peer, "is gone" if isinstance(error, EOFError) else f"is gone ({error})")
            return
        for frame in frames:
            if isinstance(frame, Passed):
                self._pass_on(frame)
            elif isinstance(frame, _NoWay):
                self._unfit.setdefault(frame.dest, set()).add(peer)
                self._go_round(frame.dest)
            else:
                self._take(peer, *frame)

    def _take(self, peer: int, number: int, content: bytes) -> None:
        for one in self._arrivals[peer].take(number, content):
            topic, payload = pickle.loads(one)
            if topic != _TRY:
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


def _server(address: str) -> socket.socket:
    return socket.create_server((address, 0), backlog=4096)


def _published(listener: socket.socket) -> list[tuple[str, int]]:
    """Where others reach a listener: at its address, or at every one of this host."""
    address, port = listener.getsockname()[:2]
    if address != "0.0.0.0":
        return [(address, port)]
    import psutil

    found = [
        one.address
        for every in psutil.net_if_addrs().values()
        for one in every
        if one.family == socket.AF_INET and not one.address.startswith("127.")
    ]
    return [(one, port) for one in found or ["127.0.0.1"]]
