"""Messages between two processes of one run: each bears a MAC, and none is read without.

Both ends know the run's key. In the greeting each shows that it does, over a nonce of either end; so far
nobody is sent or believed more than a few bytes. The keys of the two directions of this one connection
come of the run's key and both nonces. A message is its length, the MAC (keyed BLAKE2b, RFC 7693) of its
number and its content, and the content. One that was changed, cut, repeated, left out or moved is
refused before it is read. Contents are records (`exec.records`), never code. Nothing is encrypted.
"""

from __future__ import annotations

import collections
import contextlib
import hmac
import math
import secrets
import select
import socket
import struct
import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from exec.records import decode, encode
from exec.sockets.unacknowledged import goes_nowhere, unacknowledged_bytes

__all__ = ["ANSWER_BYTES", "BrokenMessage", "Challenge", "Channel", "greet", "key_of_wires"]

_MAGIC = b"ccctl ranks 1\n"
_NONCE_BYTES = _MAC_BYTES = 32
# What the other end may say before it has shown that it knows the key: its nonce and a MAC.
ANSWER_BYTES = _NONCE_BYTES + _MAC_BYTES
_HEADER = struct.Struct(f">Q{_MAC_BYTES}s")
# At a time, so that one end that says much does not keep the others waiting.
# A length is believed up to here before its MAC was seen.
_MOST_BYTES = 1 << 36
_READ_BYTES, _MOST_READS = 1 << 20, 64


class BrokenMessage(OSError):  # noqa: N818 - what came, not what went wrong here
    """A message is not the next one that the other end sent."""


