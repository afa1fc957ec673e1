"""The protocol of peers: libraries whose own collectives run on the same buffers as ours, in the same run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from exec.program import Array, Buffers, KeptRun
from synth.collective import Collective

__all__ = ["Call", "Peer", "nothing"]


def nothing() -> None:
    """Do nothing: the default for the steps around a call."""


@dataclass(frozen=True, eq=False)
class Call:
    """A prepared collective: ``run`` is timed; ``prepare`` before and ``settle`` after it are not.

    If the library works on its own memory, ``place`` copies the input there and ``fetch`` copies the result
    to ``result``. ``close`` frees what the call holds. ``kept`` returns the log of the last run, if one is
    written.
    """

    run: Callable[[], object]
    result: Array
    prepare: Callable[[], object] = nothing
    settle: Callable[[], object] = nothing
    place: Callable[[], object] = nothing
    fetch: Callable[[], object] = nothing
    close: Callable[[], object] = nothing
    kept: Callable[[], KeptRun] | None = None


class Peer(Protocol):
    """A library, opened on all ranks once for a benchmark; ``name`` is the heading of its columns.

    An ``optional`` library is left out where `ready` raises UnavailableError.
    """

    optional: bool

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def ready(self, collective: Collective, buffers: Buffers, redop: str) -> Call:
        """Return the library's collective on ``buffers``; raises UnavailableError without one."""
        ...

    def close(self) -> None:
        """Free what the library holds; collective."""
        ...
