"""Admission of the processes of one run: each connection must prove that it knows the run's key.

On one host the port is a socket in a folder that no other user can reach. Between hosts anybody on their
network can reach it. One thread serves all connections that have not yet proven the key. Each of these may
send few bytes in limited time; if there are too many, the oldest is closed.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from exec.sockets.channel import ANSWER_BYTES, Challenge, Channel

__all__ = ["Greeter"]

_log = logging.getLogger(__name__)

# The maximum number of unproven connections at a time, beyond the expected ones: a quarter of the 1,024 files
# that Linux lets a process open by default.
_MOST_STRANGERS = 256
# The seconds that an unproven connection may last: the other end waits as long to be greeted
# (exec.sockets.reach).
_PATIENCE_S = 10.0
# Interval of the checks for connections that have lasted too long.
_LOOK_S = 1.0


@dataclass(eq=False)
class _Guest:
    """A connection that is not yet known to be of the run."""

    end: socket.socket
    challenge: Challenge
    since_s: float = field(default_factory=time.monotonic)
    answer: bytes = b""
    channel: Channel | None = None


class Greeter:
    """Server that greets processes that know the key, and hands over each channel with its first message.

    ``arrived(message, channel)`` is called on a thread of its own; if it raises, that channel is closed.
    ``expected`` is the number of processes that may arrive at a time.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        key: bytes,
        expected: int,
        arrived: Callable[[Any, Channel], None],
    ) -> None:
        self._listeners, self._key, self._arrived = listeners, key, arrived
        self._guests: dict[_Guest, None] = {}
        self._most = _MOST_STRANGERS + expected
        self._lock, self._welcomed = threading.Lock(), set[Channel]()
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._waker, self._awoken = socket.socketpair()
        for listener in listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._awoken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="greeter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop greeting, and close every connection that has not been handed over."""
        with self._lock:
            self._closed = True
            for channel in self._welcomed:
                channel.close()
        self._waker.close()
        # The thread wakes at once. It is a daemon, so it need not end within the time limit.
        self._thread.join(2)

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self._awoken.close)
            stack.callback(self._selector.close)
            while not self._closed:
                for event, _ in self._selector.select(_LOOK_S if self._guests else None):
                    if isinstance(event.data, _Guest):
                        self._hear(event.data)
                    elif event.data is not None:
                        self._accept(event.fileobj)  # type: ignore[arg-type]  # a listener
                self._drop_late()
            for guest in self._guests:
                guest.end.close()

    def _accept(self, listener: socket.socket) -> None:
        try:
            end, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError:
            # Probably too many open files. The listener stays readable, so only a pause keeps this loop from
            # spinning.
            if not self._drop_oldest():
                time.sleep(0.05)
            return
        if len(self._guests) >= self._most:
            self._drop_oldest()
        guest = _Guest(end, Challenge(self._key))
        end.setblocking(False)
        self._guests[guest] = None
        self._selector.register(end, selectors.EVENT_READ, guest)
        try:
            end.send(guest.challenge.question)
        except OSError:
            self._drop(guest)

    def _hear(self, guest: _Guest) -> None:
        if guest not in self._guests:
            return
        try:
            if guest.channel is None:
                self._hear_answer(guest)
            else:
                self._hear_first(guest, guest.channel)
        except BlockingIOError:
            pass
        except Exception:  # whatever one guest does, the others are heard
            self._drop(guest)

    def _hear_answer(self, guest: _Guest) -> None:
        received = guest.end.recv(ANSWER_BYTES - len(guest.answer))
        if not received:
            raise EOFError
        guest.answer += received
        if len(guest.answer) == ANSWER_BYTES:
            guest.end.send(guest.challenge.proof(guest.answer))
            guest.channel = guest.challenge.channel(guest.end, guest.answer)

    def _hear_first(self, guest: _Guest, channel: Channel) -> None:
        messages = channel.arrived()
        if not messages:
            return
        channel.put_back(messages[1:])
        self._forget(guest)
        guest.end.setblocking(True)
        # Handling a guest takes time; a thread keeps the others from waiting.
        threading.Thread(target=self._welcome, args=(messages[0], channel), name="greet", daemon=True).start()

    def _welcome(self, message: Any, channel: Channel) -> None:
        with self._lock:
            if self._closed:
                channel.close()
                return
            self._welcomed.add(channel)
        try:
            self._arrived(message, channel)
        except Exception as error:  # whatever one guest does, the others are heard
            if not isinstance(error, EOFError | OSError):
                _log.exception("a process that knows the key was not admitted")
            channel.close()
        finally:
            with self._lock:
                self._welcomed.discard(channel)

    def _drop_late(self) -> None:
        now_s = time.monotonic()
        for guest in [one for one in self._guests if now_s - one.since_s > _PATIENCE_S]:
            self._drop(guest)

    def _drop_oldest(self) -> bool:
        oldest = next(iter(self._guests), None)
        if oldest is None:
            return False
        self._drop(oldest)
        return True

    def _drop(self, guest: _Guest) -> None:
        self._forget(guest)
        guest.end.close()

    def _forget(self, guest: _Guest) -> None:
        self._guests.pop(guest, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(guest.end)
