"""Rendezvous of a training script's ranks, and their orderly shutdown.

PyTorch gives the ranks a store of keys and values. When a group is made, the store carries rank 0's message
and, with `exchange_through`, the data that ranks need to connect. All later messages use the ranks' own
connections. The store may still hold entries of an earlier start of the job, so a rank accepts only an answer
to its own question, which is a random number. No call waits inside the store, because all groups of a process
share its client.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from exec.sockets import Exchange, Group, agree, join
from probes.base import UnavailableError, UsageError

__all__ = ["Shutdown", "TorchStore", "Word", "exchange_through", "hear_rank_0", "looks", "rendezvous"]

_T = TypeVar("_T")

_TOPIC = "shutdown"
# Interval at which a leaving rank looks for lost ranks: nothing notifies it of a loss.
_LOOK_S = 0.02
# Pauses between two reads of the store: short at first, longer later.
_FIRST_LOOK_S, _LAST_LOOK_S = 0.001, 0.02
# Longest time that a failed rank 0 waits until the others have read the reason, because it may serve the
# store.
_TELLING_S = 20.0


class TorchStore(Protocol):
    """The methods of torch.distributed.Store in use; ``check`` does not wait."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes: ...

    def check(self, keys: list[str]) -> bool: ...


@dataclass(frozen=True)
class Word(Generic[_T]):
    """Rank 0's message to all ranks when a group is made.

    ``scope`` is a name unique to this group and this start of the job. ``text`` is for all ranks, ``made``
    stays on rank 0.
    """

    scope: str
    text: str
    made: _T | None


def hear_rank_0(
    store: TorchStore, rank: int, size: int, make: Callable[[], tuple[_T | None, str]], limit_s: float
) -> Word[_T]:
    """Return rank 0's message; collective.

    On rank 0, ``make`` returns a value that stays there and the text for all ranks. An error of ``make`` is
    raised on all ranks. Raises UnavailableError after ``limit_s`` seconds.
    """
    if rank > 0:
        return _heard(store, rank, limit_s)
    failed: Exception | None = None
    made, text = None, ""
    try:
        made, text = make()
    except Exception as error:  # Any error: the others wait for it.
        failed = error
    word = Word(secrets.token_hex(8), text, made)
    why = None if failed is None else str(failed)
    missing = _tell(store, size, word, why, limit_s if failed is None else _TELLING_S)
    if failed is not None:
        raise failed
    if missing:
        raise UnavailableError(f"ranks {missing} of {size} have not joined the group within {limit_s:g} s")
    return word


def _tell(store: TorchStore, size: int, word: Word[_T], why: str | None, limit_s: float) -> list[int]:
    """Answer every rank's question; return the ranks that have not confirmed after ``limit_s``."""
    missing, answered = list(range(1, size)), dict[int, str]()
    answer = json.dumps([word.scope, word.text, why])
    for _ in looks(limit_s):
        for rank in tuple(missing):
            if _read(store, f"heard/{rank}") == word.scope:
                missing.remove(rank)
                continue
            asked = _read(store, f"asked/{rank}")
            if asked and asked != answered.get(rank):
                store.set(f"word/{rank}", f"{asked} {answer}")
                answered[rank] = asked
        if not missing:
            break
    return missing


def _heard(store: TorchStore, rank: int, limit_s: float) -> Word[_T]:
    asked = secrets.token_hex(8)
    store.set(f"asked/{rank}", asked)
    for _ in looks(limit_s):
        answer, _, content = _read(store, f"word/{rank}").partition(" ")
        if answer == asked:
            scope, text, why = json.loads(content)
            store.set(f"heard/{rank}", scope)
            if why is not None:
                raise UsageError(f"rank 0: {why}")
            return Word(scope, text, None)
    raise UnavailableError(f"rank 0 has not made the group within {limit_s:g} s")


def looks(limit_s: float) -> Iterator[None]:
    """Yield until ``limit_s`` seconds have passed, with growing pauses."""
    until_s, pause_s = time.monotonic() + limit_s, _FIRST_LOOK_S
    while True:
        yield
        if time.monotonic() > until_s:
            return
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LAST_LOOK_S)


def _read(store: TorchStore, key: str) -> str:
    """Return the value of ``key``; "" if there is none."""
    return store.get(key).decode() if store.check([key]) else ""


def exchange_through(store: TorchStore, rank: int, size: int, limit_s: float) -> Exchange:
    """Return an all-gather of bytes over an empty store, such as one prefixed by a word's ``scope``."""
    rounds = itertools.count()

    def exchange(message: bytes) -> list[bytes]:
        number = next(rounds)
        store.set(f"{number}/{rank}", f"said {message.hex()}")
        heard = {rank: message}
        for _ in looks(limit_s):
            for other in set(range(size)) - heard.keys():
                if answer := _read(store, f"{number}/{other}"):
                    heard[other] = bytes.fromhex(answer.removeprefix("said "))
            if len(heard) == size:
                return [heard[other] for other in range(size)]
        raise UnavailableError(f"{size - len(heard)} of {size} ranks have not answered within {limit_s:g} s")

    return exchange


def rendezvous(exchange: Exchange, rank: int, size: int) -> Group:
    """Return the group of all ranks; collective. ``exchange`` is an all-gather of bytes among them.

    The ranks agree on a key for their connections over ``exchange`` without sending it. If all ranks have the
    same CCCTL_SECRET, even somebody who can change their messages cannot learn the key.
    """
    key = agree(rank, size, exchange, os.environ.get("CCCTL_SECRET", "").encode())
    return join(rank, size, exchange, key)


class Shutdown:
    """An orderly exit: a rank may leave once all others have finished as many collectives as it has."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._changed = threading.Condition()
        self._done = 0
        self._asked: dict[int, int] = {}
        self._granted: set[int] = set()
        group.mesh.subscribe(_TOPIC, self._hear)

    def count(self) -> None:
        with self._changed:
            self._done += 1
            self._answer()

    def wait(self, limit_s: float) -> None:
        """Wait up to ``limit_s`` seconds until live ranks have finished as many collectives."""
        mesh = self._group.mesh
        others = set(self._group.members) - {mesh.rank}
        for other in others:
            mesh.send(other, _TOPIC, ("may I go", self._done))
        until_s = time.monotonic() + limit_s
        with self._changed:
            while others - self._granted - set(mesh.lost) and time.monotonic() < until_s:
                self._changed.wait(_LOOK_S)

    def _hear(self, peer: int, message: tuple[str, int]) -> None:
        """Handle a message; runs on the mesh's thread."""
        kind, done = message
        with self._changed:
            if kind == "go":
                self._granted.add(peer)
                self._changed.notify_all()
            else:
                self._asked[peer] = done
                self._answer()

    def _answer(self) -> None:
        for peer in [peer for peer, done in self._asked.items() if done <= self._done]:
            del self._asked[peer]
            self._group.mesh.send(peer, _TOPIC, ("go", 0))
