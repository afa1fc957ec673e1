"""Delivery of messages once and in order, although each may arrive by two routes.

If the connection between two live ranks carries nothing any more, messages go around over a third rank.
Earlier messages may still arrive directly, so each message has a number and the receiver takes each once.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["OrderedMessages", "Passed", "Sent"]

# Time without acknowledgements before messages take a detour.
MUTE_S = 0.4


@dataclass(frozen=True)
class Passed:
    """A message from ``origin`` to ``dest`` on a detour.

    ``starts`` count the earlier starts of both ranks, in this order.
    """

    origin: int
    dest: int
    number: int
    content: bytes
    starts: tuple[int, int] = (0, 0)


class OrderedMessages:
    """The messages of one peer, in the order of their numbers, each once."""

    def __init__(self) -> None:
        self._next = 0
        self._early: dict[int, bytes] = {}

    def take(self, number: int, content: bytes) -> list[bytes]:
        """Take message ``number``, possibly a repeat, and return the messages that are now in order."""
        if number >= self._next:
            self._early.setdefault(number, content)
        found = []
        while self._next in self._early:
            found.append(self._early.pop(self._next))
            self._next += 1
        return found


class Sent:
    """The unacknowledged messages to one peer, and whether its connection carries anything.

    ``goes_nowhere`` returns whether the connection carries nothing at this moment.
    """

    def __init__(self, goes_nowhere: Callable[[], bool]) -> None:
        self._goes_nowhere = goes_nowhere
        self._number = 0
        self._waiting: collections.deque[tuple[int, int, bytes]] = collections.deque()
        self._passed_from: tuple[int, int] | None = None
        self._since_s, self._acknowledged_bytes = 0.0, 0
        self.mute = False

    def next_number(self) -> int:
        self._number += 1
        return self._number - 1

    def note(self, number: int, end_byte: int, content: bytes) -> None:
        """Remember a message whose last byte is number ``end_byte`` of the connection."""
        if not self._waiting:
            self._since_s = time.monotonic()
        self._waiting.append((end_byte, number, content))

    @property
    def waiting(self) -> bool:
        """Whether any message is unacknowledged."""
        return bool(self._waiting)

    def look(self, acknowledged_bytes: int, now_s: float) -> None:
        """Forget acknowledged messages, and set ``mute`` if messages have to take a detour."""
        before, self._acknowledged_bytes = self._acknowledged_bytes, acknowledged_bytes
        while self._waiting and self._waiting[0][0] <= acknowledged_bytes:
            self._waiting.popleft()
        if acknowledged_bytes > before or not self._waiting:
            self._since_s, self.mute, self._passed_from = now_s, False, None
        elif not self.mute:
            self.mute = now_s - self._since_s > MUTE_S and self._goes_nowhere()

    def to_pass(self, relay: int) -> list[tuple[int, bytes]]:
        """Return the messages that ``relay`` lacks, as (number, content); all of them for a new relay."""
        if self._passed_from is None or self._passed_from[0] != relay:
            self._passed_from = (relay, 0)
        least = self._passed_from[1]
        found = [(number, content) for _, number, content in self._waiting if number >= least]
        self._passed_from = (relay, self._number)
        return found
