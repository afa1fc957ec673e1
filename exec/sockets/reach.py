"""Connection to a process of the same run, at the first of its addresses that answers."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Sequence

from exec.sockets.channel import Channel, greet

__all__ = ["UNHEARD_S", "first_to_answer"]

# Seconds without acknowledgements after which a connection ends.
UNHEARD_S = 20
# Longest time to connect, and for the other end to greet.
_REACHED_S = 3.0
_ANSWERED_S = 10.0
# Delay before the next address is tried in parallel.
_HEAD_START_S = 0.25
# Attempts after being turned away, and the pause between them.
_ATTEMPTS, _AGAIN_S = 20, 0.25


def first_to_answer(addresses: Sequence[str], key: bytes) -> Channel | None:
    """Return a channel to the address that answers first; None if no address does.

    Each address has a head start over the next (as in RFC 8305). So a stranger that listens at one address
    and stays silent costs only the head start.
    """
    answers: queue.SimpleQueue[Channel | None] = queue.SimpleQueue()
    under_way = 0
    for address in addresses:
        under_way += 1
        threading.Thread(
            target=lambda at: answers.put(_answer(at, key)), args=(address,), daemon=True
        ).start()
        with contextlib.suppress(queue.Empty):
            found = answers.get(timeout=_HEAD_START_S)
            under_way -= 1
            if found is not None:
                return found
    for _ in range(under_way):
        if (found := answers.get()) is not None:
            return found
    return None


def _answer(address: str, key: bytes) -> Channel | None:
    """Return the channel to ``address``; None on failure.

    An end that turns the caller away, because too many connect at once, is tried again.
    """
    for _ in range(_ATTEMPTS):
        try:
            end = _reached(address)
        except OSError:
            return None
        try:
            return greet(end, key, _ANSWERED_S)
        except (ConnectionResetError, BrokenPipeError, EOFError):
            time.sleep(_AGAIN_S)
        except OSError:
            return None
    return None


def _reached(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    if address.startswith("/"):
        end = socket.socket(socket.AF_UNIX)
        end.connect(address)
        return end
    end = socket.create_connection((host, int(port)), _REACHED_S)
    with contextlib.suppress(OSError, AttributeError):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * UNHEARD_S)
    return end
