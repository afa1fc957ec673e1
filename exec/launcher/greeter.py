"""Lets the ranks of one run in: whoever reaches the port is asked for the run's key.

On one host the port is a socket in a folder of the user's alone, which no other user can reach. Between
hosts anybody can: each is asked in a thread of its own, for seconds at most, so that nobody who says
nothing, or says too much, keeps a rank waiting.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from exec.launcher.protocol import Hello, JobForRanks, authenticated

__all__ = ["Greeter", "listen"]

_BACKLOG = 4096
# What an address of a socket in a folder may take: sun_path(7).
_LONGEST_PATH = 107
# Strangers that are asked at a time, apart from ranks; the rest is turned away.
_MOST_STRANGERS = 256


def listen(folder: Path, *, outside: bool) -> socket.socket:
    """A socket that ranks can reach: of this host alone, or with ``outside`` of any host that can reach this.

    The one of this host lies in ``folder``, or where its name is too long at the loopback address.
    """
    path = str(folder / "control")
    if outside or len(path.encode()) > _LONGEST_PATH:
        return socket.create_server(("0.0.0.0" if outside else "127.0.0.1", 0), backlog=_BACKLOG)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(_BACKLOG)
    return listener


class Greeter:
    """Hands the job to every rank that arrives, and the rank to ``arrived``, until closed."""

    def __init__(
        self,
        listener: socket.socket,
        key: bytes,
        job: JobForRanks,
        arrived: Callable[[Hello, Connection[Any, Any]], None],
    ) -> None:
        self._listener, self._key, self._job, self._arrived = listener, key, job, arrived
        self._closed = False
        self._free = threading.BoundedSemaphore(_MOST_STRANGERS + job.ranks)
        self._thread = threading.Thread(target=self._accept, name="accept", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Greet no more."""
        self._closed = True
        # Closing it alone does not wake who waits for a connection to it.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(2)

    def _accept(self) -> None:
        while not self._closed:
            try:
                end, _ = self._listener.accept()
            except OSError:
                # Too many open files, for one: a stranger may go.
                time.sleep(0.05)
                continue
            if self._free.acquire(blocking=False):
                threading.Thread(target=self._greet, args=(end,), name="greet", daemon=True).start()
            else:
                end.close()

    def _greet(self, end: socket.socket) -> None:
        try:
            connection = authenticated(end, self._key, asks_first=True)
            hello: Hello = connection.recv()
            connection.send(self._job.of_rank(hello.rank))
        except (EOFError, OSError):
            return
        finally:
            self._free.release()
        self._arrived(hello, connection)
