"""The collectives of a group that are under way, to report which ranks a hanging rank waits for.

One thread watches all groups of the process. A rank whose collective takes seconds writes the collective's
number to the store. If a collective exceeds its time limit, a rank can therefore report which ranks have
called it and which have not. While collectives are fast, nothing is written.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CallLog"]

_log = logging.getLogger(__name__)

# Interval between two looks at the calls, short compared with _SLOW_S.
_LOOK_S = 0.5
# A collective is slow after _SLOW_S seconds or the share _SLOW of its limit, whichever is sooner, and late
# after the share _LATE.
_SLOW_S, _SLOW = 5.0, 0.25
_LATE = 0.9
# The most calls of a log that are watched at a time. The earliest are watched, as thousands may be under way.
_MOST_CALLS = 64
# Most ranks that a message names.
_MOST_NAMED = 8
_LOGS: weakref.WeakSet[CallLog] = weakref.WeakSet()
_starting = threading.Lock()
_watching: list[threading.Thread] = []


@dataclass(eq=False)
class _Call:
    """Collective ``number`` of its group, represented by ``work``; ``stop`` ends it."""

    number: int
    name: str
    limit_s: float
    work: Any
    stop: Callable[[str], None]
    asked_s: float = field(default_factory=time.monotonic)
    told: set[str] = field(default_factory=set)

    @property
    def age_s(self) -> float:
        """Seconds since the collective began; 0.0 while it waits for others of this rank."""
        began_s = getattr(self.work, "began_s", self.asked_s)
        return 0.0 if began_s is None else time.monotonic() - began_s

    def once(self, event: str) -> bool:
        """Return whether this is the first call with ``event``."""
        first = event not in self.told
        self.told.add(event)
        return first


class CallLog:
    """The calls of one rank of a group with a common ``store``; ``name`` returns the group's name."""

    def __init__(self, store: Any, rank: int, size: int, name: Callable[[], str]) -> None:
        self._store, self._rank, self._size, self._name = store, rank, size, name
        self._own_store: Any = None
        self._lock = threading.Lock()
        self._calls: collections.deque[_Call] = collections.deque()
        self._number = 0
        _LOGS.add(self)

    @property
    def called(self) -> bool:
        return self._number > 0

    def begin(self) -> int:
        """Return the number of the next collective, from 1."""
        self._number += 1
        return self._number

    def watch(
        self,
        number: int,
        name: str,
        limit_s: float,
        work: Any,
        stop: Callable[[str], None] = lambda why: None,
    ) -> None:
        """Watch a collective until its work is done; ``stop`` is called after ``limit_s``."""
        with self._lock:
            self._drop_done()
            if len(self._calls) < _MOST_CALLS:
                self._calls.append(_Call(number, name, limit_s, work, stop))
        if not _watching:
            _begin_watching()

    def explained(self, number: int, name: str, why: str) -> str:
        """Return the reason why a collective failed, with its name and the ranks that have not called it."""
        missing = self._missing(number)
        return f"{self._named(number, name)}: {why}" + (f"; {missing}" if missing else "")

    def look(self) -> None:
        """Record slow calls in the store, log late ones, and stop those over their limit."""
        with self._lock:
            self._drop_done()
            calls = [call for call in self._calls if not call.work.is_completed()]
        for call in calls:
            if call.age_s > min(_SLOW_S, _SLOW * call.limit_s) and call is calls[0] and call.once("slow"):
                self._write(call)
            if call.age_s > _LATE * call.limit_s and call is calls[0] and call.once("late"):
                why = f"not done after {call.age_s:.1f} s of {call.limit_s:g} s"
                _log.error("ccctl: rank %d: %s", self._rank, self.explained(call.number, call.name, why))
            if call.age_s > call.limit_s and call.once("stopped"):
                call.stop(f"not done after {call.limit_s:g} s")

    def _drop_done(self) -> None:
        while self._calls and self._calls[0].work.is_completed():
            self._calls.popleft()

    def _named(self, number: int, name: str) -> str:
        group = self._name()
        return f"{name}, collective {number} of group {group or '(without a name)'}"

    def _write(self, call: _Call) -> None:
        with contextlib.suppress(RuntimeError, OSError):
            if store := self._others():
                store.set(f"at/{self._rank}", f"{call.number} {call.name}")

    def _missing(self, number: int) -> str:
        """Return the ranks that have not called the collective, as text from their records; "" if unknown."""
        lines = []
        try:
            store = self._others()
            if store is None:
                return ""
            for rank in range(self._size):
                at, _, name = self._read(store, rank).partition(" ")
                if rank != self._rank and int(at or 0) < number:
                    lines.append(f"rank {rank}" + (f" (last slow in {name}, collective {at})" if at else ""))
        except (RuntimeError, OSError):
            return ""
        more = f" and {len(lines) - _MOST_NAMED} more" if len(lines) > _MOST_NAMED else ""
        if not lines:
            return "all other ranks have called it"
        return f"not called, or only a moment ago, by {', '.join(lines[:_MOST_NAMED])}{more}"

    def _read(self, store: Any, rank: int) -> str:
        """Return the last record of ``rank``; "" for none."""
        key = f"at/{rank}"
        return str(store.get(key).decode()) if store.check([key]) else ""

    def _others(self) -> Any:
        """Return a separate connection to the store; None if the store cannot be cloned.

        The client that all groups share handles one request at a time, and may be blocked in one.
        """
        if self._own_store is None and hasattr(self._store, "clone"):
            self._own_store = self._store.clone()
        return self._own_store


def _begin_watching() -> None:
    with _starting:
        if not _watching:
            thread = threading.Thread(target=_watch, name="ccctl watch", daemon=True)
            _watching.append(thread)
            thread.start()


def _watch() -> None:
    while True:
        time.sleep(_LOOK_S)
        _look_at_all()


def _look_at_all() -> None:
    for log in tuple(_LOGS):
        try:
            log.look()
        except Exception as error:  # A group that is being closed must not end the watch over others.
            _log.debug("ccctl: %s", error)
