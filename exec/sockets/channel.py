"""Authenticated messages between two processes of one run: each has a MAC, checked before it is decoded.

Both ends know the run's key. In the greeting each end proves that it knows the key, by a MAC over the nonces
of both ends. Until then neither end sends or accepts more than a few bytes. The keys of the two directions of
a connection are derived from the run's key and both nonces. A message is its length, the MAC (keyed BLAKE2b,
RFC 7693) of its number and content, and the content. A message that was changed, cut, repeated, left out or
moved is refused before it is decoded. Contents are records (`exec.records`), never code. Nothing is
encrypted.
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
from exec.sockets.stalls import goes_nowhere, unacknowledged_bytes

__all__ = ["ANSWER_BYTES", "BrokenMessage", "Challenge", "Channel", "greet", "key_of_wires"]

_MAGIC = b"ccctl ranks 1\n"
# 256 bits: no nonce occurs twice, and no MAC of BLAKE2b can be guessed.
_NONCE_BYTES = _MAC_BYTES = 32
# Bytes accepted before the other end has proven the key: its nonce and a MAC.
ANSWER_BYTES = _NONCE_BYTES + _MAC_BYTES
_HEADER = struct.Struct(f">Q{_MAC_BYTES}s")
# Largest length accepted before the MAC is checked.
_MOST_BYTES = 1 << 36
# Limits of one read, so that one busy end does not keep the others waiting.
_READ_BYTES, _MOST_READS = 1 << 20, 64


class BrokenMessage(OSError):  # noqa: N818 - named after the message that came
    """An error: the data from the other end is not the next valid message of the protocol."""


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
        """Send one message; raises OSError if the other end is gone.

        Raises UnsendableError before a byte is sent if the message is no record.
        """
        # Header and content go as one piece; otherwise a short message would wait for the header's
        # acknowledgement (Nagle's algorithm).
        self._end.sendall(self._framed(message))

    def post(self, message: object) -> None:
        """Send as much of one message as the other end takes at once; ``flush`` sends the rest.

        Raises OSError if the other end is gone. After ``post`` an end must not use ``send``.
        """
        self._outgoing += self._framed(message)
        self.flush()

    def flush(self) -> None:
        """Send as much of the posted data as the other end takes at once; raises OSError if it is gone."""
        while self._outgoing:
            try:
                sent = self._end.send(self._outgoing, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            del self._outgoing[:sent]

    @property
    def backlog(self) -> bool:
        """Whether posted data is still unsent."""
        return bool(self._outgoing)

    def wait_for_room(self, limit_s: float) -> None:
        """Wait until the other end may take more posted data, for at most ``limit_s`` seconds."""
        poll = select.poll()
        poll.register(self._end, select.POLLOUT)
        poll.poll(math.ceil(1000 * limit_s))

    @property
    def acknowledged_bytes(self) -> int:
        """The part of ``framed_bytes`` (all messages so far) that the other host acknowledged."""
        return self.framed_bytes - len(self._outgoing) - unacknowledged_bytes(self._end)

    def goes_nowhere(self) -> bool:
        """Return whether the connection carries nothing, though the other end has room."""
        return goes_nowhere(self._end)

    def arrived(self) -> list[Any]:
        """Return the complete messages received so far, without waiting.

        If there are no messages, raises EOFError or OSError if the connection has ended, and BrokenMessage if
        the data is not what was sent.
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
        """Wait for the next message and return it; raises as ``arrived``."""
        while True:
            messages = self.arrived()
            if messages:
                self._waiting.extend(messages[1:])
                return messages[0]
            self._poll(None)

    def put_back(self, messages: Sequence[Any]) -> None:
        """Put ``messages``, which were received last, back to the front of the queue."""
        self._waiting.extendleft(reversed(messages))

    def readable(self, limit_s: float = 0.0) -> bool:
        """Return whether data, or the end of the connection, arrives within ``limit_s``."""
        return self._poll(math.ceil(1000 * limit_s))

    def limit_sending(self, seconds: int) -> None:
        """Make ``send`` raise OSError if the other end takes nothing for this long."""
        self._end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", seconds, 0))

    def expect_acknowledgements(self, limit_s: float) -> None:
        """Make the connection end with TimeoutError if the other host acknowledges nothing for ``limit_s``.

        A live host's kernel acknowledges, however busy or stopped the process is. A connection within one
        host stays as it is.
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
        """Keep the connection for ``limit_s`` although nothing is acknowledged."""
        with contextlib.suppress(OSError, AttributeError):
            self._end.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * limit_s))

    def detach(self) -> socket.socket:
        """Return the socket for data without MACs; the channel must not be used any more."""
        if self._buffer or self._waiting:
            raise BrokenMessage("said more than was expected")
        return self._end

    def close(self) -> None:
        """Close the connection, even while another thread sends."""
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
    """The question to a connecting process, and the check that its answer proves the key."""

    def __init__(self, key: bytes) -> None:
        self._key, self._nonce = key, secrets.token_bytes(_NONCE_BYTES)

    @property
    def question(self) -> bytes:
        """The first bytes sent to the other end."""
        return _MAGIC + self._nonce

    def proof(self, answer: bytes) -> bytes:
        """Return the reply to the other end's answer; raises BrokenMessage if the answer is wrong."""
        nonces = self._nonce + answer[:_NONCE_BYTES]
        if not hmac.compare_digest(answer[_NONCE_BYTES:], _derived(self._key, b"rank shows", nonces)):
            raise BrokenMessage("does not know the key")
        return _derived(self._key, b"command shows", nonces)

    def channel(self, end: socket.socket, answer: bytes) -> Channel:
        """Return the channel to the end that gave the right answer."""
        nonces = self._nonce + answer[:_NONCE_BYTES]
        return Channel(
            end, _derived(self._key, b"to rank", nonces), _derived(self._key, b"to command", nonces)
        )


def greet(end: socket.socket, key: bytes, limit_s: float) -> Channel:
    """Answer the other end's challenge, check its proof of the key, and return the channel on ``end``.

    Raises OSError or EOFError, with ``end`` closed, if the greeting fails or takes longer than ``limit_s``.
    """
    deadline_s = time.monotonic() + limit_s
    try:
        question = _exactly(end, len(_MAGIC) + _NONCE_BYTES, deadline_s)
        if not question.startswith(_MAGIC):
            raise BrokenMessage("is no command that starts ranks")
        nonce = secrets.token_bytes(_NONCE_BYTES)
        nonces = question.removeprefix(_MAGIC) + nonce
        end.sendall(nonce + _derived(key, b"rank shows", nonces))
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
    """Return the key of the connections between ranks, which does not reveal the run's key."""
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
