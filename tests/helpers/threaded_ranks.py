"""Ranks joined by sockets, for tests: threads of this process, on one host or on several as they see it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from exec.mpi import connections
from exec.sockets.group import Group
from exec.sockets.mesh import Mesh

__all__ = ["ThreadedRanks"]

_PATIENCE_S = 100


class ThreadedRanks:
    """``hosts[rank]`` is the host of each; `on_all` is collective."""

    def __init__(self, hosts: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.size, self._hosts, self._local = len(hosts), tuple(hosts), threading.local()
        monkeypatch.setattr(connections, "host_key", lambda: self._hosts[self._local.rank])
        meeting, said = threading.Barrier(self.size), {}

        def make(rank: int) -> Mesh:
            rounds = iter(range(100))

            def exchange(mine: bytes) -> list[bytes]:
                number = next(rounds)
                said[number, rank] = mine
                meeting.wait(_PATIENCE_S)
                return [said[number, one] for one in range(self.size)]

            mesh = Mesh(rank, self.size, exchange, bytes(range(32)))
            mesh.known = [replace(where, host=self._hosts[where.rank]) for where in mesh.known]
            return mesh

        self.meshes = self.on_all(make)
        self.groups = [Group(mesh, range(self.size), "0") for mesh in self.meshes]

    def on_all(self, work: Callable[[int], Any]) -> list[Any]:
        """Return ``work(rank)`` of each rank, each in a thread of its own; raise the first error."""
        found: dict[int, Any] = {}
        errors: list[BaseException] = []

        def run(rank: int) -> None:
            self._local.rank = rank
            try:
                found[rank] = work(rank)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_PATIENCE_S)
        if errors:
            raise errors[0]
        return [found[rank] for rank in range(self.size)]

    def close(self) -> None:
        for mesh in self.meshes:
            mesh.close()
