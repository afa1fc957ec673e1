"""Connects to a process of the same run, at the first of its addresses where it answers."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Sequence

from exec.sockets.channel import Channel, greet

__all__ = ["UNHEARD_S", "first_to_answer"]

# A process whose host is cut off hears of it when nothing has been acknowledged for so long.
UNHEARD_S = 20
# How long a connection may take to come about, and the other end to greet.
_REACHED_S = 3.0
_ANSWERED_S = 10.0
# Before the next address is tried beside those before.
_HEAD_START_S = 0.25
# How often one asks that was turned away.
_ATTEMPTS, _AGAIN_S = 20, 0.25


def first_to_answer(addresses: Sequence[str], key: bytes) -> Channel | None:
    """A channel by the address where the other end answers first; each has a head start over the next.

    So a stranger who listens at one of them and says nothing holds nobody up (RFC 8305 does the same).
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
    """The channel to ``address``; None where it is not to be had.

    Who is turned away, as too many others ask at the same time, tries again.
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
