"""Rendezvous of a training script's ranks through the store that they have, and their orderly shutdown.

Whatever started them (torchrun, mpirun, srun) gave them a store of keys and values. Through it goes the
run's key and where each rank listens; all that follows goes over the ranks' own connections.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from exec.sockets.group import Group, join
from exec.sockets.key_agreement import agree
from probes.errors import UsageError

__all__ = ["Shutdown", "Store", "of_rank_0", "rendezvous"]

_T = TypeVar("_T")

_TOPIC = "shutdown"
_LOOK_S = 0.02
# How long rank 0, which may serve the store, stays so that others can read why it fails.
_TELLING_S = 20.0


class Store(Protocol):
    """What is used of torch.distributed.Store; ``get`` waits for the key."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes: ...

    def add(self, key: str, amount: int) -> int: ...


def of_rank_0(store: Store, rank: int, size: int, make: Callable[[], _T | None]) -> _T | None:
    """What ``make`` gives on rank 0, there; None elsewhere. What it raises there is raised on all ranks."""
    if rank > 0:
        why = store.get("ccctl/refused").decode()
        store.add("ccctl/heard", 1)
        if why:
            raise UsageError(f"rank 0: {why}")
        return None
    try:
        made = make()
    except Exception as error:  # Whatever it is, the others wait for it.
        store.set("ccctl/refused", str(error))
        until_s = time.monotonic() + _TELLING_S
        while store.add("ccctl/heard", 0) < size - 1 and time.monotonic() < until_s:
            time.sleep(_LOOK_S)
        raise
    store.set("ccctl/refused", "")
    return made


def rendezvous(store: Store, rank: int, size: int) -> Group:
    """The group of all ranks that use ``store``; collective.

    The key of the connections is agreed on over the store, and never lies in it. Where all ranks have the
    same CCCTL_SECRET, whoever can write the store cannot learn the key either.
    """
    rounds = 0

    def exchange(said: bytes) -> list[bytes]:
        nonlocal rounds
        rounds += 1
        store.set(f"ccctl/{rounds}/{rank}", said.hex())
        return [bytes.fromhex(store.get(f"ccctl/{rounds}/{other}").decode()) for other in range(size)]

    key = agree(rank, size, exchange, os.environ.get("CCCTL_SECRET", "").encode())
    return join(rank, size, exchange, key)


class Shutdown:
    """Lets a rank leave only when no other needs it any more: all have done as much as it has.

    ``done`` counts the collectives of this rank.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._changed = threading.Condition()
        self._done = 0
        self._asked: dict[int, int] = {}
        self._granted: set[int] = set()
        group.mesh.subscribe(_TOPIC, self._hear)

    def count(self) -> None:
        """Note that a collective is done."""
        with self._changed:
            self._done += 1
            self._answer()

    def wait(self, limit_s: float) -> None:
        """Return when every rank that lives has done as much as this one, or after ``limit_s`` seconds."""
        mesh = self._group.mesh
        others = set(self._group.members) - {mesh.rank}
        for other in others:
            mesh.send(other, _TOPIC, ("may I go", self._done))
        until_s = time.monotonic() + limit_s
        with self._changed:
            while others - self._granted - set(mesh.lost) and time.monotonic() < until_s:
                self._changed.wait(_LOOK_S)

    def _hear(self, peer: int, message: tuple[str, int]) -> None:
        """On the mesh's thread."""
        said, done = message
        with self._changed:
            if said == "go":
                self._granted.add(peer)
                self._changed.notify_all()
            else:
                self._asked[peer] = done
                self._answer()

    def _answer(self) -> None:
        for peer in [peer for peer, done in self._asked.items() if done <= self._done]:
            del self._asked[peer]
            self._group.mesh.send(peer, _TOPIC, ("go", 0))