class Channel:
    """One end of a greeted connection; ``fileno`` makes it an argument of ``select``."""

    def __init__(self, end: socket.socket, sending: bytes, receiving: bytes) -> None:
        self._end = end
        if end.family != socket.AF_UNIX:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._keys, self._sent, self._received = (sending, receiving), 0, 0
        self._buffer, self._outgoing = bytearray(), bytearray()
        self.framed_bytes = 0
        self._waiting: collections.deque[Any] = collections.deque()
        self._ended: Exception | None = None

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, message: object) -> None:
        """Send one message; raises OSError where the other end is gone.

        What is no record raises UnsendableError before a byte is sent.
        """
        # In one piece, or a short message would wait until the header is acknowledged (Nagle's algorithm).
        self._end.sendall(self._framed(message))

    def post(self, message: object) -> None:
        """Send one message as far as the other end takes it at once; ``flush`` sends the rest.

        Raises OSError where the other end is gone. An end that has posted sends nothing more by ``send``.
        """
        self._outgoing += self._framed(message)
        self.flush()

    def flush(self) -> None:
        """Send what was posted, as far as the other end takes it at once; raises OSError where it is gone."""
        while self._outgoing:
            try:
                sent = self._end.send(self._outgoing, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            del self._outgoing[:sent]

    @property
    def backlog(self) -> bool:
        """Whether something that was posted has not been taken yet."""
        return bool(self._outgoing)

    def wait_for_room(self, limit_s: float) -> None:
        """Wait until the other end may take more of what was posted, or ``limit_s`` seconds."""
        poll = select.poll()
        poll.register(self._end, select.POLLOUT)
        poll.poll(math.ceil(1000 * limit_s))

    @property
    def acknowledged_bytes(self) -> int:
        """Of ``framed_bytes``, all that messages came to so far, what the other host has acknowledged."""
        return self.framed_bytes - len(self._outgoing) - unacknowledged_bytes(self._end)

    def goes_nowhere(self) -> bool:
        """Whether the connection carries nothing, though the other end has room."""
        return goes_nowhere(self._end)

    def arrived(self) -> list[Any]:
        """The messages that have come whole, without waiting for more.

        Where none has: raises EOFError or OSError if the connection has ended, BrokenMessage if what came is
        not what was sent.
        """
        if self._ended is None:
            try:
                self._read()
            except (EOFError, OSError) as error:
                self._ended = error
            try:
                self._take_apart()
            except BrokenMessage as error:
                self._ended = error
        messages = list(self._waiting)
        self._waiting.clear()
        if not messages and self._ended is not None:
            raise self._ended
        return messages

    def receive(self) -> Any:
        """The next message, waited for; raises what ``arrived`` does."""
        while True:
            messages = self.arrived()
            if messages:
                self._waiting.extend(messages[1:])
                return messages[0]
            self._poll(None)

    def put_back(self, messages: Sequence[Any]) -> None:
        """Let ``messages``, the last that came, come again."""
        self._waiting.extendleft(reversed(messages))

    def readable(self, limit_s: float = 0.0) -> bool:
        """Whether something comes within ``limit_s``, be it the end of the connection."""
        return self._poll(math.ceil(1000 * limit_s))

    def limit_sending(self, seconds: int) -> None:
        """Let ``send`` raise OSError where the other end takes nothing for so long."""
        self._end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", seconds, 0))

    def expect_acknowledgements(self, limit_s: float) -> None:
        """Let the connection end with TimeoutError where the other host acknowledges nothing for so long.

        Its kernel does, however busy or stopped the process is. Nothing on a connection within one host.
        """
        if self._end.family == socket.AF_UNIX:
            return
        seconds = max(1, int(limit_s / 4))
        self._end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        with contextlib.suppress(OSError, AttributeError):
            self._end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
            self._end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, seconds)
            self._end.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * limit_s))

    def outlast(self, limit_s: float) -> None:
        """Let the connection not end for so long where nothing is acknowledged."""
        with contextlib.suppress(OSError, AttributeError):
            self._end.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * limit_s))

    def detach(self) -> socket.socket:
        """The connection itself, for data without MACs; the channel is not to be used any more."""
        if self._buffer or self._waiting:
            raise BrokenMessage("said more than was expected")
        return self._end

    def close(self) -> None:
        """Hang up, also on a thread that sends."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()

    def _poll(self, limit_ms: int | None) -> bool:
        # select() takes no descriptor above 1023.
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        return bool(poll.poll(limit_ms))

    def _framed(self, message: object) -> bytes:
        content = encode(message)
        mac = _mac_of(self._keys[0], self._sent, content)
        self._sent += 1
        self.framed_bytes += _HEADER.size + len(content)
        return _HEADER.pack(len(content), mac) + content

    def _read(self) -> None:
        for _ in range(_MOST_READS):
            try:
                piece = self._end.recv(_READ_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            if not piece:
                raise EOFError("the other end has closed the connection")
            self._buffer += piece
            if len(piece) < _READ_BYTES:
                return

    def _take_apart(self) -> None:
        while len(self._buffer) >= _HEADER.size:
            length, mac = _HEADER.unpack_from(self._buffer)
            if length > _MOST_BYTES:
                raise BrokenMessage(f"announced a message of {length} bytes")
            if len(self._buffer) - _HEADER.size < length:
                return
            content = bytes(memoryview(self._buffer)[_HEADER.size : _HEADER.size + length])
            if not hmac.compare_digest(mac, _mac_of(self._keys[1], self._received, content)):
                raise BrokenMessage("sent a message that was changed on its way")
            self._received += 1
            del self._buffer[: _HEADER.size + length]
            try:
                self._waiting.append(decode(content))
            except ValueError as error:
                raise BrokenMessage(f"sent what is no message: {error}") from error


class Challenge:
    """What one who connects is asked, and whether the answer shows that it knows the key."""

    def __init__(self, key: bytes) -> None:
        self._key, self._nonce = key, secrets.token_bytes(_NONCE_BYTES)

    @property
    def question(self) -> bytes:
        """What the other end is sent first."""
        return _MAGIC + self._nonce

    def proof(self, answer: bytes) -> bytes:
        """What the other end is sent after its answer; raises BrokenMessage on a wrong one."""
        nonces = self._nonce + answer[:_NONCE_BYTES]
        if not hmac.compare_digest(answer[_NONCE_BYTES:], _derived(self._key, b"rank shows", nonces)):
            raise BrokenMessage("does not know the key")
        return _derived(self._key, b"command shows", nonces)

    def channel(self, end: socket.socket, answer: bytes) -> Channel:
        """The channel to the end that gave the right answer."""
        nonces = self._nonce + answer[:_NONCE_BYTES]
        return Channel(
            end, _derived(self._key, b"to rank", nonces), _derived(self._key, b"to command", nonces)
        )


def greet(end: socket.socket, key: bytes, limit_s: float) -> Channel:
    """The channel on ``end``, where the other end has asked and then shown that it knows the key.

    Raises OSError or EOFError, with ``end`` closed, where it has not within ``limit_s``.
    """
    deadline_s = time.monotonic() + limit_s
    try:
        question = _exactly(end, len(_MAGIC) + _NONCE_BYTES, deadline_s)
        if not question.startswith(_MAGIC):
            raise BrokenMessage("is no command that starts ranks")
        own = secrets.token_bytes(_NONCE_BYTES)
        nonces = question.removeprefix(_MAGIC) + own
        end.sendall(own + _derived(key, b"rank shows", nonces))
        if not hmac.compare_digest(
            _exactly(end, _MAC_BYTES, deadline_s), _derived(key, b"command shows", nonces)
        ):
            raise BrokenMessage("does not know the key")
        end.settimeout(None)
    except BaseException:
        end.close()
        raise
    return Channel(end, _derived(key, b"to command", nonces), _derived(key, b"to rank", nonces))


def key_of_wires(key: bytes) -> bytes:
    """The key of the connections between ranks, which tells nothing of the run's own."""
    return _derived(key, b"wires", b"")


def _exactly(end: socket.socket, size: int, deadline_s: float) -> bytes:
    found = b""
    while len(found) < size:
        end.settimeout(max(1e-3, deadline_s - time.monotonic()))
        piece = end.recv(size - len(found))
        if not piece:
            raise EOFError("the other end has closed the connection")
        found += piece
    return found


def _derived(key: bytes, use: bytes, nonces: bytes) -> bytes:
    return blake2b(nonces, key=key, person=use, digest_size=_MAC_BYTES).digest()


def _mac_of(key: bytes, number: int, content: bytes) -> bytes:
    mac = blake2b(number.to_bytes(8, "big"), key=key, digest_size=_MAC_BYTES)
    mac.update(content)
    return mac.digest()
